#!/usr/bin/env bash
# Builds what a virtual machine starts from: Debian's kernel, and a first file system of busybox, a few programs and
# the modules that persistent memory, and devices of volumes, need. Kept below the target directory until a package changes.
# Prints the directory: `vmlinuz`, `base.cpio`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

VM=$TARGET/vm
MODULES=(nfit nd_e820 nd_pmem dax_pmem device_dax virtio_pmem virtio_pci virtio_blk ext4 xfs crc32c_generic ublk_drv)
PROGRAMS=(ndctl mkfs.ext4 e2fsck mkfs.xfs filefrag sqlite3)

# The newest kernel that Debian has for this release, of those with all modules.
kernel_package() {
    apt-cache search --names-only '^linux-image-6\.[0-9.]*.*-amd64$' | awk '{ print $1 }' |
        grep -vE 'cloud|rt|unsigned|dbg' | sort -V | tail -1 || true
}

unpack_kernel() {
    local package=$1 to=$2
    (cd "$SCRATCH" && apt-get download -qq -o APT::Sandbox::User=root "$package") || return 1
    dpkg-deb -x "$SCRATCH"/*.deb "$to"
}

# A program and the libraries that it is loaded with.
put_program() {
    local root=$1 program=$2 file
    mkdir -p "$root/bin"
    cp -L "$program" "$root/bin/"
    while read -r file; do
        mkdir -p "$root$(dirname "$file")"
        cp -Ln "$file" "$root$file"
    done < <(ldd "$program" | grep -o '/[^ ]*' | sort -u)
}

put_modules() {
    local root=$1 kernel=$2 version=$3 module file
    depmod -b "$kernel" "$version"
    mkdir -p "$root/modules"
    for module in "${MODULES[@]}"; do
        # In the order in which they are to be loaded, each once. (The machine's own rules do not count.)
        while read -r file; do
            grep -qxF "$(basename "${file%.xz}")" "$root/modules/order" 2>/dev/null && continue
            basename "${file%.xz}" >>"$root/modules/order"
            xz -dc "$file" >"$root/modules/$(basename "${file%.xz}")"
        done < <(modprobe -C /dev/null -d "$kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p')
    done
}

build() {
    local made_of=$1 kernel=$SCRATCH/kernel root=$SCRATCH/root version new
    version=$(ls "$kernel/lib/modules")
    put_modules "$root" "$kernel" "$version"
    mkdir -p "$root/bin" "$root/lib64"
    cp "$(command -v busybox)" "$root/bin/busybox"
    local program
    for program in "${PROGRAMS[@]}"; do
        put_program "$root" "$(command -v "$program")"
    done
    # All of it or nothing, whoever else makes one at the same time.
    mkdir -p "$(dirname "$VM")"
    new=$(mktemp -d "$VM.XXXXXX")
    cp "$kernel"/boot/vmlinuz-* "$new/vmlinuz"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$new/base.cpio"
    echo "$made_of" >"$new/made-of"
    rm -rf "$VM.old"
    if [ -e "$VM" ]; then mv "$VM" "$VM.old"; fi
    mv -T "$new" "$VM"
    rm -rf "$VM.old"
}

# What the programs are: size and time stand for the versions of their packages.
programs() {
    local paths
    mapfile -t paths < <(command -v busybox "${PROGRAMS[@]}")
    stat -L -c '%n %s %Y' "${paths[@]}"
}

# (Not to be had is no failure of what is tested: who calls may go on without.)
NOT_HERE=77
(install_missing qemu-system-x86_64:qemu-system-x86 busybox:busybox-static ndctl:ndctl cpio:cpio \
    xz:xz-utils depmod:kmod mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs sqlite3:sqlite3 >&2) || exit $NOT_HERE
command -v qemu-system-x86_64 ndctl cpio >/dev/null || exit $NOT_HERE
package=$(kernel_package)
if [ -z "$package" ] && is_root; then
    flock -o /run/lock/lode-packages apt-get update -qq >&2 || true
    package=$(kernel_package)
fi
# What was made before is good enough where nothing can be had.
else_older() {
    [ ! -e "$VM/made-of" ] || { echo "$VM" && exit 0; }
    echo "error: $1" >&2
    exit $NOT_HERE
}

[ -n "$package" ] || else_older "no package of a kernel is known: apt-get update, or a Debian without one"
made_of="$package: ${MODULES[*]}; $(programs)"
if [ "$(cat "$VM/made-of" 2>/dev/null)" != "$made_of" ]; then
    say "Making a first file system for virtual machines: $package" >&2
    SCRATCH=$(mktemp -d)
    trap 'rm -rf "$SCRATCH"' EXIT
    unpack_kernel "$package" "$SCRATCH/kernel" || else_older "the package $package can't be had"
    build "$made_of"
fi
echo "$VM"
