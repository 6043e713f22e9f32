# The plug is pulled while sectors of a whole region are stamped by NBD: words of a sector may be of several writes, but none is older than what
# was answered, and none newer than what had begun.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 5
dax_file_system ext4
pulled_raw words 512 2M
