# An engine that takes the dead for alive is found out by pulled plugs: these tests can fail.
# shellcheck shell=sh
#: nvdimm 256M
#: pulls 10
#: fails (opening: |the tree is that of none|fsck after a pulled plug: )
dax_file_system ext4
pulled_library death-honoured
