# A machine boots from a volume that is served by NBD, and has its root on it: what it writes there is in the volume when the
# pool is opened again, and the pool is sound.
# shellcheck shell=sh
#: volume 64M
#: memory 512M
grep -q '^/dev/[a-z0-9]* / ext4 rw' /proc/mounts || grep -q '^/dev/root / ext4 rw' /proc/mounts ||
    die "the root is not on the disk: $(cat /proc/mounts)"
say "root: $(sed -n 's/^\(.*\) \/ ext4 .*/\1/p' /proc/mounts), $(cat /sys/block/vda/size) sectors"
mkdir /files
for number in 1 2 3 4 5 6 7 8 9 10; do
    dd if=/dev/urandom of=/files/$number bs=50k count=$number 2>/dev/null || die "nothing can be written"
done
sync
cat /files/* >/written
rm -r /files
sum=$(sha256sum </written)
sync
echo 3 >/proc/sys/vm/drop_caches
[ "$(sha256sum </written)" = "$sum" ] || die "it reads something else than it has written"
mount -o remount,ro / || die "the root can't be made read-only"
say "written ${sum%% *}"
