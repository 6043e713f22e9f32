# The plug is pulled while a program works on a pool in its own process: nothing acknowledged is lost.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 5
dax_file_system ext4
pulled_library
