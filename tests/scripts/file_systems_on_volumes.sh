#!/usr/bin/env bash
# Other file systems on volumes of a mounted pool, by loop devices: each is made, holds a tree of real sources, is looked at
# by its own fsck, and has the same tree when pool and volume were away in between. Volumes of both sizes of sectors, thin
# ones and others, one with partitions, and a pool whose data has checksums.
set -euo pipefail
self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")
# shellcheck source=scripts/lib.sh
source "$(dirname "$self")/../../scripts/lib.sh"
LODE=${LODE:-$TARGET/${LODE_BUILT:-debug}/lode}

skip() {
    echo "skipped: $*"
    exit 0
}

is_root || skip "file systems on volumes: only root makes loop devices and mounts them"
[ -e /dev/loop-control ] || modprobe -q loop || skip "file systems on volumes: the kernel has no loop devices"
(install_missing losetup:mount sfdisk:fdisk fstrim:util-linux mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs \
    mkfs.btrfs:btrfs-progs partx:util-linux python3:python3) || skip "file systems on volumes: their programs can't be installed here"
# Mounts of its own, where that is possible: nobody else looks into them, and keeps them busy.
if [ "${1:-}" != inside ] && unshare --mount --propagation private true 2>/dev/null; then
    exec unshare --mount --propagation private bash "$self" inside
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-volumes.XXXXXX")
medium=$scratch
memory=${LODE_TEST_SCRATCH:-/dev/shm}
[ ! -w "$memory" ] || medium=$(mktemp -d "$memory/lode-volumes.XXXXXX")
pool=$medium/pool dir=$scratch/mnt at=$scratch/at
mkdir "$dir" "$at" "$medium/tree"

finish() {
    local code=$? device
    umount "$at" 2>/dev/null || true
    end_partitions || true
    while read -r device; do losetup -d "$device" || true; done \
        < <(losetup --noheadings --output NAME,BACK-FILE | awk -v dir="$scratch" 'index($2, dir) == 1 { print $1 }')
    "$LODE" umount "$dir" >/dev/null 2>&1 || umount -l "$dir" 2>/dev/null || true
    rm -rf --one-file-system "$scratch" "$medium"
    [ "$code" -eq 0 ] || echo "file systems on volumes: failed${failed_at:+ at $failed_at}" >&2
}
loops=()
trap finish EXIT
set -o errtrace
trap 'failed_at="line $LINENO: $BASH_COMMAND"' ERR

# quietly COMMAND...: what it says only counts if it fails.
quietly() {
    timeout 120 "$@" >"$scratch/out" 2>&1 || {
        tail -40 "$scratch/out" >&2
        die "failed: $*"
    }
}

# patiently COMMAND ...: what is in use a moment longer (whoever looks at every new device) is not for ever.
patiently() {
    local tries
    for tries in {1..40}; do
        "$@" >"$scratch/out" 2>&1 && return 0
        sleep 0.1
    done
    die "after $tries tries: $*: $(cat "$scratch/out")"
}

# Real sources: the C headers of this machine and crates, by name, until there are enough.
gather() {
    local from=("${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/* /usr/include/* /usr/share/*) one kib=0 size
    for one in "${from[@]}"; do
        [ $kib -lt 25000 ] || break
        [ -d "$one" ] || continue
        size=$(du -sk "$one" | cut -f1)
        [ "$size" -lt 4000 ] || continue
        kib=$((kib + size))
        cp -a "$one" "$medium/tree/"
    done
    ln -s "no/such/place" "$medium/tree/link"
    head -c 5000001 /dev/urandom >"$medium/tree/random"
    tar -cf "$medium/tar" -C "$medium/tree" .
    files=$(find "$medium/tree" -type f | wc -l)
    [ "$files" -ge 2000 ] || die "there are only $files files to be copied"
}

# has KIND: whether the kernel knows that file system.
has() {
    grep -qw "$1" /proc/filesystems || modprobe -q "$1" || {
        echo "skipped: file systems on volumes: the kernel has no $1"
        return 1
    }
}

make() {
    case $1 in
    ext*) quietly "mkfs.$1" -q -F "$2" ;;
    *) quietly "mkfs.$1" -q -f "$2" ;;
    esac
}

# sound KIND DEVICE: as its own fsck sees it.
sound() {
    case $1 in
    ext*) quietly e2fsck -fn "$2" ;;
    xfs) quietly xfs_repair -n "$2" ;;
    btrfs) quietly btrfs check --check-data-csum "$2" ;;
    esac
}

# fill KIND DEVICE: makes the file system, which discards all of the device first, and puts the tree on it.
fill() {
    make "$1" "$2"
    mount -t "$1" "$2" "$at"
    tar -xf "$medium/tar" -C "$at"
    patiently umount "$at"
}

# same KIND DEVICE: nothing of the tree is another one; then half of it goes, and comes again.
same() {
    sound "$1" "$2"
    mount -t "$1" "$2" "$at"
    diff -r --no-dereference --exclude lost+found "$medium/tree" "$at" >"$scratch/diff" ||
        { head -20 "$scratch/diff" && die "$1 on $2 has another tree"; }
    rm -r "$at"/[a-m]*
    fstrim "$at" 2>"$scratch/out" || grep -q "not supported" "$scratch/out" || die "fstrim: $(cat "$scratch/out")"
    tar -xf "$medium/tar" -C "$at"
    patiently umount "$at"
    mount -t "$1" "$2" "$at"
    diff -r --no-dereference --exclude lost+found "$medium/tree" "$at" >"$scratch/diff" ||
        { head -20 "$scratch/diff" && die "$1 on $2 has another tree the second time"; }
    patiently umount "$at"
    sound "$1" "$2"
}

# facts NAME: what the list of volumes says of one.
facts() {
    read -r sector bytes has thin < <("$LODE" block list "$dir" --json | python3 -c 'import json, sys
one = next(one for one in json.load(sys.stdin)["volumes"] if one["name"] == sys.argv[1])
print(one["sector"], one["bytes"], one["allocated_bytes"], one["thin"])' "$1")
}

# attach NAME SECTOR: sets `device`; its blocks are the volume's sectors.
attach() {
    device=$("$LODE" block attach "$dir" "$1" --partscan)
    [ "$(blockdev --getss "$device")" = "$2" ] || die "$device has other blocks than sectors of $2 bytes"
}

detach() { quietly "$LODE" block detach "$dir" "$1"; }

# keeps_space NAME: what is discarded of a volume that is not thin does not go.
keeps_space() {
    local sector bytes has thin
    facts "$1"
    case $thin in
    False) [ "$has" -ge "$bytes" ] || die "$1 has $has bytes, not $bytes, after discards" ;;
    *) [ "$has" -lt "$bytes" ] || die "$1 is thin and has $has bytes after discards" ;;
    esac
}

# partitions DEVICE: sets `parts` to those of its two partitions: the kernel's, by itself or told of them, or else loop devices
# of where they are.
partitions() {
    local number start size
    parts=() loops=()
    [ -b "$1p1" ] || partx --add "$1" 2>/dev/null || true
    for number in 1 2; do
        if [ -b "$1p$number" ]; then
            parts+=("$1p$number")
            continue
        fi
        read -r start size < <(sfdisk --json "$1" | python3 -c 'import json, sys
table = json.load(sys.stdin)["partitiontable"]
one, sector = table["partitions"][int(sys.argv[1]) - 1], table["sectorsize"]
print(one["start"] * sector, one["size"] * sector)' $number)
        loops+=("$(losetup --find --show --sector-size "$(blockdev --getss "$1")" --offset "$start" \
            --sizelimit "$size" "$1")")
        parts+=("${loops[-1]}")
    done
}

end_partitions() {
    [ ${#loops[@]} -eq 0 ] || losetup -d "${loops[@]}"
    loops=()
}

up() { quietly "$LODE" mount "$pool" "$dir"; }

down() {
    patiently "$LODE" umount "$dir"
    quietly "$LODE" fsck -n "$pool"
}

# whole PROTECTION VOLUME...: file systems on whole volumes, each as `NAME KIND SIZE SECTOR [--thin]`.
whole() {
    local protection=$1 line name kind size sector thin began=$SECONDS
    shift
    quietly "$LODE" mkfs "$pool" --force --size 2G --protect "$protection"
    up
    for line in "$@"; do
        read -r name kind size sector thin <<<"$line"
        # shellcheck disable=SC2086
        quietly "$LODE" block create "$dir" "$name" --size "$size" --sector "$sector" $thin
        attach "$name" "$sector"
        fill "$kind" "$device"
        detach "$name"
        keeps_space "$name"
    done
    down
    up
    for line in "$@"; do
        read -r name kind size sector thin <<<"$line"
        attach "$name" "$sector"
        same "$kind" "$device"
        detach "$name"
        keeps_space "$name"
        echo "$kind on a volume of $size${thin:+, thin}, sectors of $sector, protection $protection: $files files there and back"
    done
    down
    echo "protection $protection: $((SECONDS - began)) s"
}

# divided FIRST SECOND SECTOR: file systems on partitions of one volume.
divided() {
    local first=$1 second=$2 sector=$3
    quietly "$LODE" mkfs "$pool" --force --size 1G
    up
    quietly "$LODE" block create "$dir" parts --size 500M --sector "$sector"
    attach parts "$sector"
    quietly sfdisk --quiet "$device" <<<"label: gpt
size=120M
size=+"
    partitions "$device"
    fill "$first" "${parts[0]}"
    fill "$second" "${parts[1]}"
    end_partitions
    detach parts
    down
    up
    attach parts "$sector"
    quietly sfdisk --verify "$device"
    partitions "$device"
    same "$first" "${parts[0]}"
    same "$second" "${parts[1]}"
    echo "$first on ${parts[0]}, $second on ${parts[1]}: partitions of a volume, sectors of $sector, there and back"
    end_partitions
    detach parts
    down
}

# A pool that gets full: what a loop device says it has written is there, the rest is an error.
full_pool() {
    local piece errors=0 bytes=1536K
    quietly "$LODE" mkfs "$pool" --force --size 32M
    up
    quietly "$LODE" block create "$dir" thin --size 48M --thin --sector 512
    attach thin 512
    head -c 48M /dev/urandom >"$medium/random"
    for piece in {0..31}; do
        if dd if="$medium/random" of="$device" bs=$bytes skip="$piece" seek="$piece" count=1 oflag=direct \
            status=none 2>"$scratch/out"; then
            dd if="$device" bs=$bytes skip="$piece" count=1 iflag=direct status=none |
                cmp - <(dd if="$medium/random" bs=$bytes skip="$piece" count=1 status=none) ||
                die "piece $piece is not what was written, and nobody has said so"
        else
            grep -q 'No space left' "$scratch/out" || die "piece $piece: $(cat "$scratch/out")"
            errors=$((errors + 1))
        fi
    done
    [ $errors -gt 0 ] || die "48 MiB fit into a pool of 32 MiB"
    detach thin
    down
    echo "a thin volume in a full pool: $errors pieces of 32 are errors, the others are there"
}

gather
full_pool
cases=() full=()
if has ext2; then cases+=("one ext2 120M 512"); fi
if has ext4; then cases+=("two ext4 160M 4096 --thin") full+=("two ext4 120M 512"); fi
if has xfs; then cases+=("three xfs 320M 4096") full+=("three xfs 320M 4096 --thin"); fi
if has btrfs; then cases+=("four btrfs 256M 512 --thin") full+=("four btrfs 256M 4096"); fi
whole none "${cases[@]}"
whole full "${full[@]}"
if has ext4 && has xfs; then divided ext4 xfs 4096; fi
if has ext2 && has btrfs; then divided ext2 btrfs 512; fi
