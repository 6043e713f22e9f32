# Shared by the scripts: set-up of the machine, and where things are. Sourced, not run.
# shellcheck shell=bash

LODE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$LODE_ROOT" || exit 1
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# shellcheck disable=SC2034
TARGET=${CARGO_TARGET_DIR:-$LODE_ROOT/target}

say() { printf '\n== %s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
is_root() { [ "$(id -u)" -eq 0 ]; }

# install_missing COMMAND:PACKAGE ... installs the packages whose commands are not there,
# or says exactly what to install.
install_missing() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        die "these are missing, install them first: ${missing[*]} (named as Debian's packages)"
    fi
    if ! is_root; then
        die "these packages are missing, and only root can install them:
  sudo apt-get install -y ${missing[*]}"
    fi
    say "Installing ${missing[*]}"
    # (One script after the other: dpkg lets only one in.)
    (
        flock 9
        # (What a package starts does not keep the lock.)
        apt-get update -qq 9>&-
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null 9>&-
    ) 9>/run/lock/lode-packages
}

# Rust itself is not installed: where from is the user's choice.
need_cargo() {
    if ! command -v cargo >/dev/null 2>&1 && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH=$HOME/.cargo/bin:$PATH
    fi
    command -v cargo >/dev/null 2>&1 ||
        die "cargo is missing: install Rust 1.89 or newer, see https://rustup.rs"
}

need_fuse() {
    if [ ! -e /dev/fuse ] && is_root; then
        modprobe fuse 2>/dev/null || true
    fi
    [ -e /dev/fuse ] ||
        die "there is no /dev/fuse: load the kernel's module (modprobe fuse), or allow it in this container (--device /dev/fuse --cap-add SYS_ADMIN)"
    is_root && return 0
    install_missing fusermount3:fuse3
    if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
        die "/dev/fuse is not open to you: ask root for chmod 0666 /dev/fuse"
    fi
}

# Whether something is mounted at a directory, be its server alive or not.
is_mounted() { grep -qF -- " ${1// /\\040} " /proc/self/mountinfo; }

# Whether a process runs; one that has ended and that nobody has asked about yet does not.
is_alive() { [ -r "/proc/$1/stat" ] && ! grep -q ') Z ' "/proc/$1/stat" 2>/dev/null; }

# server_pid DIR: the process that serves a mount.
server_pid() {
    "$LODE" info "$1" --json | sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' | head -1
}
