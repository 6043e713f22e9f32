# The plug is pulled while sectors of a volume are stamped by NBD: each is whole, not older than what was answered, what FUA or
# FLUSH promised of it, and not newer than what had begun.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 5
dax_file_system ext4
pulled_volume 512 2M
