# A pool in a file on XFS with DAX: MAP_SYNC, durable without msync.
# shellcheck shell=sh
#: nvdimm 640M
dax_file_system xfs
life /mnt/dax/pool 128M
stated /mnt/dax/pool medium "dax file, on pmem0"
stated /mnt/dax/pool durability power
not_by_msync /mnt/dax/pool
