#!/usr/bin/env bash
# The POSIX test suite pjdfstest, on a mount as root makes it by mount(8): everything passes, but
# for what tests/pjdfstest.skips names, each with its reason.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
lode=${LODE:-$TARGET/${LODE_BUILT:-debug}/lode}
version=0.2.2

if ! is_root; then
    echo "skipped: pjdfstest changes owners, which needs root"
    exit 0
fi
if [ "${1:-}" != inside ]; then
    need_cargo
    cargo install --quiet --locked --debug --root "$TARGET/tools" "pjdfstest@$version"
    # Mounts of its own, where that is possible: whatever happens, they are gone with the last process.
    if unshare --mount --propagation private true 2>/dev/null; then
        exec unshare --mount --propagation private bash "${BASH_SOURCE[0]}" inside
    fi
fi

scratch=$(mktemp -d)
helper=
finish() {
    "$lode" umount "$scratch/mnt" >/dev/null 2>&1 || true
    [ -z "$helper" ] || rm -f "$helper"
    umount -l "$scratch/own" || true
    rm -rf "$scratch"
}
trap finish EXIT
mkdir "$scratch"/{own,mnt}
mount -t tmpfs lode-test "$scratch/own"
mkdir "$scratch"/own/{upper,work,second}
# mount(8) looks for its helpers in /sbin only: there is one more now, for these processes.
sbin=$(readlink -f /sbin)
layers="lowerdir=$sbin,upperdir=$scratch/own/upper,workdir=$scratch/own/work"
if [ "${1:-}" = inside ] && mount -t overlay lode-test -o "$layers" "$sbin" 2>/dev/null; then
    ln -sf "$lode" "$sbin/mount.fuse.lode"
elif [ ! -e "$sbin/mount.fuse.lode" ]; then
    helper=$sbin/mount.fuse.lode
    ln -s "$lode" "$helper"
fi

"$lode" mkfs "$scratch/own/pool" --size 256M >/dev/null
mount -t fuse.lode "$scratch/own/pool" "$scratch/mnt" >/dev/null
chmod 755 "$scratch"
# settings ALLOW_REMOUNT
settings() {
    cat <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
allow_remount = $1

[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
TOML
}

# suite NAME ARGUMENT... runs tests with the settings of that name, and says what failed.
suite() {
    local out=$scratch/$1.out
    (cd "$scratch" && "$TARGET/tools/bin/pjdfstest" -c "$1.toml" -p "$scratch/mnt" -s "$scratch/own/second" "${@:2}") \
        >"$out" 2>&1 && return 0
    grep -A4 'FAILED$' "$out" || tail -20 "$out"
    return 1
}

settings false >"$scratch/all.toml"
settings true >"$scratch/remount.toml"
# Those that remount are for themselves: others leave files open, which nobody can remount.
suite remount erofs
suite all
grep -h '^Summary:' "$scratch/remount.out" "$scratch/all.out"
sed -n 's/^\([a-z_:0-9]*\) *skipped$/\1/p' "$scratch/all.out" | grep -v '::erofs_' | sort >"$scratch/skipped"
sed -n 's/^\([a-z_:0-9]*\): .*/\1/p' "$root/tests/pjdfstest.skips" | sort >"$scratch/expected"
diff "$scratch/expected" "$scratch/skipped" || {
    echo "other tests are skipped than tests/pjdfstest.skips says"
    exit 1
}
if grep -q 'skipped$' "$scratch/remount.out"; then
    echo "tests of read-only mounts are skipped"
    exit 1
fi
"$lode" umount "$scratch/mnt" >/dev/null
"$lode" fsck -f "$scratch/own/pool" >/dev/null
echo "pjdfstest $version: the pool is sound afterwards"
