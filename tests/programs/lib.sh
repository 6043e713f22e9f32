# Shared by the tests of real programs. Sourced, not run.
# A program does the same on an ext4 and on a pool, both mounted at $WORK, one after the other, so
# that even what holds a path comes out the same. Or it runs on a pool whose server is killed.
# shellcheck shell=bash

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
PROGRAMS=$LODE_ROOT/tests/programs
unset CDPATH GIT_DIR GIT_WORK_TREE
export LC_ALL=C.UTF-8 TZ=UTC

skip() {
    echo "skipped: $*"
    exit 0
}

# by_size QUICK ALL: the one for `make test`, or the one for `make test-all`.
by_size() { if [ "${LODE_PROGRAMS:-quick}" = all ]; then echo "$2"; else echo "$1"; fi; }

# between LOW HIGH: seconds, at random between two numbers of milliseconds.
between() {
    local ms=$(($1 + RANDOM % ($2 - $1)))
    printf '%d.%03d' $((ms / 1000)) $((ms % 1000))
}

# let_go_of_others: what others have mounted just now is mounted here as well, and its server does not end before this does.
let_go_of_others() {
    local point
    awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r point; do
        umount -l "$(printf '%b' "$point")" 2>/dev/null || true
    done
    export LODE_OWN_MOUNTS=alone
}

# prepare NAME SIZE [COMMAND:PACKAGE ...]: what every test needs; file systems get that SIZE.
prepare() {
    NAME=$1 SIZE=$2
    is_root || skip "$NAME: compared with an ext4 on a loop device, which only root can mount"
    # Mounts of its own, where that is possible: nobody else looks into them, and keeps them busy.
    if [ -z "${LODE_OWN_MOUNTS:-}" ] && unshare --mount --propagation private true 2>/dev/null; then
        export LODE_OWN_MOUNTS=yes
        exec unshare --mount --propagation private bash "$PROGRAMS/$(basename "$0")"
    fi
    [ "${LODE_OWN_MOUNTS:-}" != yes ] || let_go_of_others
    (install_missing "${@:3}" mkfs.ext4:e2fsprogs python3:python3) ||
        skip "$NAME: these can't be installed here: ${*:3}"
    need_fuse
    local memory
    if [ -n "${LODE_BUILT:-}" ]; then
        LODE=${LODE:-$TARGET/$LODE_BUILT/lode}
    elif [ -z "${LODE:-}" ]; then
        need_cargo
        cargo build --release --quiet --package lode-cli --bin lode
        LODE=$TARGET/release/lode
    fi
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/lode-$NAME.XXXXXX")
    MEDIUM=$SCRATCH
    trap finish EXIT
    set -o errtrace
    trap 'FAILED_AT="line $LINENO: $BASH_COMMAND"' ERR
    memory=${LODE_TEST_SCRATCH:-/dev/shm}
    [ ! -w "$memory" ] || MEDIUM=$(mktemp -d "$memory/lode-$NAME.XXXXXX")
    # Servers with users of their own come by here.
    chmod 755 "$SCRATCH"
    WORK=$SCRATCH/work
    mkdir "$WORK"
    STARTED=$SECONDS
}

finish() {
    local code=$? child place
    # Whatever reads what is said may be gone.
    trap '' PIPE
    for child in $(jobs -pr); do
        kill -9 "$child" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    cd /
    for place in "$WORK" "$SCRATCH/other"; do
        is_mounted "$place" || continue
        { "$LODE" umount "$place" || "$LODE" umount --lazy "$place" || umount -l "$place"; } >/dev/null 2>&1 || true
    done
    if [ "$code" -ne 0 ]; then
        echo "$NAME: failed${FAILED_AT:+ at $FAILED_AT}" >&2
        if [ -e "$MEDIUM/pool" ]; then
            cp --sparse=always "$MEDIUM/pool" "$TARGET/program-$NAME.pool" &&
                echo "its pool is kept as $TARGET/program-$NAME.pool" >&2
        fi
    fi
    rm -rf --one-file-system "$SCRATCH" "$MEDIUM"
}

# within LOW NUMBER HIGH
within() { [ "$1" -le "$2" ] && [ "$2" -le "$3" ]; }

# size_of FILE: in bytes; of one that is not there, 0.
size_of() { stat -c %s "$1" 2>/dev/null || echo 0; }

# until_noted PID FILE SIZE: waits until a writer has noted something after that size.
until_noted() {
    until [ "$(size_of "$2")" -gt "$3" ]; do
        is_alive "$1" || die "$NAME: a writer ended before it had done anything"
        sleep 0.02
    done
}

# kill_child PID: ends a program that this script started, without a word of the shell about it.
kill_child() {
    kill -9 "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

done_well() { echo "$NAME: $*; $((SECONDS - STARTED)) s"; }

# ext4_up: an empty ext4 at $WORK, or, where loop devices are not to be had, a directory.
ext4_up() {
    REFERENCE="ext4 on a loop device"
    truncate -s "$SIZE" "$MEDIUM/ext4"
    mkfs.ext4 -q -F -b 4096 "$MEDIUM/ext4"
    if mount -o loop,acl,user_xattr "$MEDIUM/ext4" "$WORK" 2>/dev/null; then
        rmdir "$WORK/lost+found"
    else
        rm "$MEDIUM/ext4"
        REFERENCE="a directory of $(stat -f -c %T "$WORK") (there is no loop device)"
    fi
}

# patiently COMMAND ...: unmounts; whoever looks into every mount of the machine is gone in a moment.
patiently() {
    local tries
    for tries in {1..40}; do
        "$@" >"$SCRATCH/umount.log" 2>&1 && return 0
        sleep 0.25
    done
    die "$NAME: after $tries tries: $(cat "$SCRATCH/umount.log")"
}

ext4_down() {
    if is_mounted "$WORK"; then
        patiently umount "$WORK"
        rm "$MEDIUM/ext4"
    else
        rm -rf "${WORK:?}"
        mkdir "$WORK"
    fi
}

# lode_up: an empty pool at $WORK, mounted for all users.
lode_up() {
    rm -f "$MEDIUM/pool"
    "$LODE" mkfs "$MEDIUM/pool" --size "$SIZE" >/dev/null
    "$LODE" mount "$MEDIUM/pool" "$WORK" -o allow_other >/dev/null
}

lode_down() {
    patiently "$LODE" umount "$WORK"
    "$LODE" fsck -n "$MEDIUM/pool" >/dev/null || die "$NAME: fsck finds the pool damaged"
}

# kill_lode: the pool's server dies, as by a crash of it.
kill_lode() {
    local pid
    pid=$(server_pid "$WORK")
    kill -9 "$pid"
    while is_alive "$pid"; do sleep 0.01; done
}

# lode_again: mounts what a kill left. It has to be sound as it is, before any recovery.
lode_again() {
    "$LODE" fsck -n "$MEDIUM/pool" >/dev/null || die "$NAME: fsck finds the pool damaged after a kill"
    "$LODE" mount "$MEDIUM/pool" "$WORK" -o allow_other >/dev/null
}

# on_both FUNCTION: runs it in $WORK on ext4 and on Lode. What it prints and the tree that it leaves
# have to be the same. What it says on descriptor 3 is for people.
on_both() {
    local place
    for place in ext4 lode; do
        "${place}_up"
        cd "$WORK" || exit 1
        "$1" >"$SCRATCH/$place.said"
        cd "$LODE_ROOT" || exit 1
        python3 -B "$PROGRAMS/listing.py" "${LISTING[@]}" "$WORK" >"$SCRATCH/$place.tree"
        "${place}_down"
    done 3>&1
    diff "$SCRATCH/ext4.said" "$SCRATCH/lode.said" >"$SCRATCH/diff" ||
        { head -40 "$SCRATCH/diff" && die "$NAME: it says something else on Lode (>) than on $REFERENCE (<)"; }
    diff "$SCRATCH/ext4.tree" "$SCRATCH/lode.tree" >"$SCRATCH/diff" ||
        { head -40 "$SCRATCH/diff" && die "$NAME: it leaves other files on Lode (>) than on $REFERENCE (<)"; }
    echo "$NAME: $1: the same on $REFERENCE and on Lode, $(wc -l <"$SCRATCH/lode.tree") files"
}
# Options of listing.py.
LISTING=()
