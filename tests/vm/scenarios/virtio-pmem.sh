# A pool on virtio-pmem: DAX, but no MAP_SYNC, so it is kept by msync, and says so.
# shellcheck shell=sh
#: virtio-pmem 256M
mkdir -p /mnt/dax
mkfs.ext4 -q -b 4096 /dev/pmem0
mount -t ext4 -o dax /dev/pmem0 /mnt/dax
life /mnt/dax/pool 64M
stated /mnt/dax/pool medium "file, on pmem0; DAX, but without MAP_SYNC"
stated /mnt/dax/pool flush msync
stated /mnt/dax/pool durability power
