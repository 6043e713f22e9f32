# A pool in an ordinary file, of a file system without DAX: kept by msync.
# shellcheck shell=sh
#: nvdimm 256M
namespace raw
mkdir -p /mnt/disk
mkfs.ext4 -q -b 4096 /dev/pmem0
mount -t ext4 /dev/pmem0 /mnt/disk
life /mnt/disk/pool 64M
stated /mnt/disk/pool flush msync
