# Media that can hold no pool are refused, clearly.
# shellcheck shell=sh
#: nvdimm 256M
namespace raw
refused 2 "a block device can't be mapped" lode mkfs /dev/pmem0
refused 3 "a block device can't be mapped" lode mount /dev/pmem0 /mnt
refused 3 "a block device can't be mapped" lode info /dev/pmem0
refused 2 "too small" lode mkfs /tmp/small --size 32K
truncate -s 16K /tmp/small
refused 3 "too small" lode mount --foreground /tmp/small /mnt
namespace devdax
refused 2 "no multiple" lode mkfs /dev/dax0.0 --size 3M
refused 2 "at most" lode mkfs /dev/dax0.0 --size 100G
mkdir -p /none
refused 1 "nothing of this device is in /none" lode --sysfs-root /none mkfs /dev/dax0.0
lode mkfs /dev/dax0.0 >/dev/null 2>&1 || die mkfs
mkdir -p /mnt/pool
lode mount /dev/dax0.0 /mnt/pool >/dev/null
refused 6 "is mounted at" lode mkfs --force /dev/dax0.0
refused 6 "is mounted at" lode mount /dev/dax0.0 /mnt
refused 8 "is mounted" lode fsck /dev/dax0.0
lode umount /mnt/pool
