# A volume as a device of the kernel: direct I/O, a file system, discards; its server is ended, and killed while it writes.
# shellcheck shell=sh
#: nvdimm 256M
#: cpus 2
POOL=/mnt/dax/pool
DRIVER=/modules/ublk_drv.ko
dax_file_system ext4
mkdir -p /mnt/disk
lode mkfs $POOL --size 160M >/tmp/mkfs.log 2>&1 || die "lode mkfs: $(cat /tmp/mkfs.log)"
lode block create $POOL disk --size 96M --thin >/dev/null || die "no volume can be made"
lode block create $POOL small --size 4M --sector 512 >/dev/null || die "no volume of small sectors can be made"

# The volume's device is DEVICE, its server SERVER: `served NAME [OPTION]`, of the pool, or of what FROM says.
served() {
    : >/tmp/device
    lode block serve "${FROM:-$POOL}" "$@" --ublk >/tmp/device 2>/tmp/serve.log &
    SERVER=$!
    until [ -s /tmp/device ]; do
        kill -0 $SERVER 2>/dev/null || die "no device: $(cat /tmp/serve.log)"
        sleep 0.1
    done
    DEVICE=$(cat /tmp/device)
    [ -b "$DEVICE" ] || die "«$DEVICE» is no block device"
}

# Ends the server, which must leave nothing of the device.
gone() {
    kill "$SERVER"
    wait "$SERVER" || die "the server ended with $?: $(cat /tmp/serve.log)"
    [ ! -e "$DEVICE" ] || die "$DEVICE is there still"
    [ -z "$(ls /sys/class/ublk-char)" ] || die "of the device is left: $(ls /sys/class/ublk-char)"
}

# The same, and a pool that is whole.
ended() {
    gone
    lode fsck -n $POOL >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
}

told() {
    found=$(cat "/sys/block/${DEVICE#/dev/}/queue/$1")
    [ "$found" = "$2" ] || die "$1 of $DEVICE is «$found», not «$2»"
}

# Bytes of the pool that the first volume takes.
taken() { lode block list $POOL --json | sed -n 's/.*"allocated_bytes": *\([0-9]*\).*/\1/p' | head -1; }

rmmod ublk_drv || die "this kernel has no driver that could be left out"
refused 1 "ublk_drv is not there" lode block serve $POOL disk --ublk
insmod $DRIVER || die "the driver can't be loaded"

served disk
told logical_block_size 4096
told write_cache "write through"
told discard_max_bytes $((16 << 20))
[ "$(blockdev --getsize64 "$DEVICE")" -eq $((96 << 20)) ] || die "$DEVICE has $(blockdev --getsize64 "$DEVICE") bytes"
dd if=/dev/urandom of=/tmp/random bs=1M count=4 2>/dev/null
[ "$(find "/sys/block/${DEVICE#/dev/}/mq" -mindepth 1 -maxdepth 1 | wc -l)" -eq 2 ] || die "there is no queue for each CPU"
dd if=/tmp/random of="$DEVICE" bs=4k seek=100 oflag=direct 2>/tmp/dd.small &
dd if=/tmp/random of="$DEVICE" bs=1M seek=16 oflag=direct 2>/tmp/dd.log || die "direct writes: $(cat /tmp/dd.log)"
wait $! || die "direct writes: $(cat /tmp/dd.small)"
dd if="$DEVICE" of=/tmp/small bs=4k skip=100 count=1024 iflag=direct 2>/dev/null
dd if="$DEVICE" of=/tmp/large bs=1M skip=16 count=4 iflag=direct 2>/dev/null
cmp /tmp/random /tmp/small || die "direct reads of a block give other bytes back"
cmp /tmp/random /tmp/large || die "direct reads of 1 MiB give other bytes back"
say "direct I/O: what is written is read"

mkfs.ext4 -q "$DEVICE" >/tmp/mkfs.log 2>&1 || die "mkfs.ext4: $(cat /tmp/mkfs.log)"
mount -t ext4 "$DEVICE" /mnt/disk || die "it can't be mounted"
work /mnt/disk
# Ended while it is mounted: what the kernel has not yet written is written.
ended
umount /mnt/disk
served disk
e2fsck -p "$DEVICE" >/tmp/e2fsck.log 2>&1 || die "e2fsck: $(cat /tmp/e2fsck.log)"
mount -t ext4 "$DEVICE" /mnt/disk || die "it can't be mounted again"
worked /mnt/disk
say "a file system: worked on, its server ended while it was mounted, and all is there"

# One file after the other, each durable before it is acknowledged.
{
    n=0
    while dd if=/tmp/random of=/mnt/disk/file.$n bs=8k count=1 skip=$n conv=fsync 2>/dev/null; do
        echo $n >/tmp/acked
        n=$(((n + 1) % 500))
    done
} 2>/dev/null &
load=$!
until [ "$(cat /tmp/acked 2>/dev/null || echo 0)" -ge 20 ]; do
    kill -0 $load 2>/dev/null || die "it can't be worked on"
    sleep 0.1
done
kill -9 $SERVER
wait $SERVER 2>/dev/null || true
wait $load 2>/dev/null || true
acked=$(cat /tmp/acked)
umount /mnt/disk 2>/dev/null || umount -l /mnt/disk
while [ -e "$DEVICE" ]; do sleep 0.1; done
lode fsck -n $POOL >/tmp/fsck.log 2>&1 || die "fsck of the pool of a killed server: $(cat /tmp/fsck.log)"
before=$DEVICE
served disk
[ "$DEVICE" = "$before" ] || die "what was left of $before was not cleaned away: now it is $DEVICE"
mount -t ext4 "$DEVICE" /mnt/disk || die "it can't be mounted after its server was killed"
worked /mnt/disk
n=0
while [ $n -le "$acked" ]; do
    dd if=/tmp/random bs=8k count=1 skip=$n 2>/dev/null | cmp - /mnt/disk/file.$n || die "file.$n of $acked is lost"
    n=$((n + 1))
done
umount /mnt/disk || die umount
e2fsck -f -n "$DEVICE" >/tmp/e2fsck.log 2>&1 || die "e2fsck: $(cat /tmp/e2fsck.log)"
say "killed after $((acked + 1)) files were made durable: the device goes away, all of them are there"

blkdiscard "$DEVICE" || die "it can't be discarded"
dd if="$DEVICE" of=/tmp/large bs=1M skip=16 count=4 iflag=direct 2>/dev/null
dd if=/dev/zero bs=1M count=4 2>/dev/null | cmp - /tmp/large || die "what is discarded is no zeros"
ended
[ "$(taken)" -le $((2 << 20)) ] || die "$(taken) bytes are taken by what was discarded"
say "discarded: $(taken) bytes are taken"

served small --read-only
told logical_block_size 512
told physical_block_size 4096
[ "$(blockdev --getro "$DEVICE")" = 1 ] || die "it is not read-only"
if dd if=/tmp/random of="$DEVICE" bs=512 count=1 oflag=direct 2>/dev/null; then die "it was written to"; fi
ended

# Of a mounted pool, beside its files: what is written to the device is in the volume's file, and the other way round.
mkdir -p /mnt/pool
lode mount $POOL /mnt/pool >/tmp/mount.log 2>&1 || die "lode mount: $(cat /tmp/mount.log)"
FROM=/mnt/pool
served disk
dd if=/tmp/random of="$DEVICE" bs=1M seek=8 oflag=direct 2>/dev/null || die "it can't be written"
dd if=/mnt/pool/.lode/volumes/disk bs=1M skip=8 count=4 2>/dev/null | cmp - /tmp/random || die "the volume's file has other bytes"
refused 6 "served" lode block attach /mnt/pool disk
gone
dd if=/tmp/random of=/mnt/pool/.lode/volumes/disk bs=1M seek=20 conv=notrunc 2>/dev/null || die "the volume's file can't be written"
served disk --read-only
dd if="$DEVICE" bs=1M skip=20 count=4 iflag=direct 2>/dev/null | cmp - /tmp/random || die "the device has other bytes"
gone
lode umount /mnt/pool || die "lode umount"
lode fsck -n $POOL >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
say "served from a mount: the device and the volume's file are one"
rmmod ublk_drv || die "somebody has the driver still"
