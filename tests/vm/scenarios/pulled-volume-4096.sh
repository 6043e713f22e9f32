# As pulled-volume, of sectors of 4096 bytes, which fill pages and lines of the journal wholly.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 4
dax_file_system ext4
pulled_volume 4096 8M
