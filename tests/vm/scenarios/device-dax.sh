# A pool on a DAX device: its size is the device's, mapped by pages of its alignment.
# shellcheck shell=sh
#: nvdimm 512M
#: persistence cpu
namespace devdax
[ -c /dev/dax0.0 ] || die "there is no /dev/dax0.0"
life /dev/dax0.0
stated /dev/dax0.0 medium "dax device, on dax0.0"
stated /dev/dax0.0 mapping "pages of 2 MiB"
stated /dev/dax0.0 durability power
stated /dev/dax0.0 persistence "cpu_cache: "
case $(lode info /dev/dax0.0 | sed -n 's/^flush  *//p') in
*+none*) say "flush: nothing, as caches survive" ;;
*) die "caches survive, and are flushed" ;;
esac
size=$(cat /sys/bus/dax/devices/dax0.0/size)
lode info /dev/dax0.0 | grep -q "($size bytes)" || die "the pool is not as large as the device: $size bytes"
