# A machine that boots from a volume: the disk that QEMU gives it is served by NBD from a pool on this machine, and all that the
# machine is made of is read from it: boot sector, boot loader, kernel, first and second file system. Sourced by run.sh.
# shellcheck shell=bash

BOOT_SECTOR=/usr/lib/syslinux/mbr/mbr.bin
# What such a disk is made and looked at with.
volume_programs() {
    install_missing sfdisk:fdisk syslinux:syslinux mcopy:mtools mkfs.vfat:dosfstools mke2fs:e2fsprogs \
        debugfs:e2fsprogs nbdcopy:libnbd-bin >&2 || return 1
    # (That is no command.)
    if [ ! -e "$BOOT_SECTOR" ] && is_root; then
        DEBIAN_FRONTEND=noninteractive flock -o /run/lock/lode-packages apt-get install -y -qq syslinux-common >/dev/null 2>&1 || true
    fi
    [ -e "$BOOT_SECTOR" ]
}
# MiB at which the partitions begin, and of the first one.
BOOT_AT=1
BOOT_SIZE=32

# boot_partition TO FILE: a FAT of the boot loader, the kernel and a first file system that goes on to the second partition.
boot_partition() {
    local to=$1 file=$2 first=$WORK/boot-first
    mkdir -p "$first"
    (cd "$first" && cpio --quiet -id 'modules/*' bin/busybox <"$VM/base.cpio")
    cp "$HERE/init-disk" "$first/init"
    chmod +x "$first/init"
    (cd "$first" && find . | cpio --quiet -o -H newc) >"$WORK/boot.cpio"
    printf '%s\n' "default linux" "prompt 0" "label linux" "kernel vmlinuz" "initrd boot.cpio" \
        "append $(kernel_words "$file") root=/dev/vda2" >"$WORK/syslinux.cfg"
    truncate -s "${BOOT_SIZE}M" "$to"
    mkfs.vfat -h $((BOOT_AT * 2048)) "$to"
    MTOOLS_SKIP_CHECK=1 mcopy -i "$to" "$VM/vmlinuz" "$WORK/boot.cpio" "$WORK/syslinux.cfg" ::
    syslinux --install "$to"
}

# root_partition TO MIB: an ext4 with a shell and the scenarios.
root_partition() {
    local to=$1 size=$2 root=$WORK/boot-root
    mkdir -p "$root/bin" "$root/scenario" "$root/modules"
    cp "$WORK/boot-first/bin/busybox" "$root/bin/"
    cp "$HERE/init" "$root/init"
    : >"$root/modules/order"
    cp "$HERE/guest.sh" "$HERE"/scenarios/*.sh "$root/scenario/"
    scenario_start >"$root/scenario/run"
    chmod +x "$root/init"
    truncate -s "${size}M" "$to"
    mke2fs -q -t ext4 -d "$root" "$to"
}

# disk TO FILE MIB: all of it, as an image.
disk() {
    local to=$1 file=$2 size=$3 rest=$(($3 - BOOT_AT - BOOT_SIZE))
    boot_partition "$to.boot" "$file" || return 1
    root_partition "$to.root" "$rest" || return 1
    truncate -s "${size}M" "$to"
    printf '%s\n' "label: dos" "start=${BOOT_AT}MiB size=${BOOT_SIZE}MiB type=c bootable" "type=83" | sfdisk --quiet "$to" || return 1
    dd if="$BOOT_SECTOR" of="$to" bs=440 count=1 conv=notrunc status=none
    dd if="$to.boot" of="$to" bs=1M seek=$BOOT_AT conv=notrunc,sparse status=none
    dd if="$to.root" of="$to" bs=1M seek=$((BOOT_AT + BOOT_SIZE)) conv=notrunc,sparse status=none
    rm "$to.boot" "$to.root"
}

# serve_volume POOL [WORD...]: its process is in SERVER, its socket is POOL.socket.
serve_volume() {
    local pool=$1 left=200
    : >"$pool.served"
    "$BUILT/lode" block serve "$pool" disk --socket "$pool.socket" "${@:2}" >>"$pool.served" 2>&1 &
    SERVER=$!
    until grep -q nbd+unix: "$pool.served"; do
        if [ $((left--)) -le 0 ]; then
            cat "$pool.served"
            return 1
        fi
        sleep 0.05
    done
}

# volume_node NAME POOL: as QEMU is told of it.
volume_node() { echo "driver=nbd,node-name=$1,server.type=unix,server.path=$2.socket,export=disk"; }

end_volume() {
    local status=0
    kill "$SERVER"
    wait "$SERVER" || status=$?
    SERVER=
    [ "$status" -eq 0 ] || echo "the server ended with $status"
    return "$status"
}

# volume_up FILE POOL: a pool with a volume, from which a machine can boot, and its server. What goes wrong is printed.
volume_up() {
    local file=$1 pool=$2 size
    size=$(word "$file" volume "")
    size=${size%M}
    disk "$pool.image" "$file" "$size" >"$pool.log" 2>&1 || { cat "$pool.log" && return 1; }
    "$BUILT/lode" mkfs "$pool" --size $((size + 32))M >"$pool.log" 2>&1 || { cat "$pool.log" && return 1; }
    "$BUILT/lode" block create "$pool" disk --size "${size}M" --sector 512 >"$pool.log" 2>&1 || { cat "$pool.log" && return 1; }
    serve_volume "$pool" || return 1
    nbdcopy "$pool.image" "nbd+unix:///disk?socket=$pool.socket" 2>&1 || return 1
    rm "$pool.image"
}

# volume_down POOL CONSOLE: the pool is sound, and the file that the machine has written is in the volume as it said.
volume_down() {
    local pool=$1 console=$2 said found
    end_volume || return 1
    "$BUILT/lode" fsck -n "$pool" >"$pool.log" 2>&1 || { cat "$pool.log" && return 1; }
    serve_volume "$pool" --read-only || return 1
    nbdcopy "nbd+unix:///disk?socket=$pool.socket" "$pool.image" 2>&1 || return 1
    end_volume || return 1
    dd if="$pool.image" of="$pool.root" bs=1M skip=$((BOOT_AT + BOOT_SIZE)) conv=sparse status=none
    e2fsck -fn "$pool.root" >"$pool.log" 2>&1 || { cat "$pool.log" && return 1; }
    said=$(tr -d '\r' <"$console" | sed -n 's/^lode-vm: written //p')
    found=$(debugfs -R "cat /written" "$pool.root" 2>/dev/null | sha256sum | cut -d' ' -f1)
    [ "$found" = "$said" ] || { echo "/written has the sum «$found», and was written with «$said»" && return 1; }
    echo "lode-vm: the pool is sound, and what the machine wrote is in its volume: $found"
}
