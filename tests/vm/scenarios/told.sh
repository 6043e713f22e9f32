# What Linux tells of the memory below a DAX device is heeded: blocks that are bad, how often it has lost what it was
# given, whether it is persistent at all. (Emulated NVDIMMs tell none of that: the copy of sysfs does that is made here.)
# shellcheck shell=sh
#: nvdimm 256M
namespace devdax
POOL=/dev/dax0.0
TOLD=/told
mkdir -p /mnt/pool $TOLD/dev/char $TOLD/bus/dax
device=$(readlink -f /sys/bus/dax/devices/dax0.0)
region=${device%%/region0/*}/region0
here=$TOLD${device#/sys}
REGION=$TOLD${region#/sys}
MODULE=$REGION/../nmem0/nfit
mkdir -p "$here" "$REGION" "$REGION/../nmem0/nfit"
cp "$device/size" "$device/resource" "$here" || die "sysfs does not tell where $device is"
cp "$region/resource" "$region/mapping0" "$REGION" || die "sysfs does not tell of $region"
ln -s $TOLD/bus/dax "$here/subsystem"
ln -s "$here" "$TOLD/dev/char/$(cat "$device/dev")"
echo memory_controller >"$REGION/persistence_domain"
echo 8089-a2-01 >"$MODULE/id"
echo 3 >"$MODULE/dirty_shutdown"
: >"$REGION/badblocks"

mounted() {
    lode --sysfs-root $TOLD mount $POOL /mnt/pool >/tmp/mount.log 2>&1 || die "mount: $(cat /tmp/mount.log)"
}

unmounted() {
    lode umount /mnt/pool >/dev/null || die "umount: $(cat /tmp/mount.log)"
}

# What is said of the pool, by that sysfs: `told KEY VALUE`.
told() {
    found=$(lode --sysfs-root $TOLD info $POOL | sed -n "s/^$1  *//p")
    case $found in
    "$2"*) say "$1: $found" ;;
    *) die "$1 is «$found», not «$2»" ;;
    esac
}

echo 1048576 >"$here/size"
refused 2 "too small: 1048576 bytes, less than one of the pages of 2097152" lode --sysfs-root $TOLD mkfs $POOL
echo $((3 * 1048576)) >"$here/size"
refused 2 "3145728 bytes are no multiple of that, 2097152 are" lode --sysfs-root $TOLD mkfs $POOL
cp "$device/size" "$here"
# Linux makes DAX devices of memory that is not persistent, too: they are part of no region of such.
hmem=$TOLD/devices/platform/hmem.0/dax0.0
mkdir -p "$hmem"
cp "$here/size" "$hmem"
ln -s $TOLD/bus/dax "$hmem/subsystem"
ln -sfn "$hmem" "$TOLD/dev/char/$(cat "$device/dev")"
lode --sysfs-root $TOLD mkfs $POOL >/dev/null 2>&1 || die mkfs
told durability "process crash"
told medium "dax device, on dax0.0; nothing tells that it is persistent"
ln -sfn "$here" "$TOLD/dev/char/$(cat "$device/dev")"
lode --sysfs-root $TOLD mkfs $POOL --force >/dev/null 2>&1 || die mkfs
told durability power
told persistence "memory_controller: what was flushed survives"
told "dirty shutdowns" "3 so far"
mounted
dd if=/dev/urandom of=/mnt/pool/file bs=64k count=16 2>/dev/null
unmounted

# Where caches survive nothing is flushed, and it is as durable; else it is.
for domain in cpu_cache memory_controller; do
    echo $domain >"$REGION/persistence_domain"
    told persistence "$domain"
    mounted
    for of in $POOL /mnt/pool; do
        flush=$(lode --sysfs-root $TOLD info "$of" | sed -n 's/^flush  *//p')
        class=$(lode --sysfs-root $TOLD info "$of" | sed -n 's/^durability  *//p')
        case $domain/$flush in
        cpu_cache/*+none* | memory_controller/*+clwb* | memory_controller/*+clflush*) ;;
        *) die "$domain: $of is kept by «$flush»" ;;
        esac
        case $class in
        power*) say "$domain: $of: $flush, durability $class" ;;
        *) die "$domain: $of has the class «$class»" ;;
        esac
    done
    cp /mnt/pool/file "/mnt/pool/$domain" || die "a file can't be copied"
    unmounted
    lode fsck -n $POOL >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
done

# The device begins behind what the kernel keeps in its region.
start=$(($(cat "$here/resource") - $(cat "$REGION/resource")))
at=$(lode dump $POOL /file --json | tr -d '\n' | sed 's/.*"extents"//' | grep -o '"pool_offset": *[0-9]*' | head -1 | grep -o '[0-9]*$')
echo "$(((start + at + 8192) / 512)) 1" >"$REGION/badblocks"
told "BAD BLOCKS" "512 bytes"
mounted
if dd if=/mnt/pool/file bs=4k skip=2 count=1 of=/tmp/page 2>/dev/null; then die "bad memory was read"; fi
dd if=/mnt/pool/file bs=4k count=2 of=/tmp/rest 2>/dev/null || die "what is before it can't be read"
dd if=/mnt/pool/file bs=4k skip=3 of=/tmp/rest 2>/dev/null || die "what is behind it can't be read"
dd if=/dev/zero of=/mnt/pool/file bs=4k seek=2 count=1 conv=notrunc 2>/dev/null || die "it can't be written"
cat /mnt/pool/file >/tmp/all || die "it can't be read when it was written"
unmounted
say "a block listed at $((start + at + 8192)) of the region: EIO for that page alone, written again to another one"

for shutdowns in 5 5; do
    echo $shutdowns >"$MODULE/dirty_shutdown"
    mounted
    log=$(lode info /mnt/pool --json | sed -n 's/.*"losses": *\([0-9]*\).*/\1/p' | head -1)
    say "dirty shutdowns: 3, then $shutdowns: the opening heard of $log"
    heard="${heard:-}$log "
    cmp /mnt/pool/file /tmp/all || die "the file is not what it was"
    unmounted
done
[ "$heard" = "2 0 " ] || die "what was lost was heard of as «$heard», not once"
lode --sysfs-root $TOLD fsck -n $POOL >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
