# Blocks that Linux lists as bad are poison: known before they are loaded, met by the load that fails. Linux gives no byte of
# a page with one: file data in it is lost, metadata comes back from its copy and is written again.
# shellcheck shell=sh
#: memory 2G
#: reserved 512M!1G
mkdir -p /mnt/pool /mnt/dax /none
POOL=/mnt/dax/pool
{ mkfs.ext4 -q -b 4096 /dev/pmem0 && mount -o dax /dev/pmem0 /mnt/dax; } || die "no DAX file system on /dev/pmem0"

# Lists the block as bad that a byte of the pool is in.
bad() {
    sync
    sector=$(filefrag -v -b512 "$POOL" | tr -d ' ' | awk -F '[:.]+' -v at=$(($1 / 512)) \
        '$1 ~ /^[0-9]+$/ && $2 <= at && at <= $3 { print $4 + at - $2; exit }')
    [ -n "$sector" ] || die "the file system does not tell where the pool is: $(filefrag -v -b512 $POOL)"
    echo "$sector 1" >/sys/block/pmem0/badblocks || die "the kernel takes no list of bad blocks"
    stated $POOL "BAD BLOCKS" "512 bytes"
}

# The first number of this name in what the dump of the file says of its `$2`.
place() {
    lode dump $POOL /file --json | tr -d '\n' | sed "s/.*\"$2\"//" | grep -o "\"$1\": *[0-9]*" | head -1 | grep -o '[0-9]*$'
}

mounted() {
    lode --sysfs-root "$1" mount $POOL /mnt/pool >/tmp/mount.log 2>&1 || die "mount: $(cat /tmp/mount.log)"
}

unmounted() {
    lode umount /mnt/pool >/dev/null || die "umount: $(cat /tmp/mount.log)"
}

# A new pool at this level, with a file.
filled() {
    rm -f $POOL
    lode mkfs $POOL --size 64M --protect "$1" >/dev/null 2>&1 || die mkfs
    mounted /sys
    dd if=/dev/urandom of=/mnt/pool/file bs=64k count=16 2>/dev/null
    sum=$(sha256sum </mnt/pool/file)
    unmounted
}

filled none
bad $(($(place pool_offset extents) + 8192))
# Once with the list, once without: then the load itself meets it.
for root in /sys /none; do
    mounted "$root"
    if dd if=/mnt/pool/file bs=4k skip=2 count=1 of=/tmp/page 2>/dev/null; then die "bad memory was read"; fi
    dd if=/mnt/pool/file bs=4k skip=3 of=/tmp/rest 2>/dev/null || die "the rest can't be read"
    say "file data, list at $root: EIO, for that page alone"
    unmounted
done
mounted /sys
dd if=/dev/zero of=/mnt/pool/file bs=4k seek=2 count=1 conv=notrunc 2>/dev/null || die "it can't be written"
dd if=/mnt/pool/file of=/dev/null 2>/dev/null || die "it can't be read when it was written"
unmounted
say "file data: written again, to another page"
# (Written over, it is forgotten: the next pool has none.)
dd if=/dev/zero of=$POOL bs=1M count=64 conv=notrunc oflag=direct 2>/dev/null
[ -z "$(cat /sys/block/pmem0/badblocks)" ] || die "still listed: $(cat /sys/block/pmem0/badblocks)"

filled full
for what in "/sys: a superblock" "/none: a superblock" "/sys: a log" "/none: a log"; do
    root=${what%%:*} what=${what#*: }
    at=0
    [ "$what" = "a superblock" ] || at=$(place at records)
    bad "$at"
    mounted "$root"
    [ "$(sha256sum </mnt/pool/file)" = "$sum" ] || die "the file is not what it was"
    echo more >>/mnt/pool/file || die "its log can't go on"
    sum=$(sha256sum </mnt/pool/file)
    lode scrub /mnt/pool >/tmp/scrub.log 2>&1 || [ $? -eq 1 ] || die "scrub: $(cat /tmp/scrub.log)"
    unmounted
    lode fsck -n $POOL >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
    [ -z "$(cat /sys/block/pmem0/badblocks)" ] || die "still listed: $(cat /sys/block/pmem0/badblocks)"
    say "$what at $at, list at $root: back from its copy, and written again"
done
