# As pulled-volume, of a thin volume: its pages are made while it is written.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 4
dax_file_system ext4
pulled_volume 512 8M --thin
