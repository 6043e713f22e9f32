# A file of 1 GiB is mapped by pages of 2 MiB where the medium gives them, and what pages of 4 KiB, 2 MiB and 1 GiB cost.
# shellcheck shell=sh
#: nvdimm 4G
#: seconds 300
BYTES=1073741824

# `map POOL PAGES KIB [SIZE]`: a pool whose files have such pages; pool and map must be by pages of so many KiB.
map() {
    lode mkfs --force "$1" ${4:+--size $4} --page-size "$2" >/tmp/mkfs.log 2>&1 || die "lode mkfs: $(cat /tmp/mkfs.log)"
    say "$1, files of pages of $2:"
    mapping "$1" $BYTES "$3" >/tmp/mapping.log 2>&1 || die "mapping: $(cat /tmp/mapping.log)"
    while read -r line; do say "  $line"; done </tmp/mapping.log
}

for kind in xfs ext4; do
    dax_file_system $kind
    map /mnt/dax/pool 2M 2048 1600M
    umount /mnt/dax
    dd if=/dev/zero of=/dev/pmem0 bs=1M count=1 2>/dev/null
done
for align in 4k 2m 1g; do
    ndctl create-namespace -f -e namespace0.0 --mode=devdax --align=$align --map=mem >/tmp/ndctl.log 2>&1 ||
        die "ndctl: $(cat /tmp/ndctl.log)"
    say "/dev/dax0.0, mapped by pages of $align:"
    case $align in
    4k) map /dev/dax0.0 4K 4 && stated /dev/dax0.0 mapping "pages of 4 KiB" ;;
    2m) map /dev/dax0.0 2M 2048 && stated /dev/dax0.0 mapping "pages of 2 MiB" ;;
    1g) map /dev/dax0.0 1G 1048576 && stated /dev/dax0.0 mapping "pages of 1 GiB" ;;
    esac
done
