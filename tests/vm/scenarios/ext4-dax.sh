# A pool in a file on ext4 with DAX: MAP_SYNC, durable without msync.
# shellcheck shell=sh
#: nvdimm 512M
#: persistence mem-ctrl
dax_file_system ext4
life /mnt/dax/pool 128M
stated /mnt/dax/pool medium "dax file, on pmem0"
stated /mnt/dax/pool durability power
stated /mnt/dax/pool persistence "memory_controller: "
not_by_msync /mnt/dax/pool
