# The plug is pulled while a program works on a mount: nothing acknowledged is lost.
# shellcheck shell=sh
#: nvdimm 640M
#: pulls 5
dax_file_system xfs
pulled_mount
