#!/usr/bin/env bash
# Python: a virtual environment, packages from wheels and from source put into it by pip, all of them
# compiled and used. The same files as on ext4.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
prepare python "$(by_size 512M 2G)" cc:build-essential
python3 -c 'import ensurepip, venv' 2>/dev/null ||
    (install_missing no-such-command:python3-venv) || skip "python: python3-venv can't be installed here"

# Extensions (loaded by mmap), data files, programs; and, if there is time, one that is built from source.
packages=(MarkupSafe Jinja2 PyYAML)
[ "$(by_size quick all)" = quick ] || packages+=(setuptools wheel click numpy lxml sqlalchemy Django pytest cryptography)
from_source=docopt

# What is compiled says the source's hash instead of its time.
export SOURCE_DATE_EPOCH=1700000000 PYTHONHASHSEED=0 PIP_NO_CACHE_DIR=1
unset PYTHONPATH PYTHONDONTWRITEBYTECODE

# fetch PIP ...: once, so that both get the same.
fetch() {
    [ ! -e "$SCRATCH/packages" ] || return 0
    if ! "$@" download --only-binary :all: -d "$SCRATCH/packages" "${packages[@]}" >"$SCRATCH/pip.log" 2>&1 ||
        ! "$@" download --no-deps --no-binary :all: -d "$SCRATCH/sources" $from_source >>"$SCRATCH/pip.log" 2>&1; then
        skip "python: pip can't fetch packages here: $(tail -1 "$SCRATCH/pip.log")" >&3
    fi
}

environment() {
    python3 -m venv venv
    local pip=(venv/bin/pip --quiet --disable-pip-version-check)
    fetch "${pip[@]}"
    "${pip[@]}" install --no-index --find-links "$SCRATCH/packages" "${packages[@]}"
    # Into a directory that is reached by a link.
    mkdir -p far/away
    ln -s far/away near
    if [ "$(by_size quick all)" = all ]; then
        "${pip[@]}" install --no-index --no-build-isolation --target near "$SCRATCH/sources/$from_source"*
        # (What pip compiles for a target names the directory that it was first put into, a new one each time.)
        venv/bin/python -m compileall -q -f --invalidation-mode checked-hash venv/lib near
    else
        tar -xzf "$SCRATCH/sources/$from_source"* -C near --strip-components=1 --no-same-owner
        venv/bin/python -m compileall -q near
    fi
    "${pip[@]}" list
    "${pip[@]}" check
    PYTHONPATH=near venv/bin/python - <<'PY'
import docopt, jinja2, markupsafe, sys, yaml
from markupsafe import _speedups
print(sys.prefix, _speedups.__file__, docopt.__file__)
print(jinja2.Template("{% for n in names %}{{ n|e }} {% endfor %}").render(names=["<a>", "b&c"]))
print(yaml.dump(yaml.load("{a: [1, 2, {b: c}]}", Loader=yaml.CSafeLoader), Dumper=yaml.CSafeDumper))
PY
    # Moved by a copy, and some taken away again.
    cp -a venv moved
    moved/bin/python -c 'import yaml; print(yaml.__version__)'
    "${pip[@]}" uninstall -y jinja2
    "${pip[@]}" list
}
on_both environment
done_well "$(python3 --version), $(find "$SCRATCH/packages" "$SCRATCH/sources" -type f | wc -l) packages"
