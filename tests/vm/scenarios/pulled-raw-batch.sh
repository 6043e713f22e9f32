# The same where writes wait in buffers, which a pulled plug empties: all that FUA and FLUSH promised is there.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 5
dax_file_system ext4
pulled_raw promised-words 512 2M --protect-io mprotect-batch
