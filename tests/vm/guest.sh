# What scenarios in a virtual machine share. Sourced, not run.
# shellcheck shell=sh

# What the host has said (see init): which boot of this NVDIMM it is, what the load follows from, how much of it was
# acknowledged, and whether this boot is only to look.
boot=${LODE_VM_boot:-0} seed=${LODE_VM_seed:-0} acked=${LODE_VM_acked:-0} last=${LODE_VM_last:-}

say() { echo "lode-vm: $*"; }
die() {
    say "FAILED: $*"
    exit 1
}

# Runs a command that must fail, with this status, and say this.
refused() {
    status=$1 words=$2
    shift 2
    if said=$("$@" 2>&1); then
        die "it was not refused: $*"
    else
        got=$?
    fi
    [ "$got" -eq "$status" ] || die "$*: status $got, not $status: $said"
    case $said in
    *"$words"*) say "refused, as it must be: $said" ;;
    *) die "$*: it does not say «$words» but: $said" ;;
    esac
}

# Says what a pool is on, and demands it: `info POOL KEY VALUE`.
stated() {
    found=$(lode info "$1" | sed -n "s/^$2  *//p")
    case $found in
    "$3"*) say "$2: $found" ;;
    *) die "$2 of $1 is «$found», not «$3»" ;;
    esac
}

# Says how a pool is kept, which must not be by msync.
not_by_msync() {
    found=$(lode info "$1" | sed -n 's/^flush  *//p')
    case $found in
    "" | msync*) die "$1 is kept by «$found»" ;;
    *) say "flush: $found" ;;
    esac
}

# The NVDIMM as a DAX block device, /dev/pmem0, in this mode; made the first time, found later.
namespace() {
    if [ "$(ndctl list -N 2>/dev/null | sed -n 's/.*"mode":"\([a-z]*\)".*/\1/p')" != "$1" ]; then
        ndctl create-namespace -f -e namespace0.0 --mode="$1" --map=mem >/tmp/ndctl.log 2>&1 ||
            die "ndctl: $(cat /tmp/ndctl.log)"
    fi
}

# A DAX file system of this kind at /mnt/dax; made the first time, found later.
dax_file_system() {
    namespace fsdax
    mkdir -p /mnt/dax
    case $1 in
    # (Clusters of 2 MiB: what is allocated begins where a huge page can. Stripes alone leave that to luck.)
    ext4) options="-q -b 4096 -O bigalloc -C 2m" ;;
    xfs) options="-q -m reflink=0,rmapbt=0 -d su=2m,sw=1" ;;
    esac
    if ! mount -t "$1" -o dax /dev/pmem0 /mnt/dax 2>/dev/null; then
        # shellcheck disable=SC2086
        "mkfs.$1" $options /dev/pmem0 >/tmp/mkfs.log 2>&1 || die "mkfs.$1: $(cat /tmp/mkfs.log)"
        mount -t "$1" -o dax /dev/pmem0 /mnt/dax || die "$1 can't be mounted with DAX"
    fi
}

# What every medium must bear: a pool, a mount, programs that work on it, the death of its server, recovery, fsck.
# `life POOL [SIZE]`; a device has its size.
life() {
    pool=$1
    mkdir -p /mnt/pool
    # shellcheck disable=SC2086
    lode mkfs "$pool" ${2:+--size $2} >/tmp/mkfs.log 2>&1 || die "lode mkfs: $(cat /tmp/mkfs.log)"
    lode mount "$pool" /mnt/pool >/tmp/mount.log 2>&1 || die "lode mount: $(cat /tmp/mount.log)"
    work /mnt/pool
    server=$(lode info /mnt/pool --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
    kill -9 "$server"
    while kill -0 "$server" 2>/dev/null; do sleep 0.1; done
    umount -l /mnt/pool 2>/dev/null || true
    lode mount "$pool" /mnt/pool >/tmp/mount.log 2>&1 || die "mount after a crash: $(cat /tmp/mount.log)"
    worked /mnt/pool
    lode umount /mnt/pool || die "lode umount"
    lode fsck -n "$pool" >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
    say "a life on $pool: made, mounted, worked on, killed, recovered, checked"
}

# Real programs at work in a directory, and what must be there then.
work() {
    mkdir "$1/tree"
    cp -r /modules "$1/tree/"
    (cd "$1/tree" && tar cf ../tree.tar modules && mkdir again && tar xf ../tree.tar -C again)
    cmp "$1/tree/modules/order" "$1/tree/again/modules/order" || die "tar gives other files back"
    find "$1/tree" -type f | sort | xargs sha256sum >/tmp/sums
    rm -r "$1/tree/again/modules"
    sqlite3 "$1/base" 'pragma journal_mode=wal; create table t (a integer primary key, b text);
        insert into t select value, hex(randomblob(20)) from generate_series(1, 2000);
        update t set b = lower(b) where a % 3 = 0; delete from t where a % 7 = 0;' >/dev/null || die "sqlite3"
    (cd "$1" && mv tree.tar moved.tar && ln moved.tar linked.tar && ln -s tree/modules link)
}

worked() {
    grep -v /again/ /tmp/sums | sha256sum -cs || die "files are not what they were"
    [ ! -e "$1/tree/again/modules" ] || die "what was removed is there again"
    cmp "$1/moved.tar" "$1/linked.tar" || die "one of two names is lost"
    [ "$(sqlite3 "$1/base" 'pragma integrity_check; select count(*) from t')" = "ok
1715" ] || die "the database is not what it was"
}

# A pool, made at the first boot.
new_pool() {
    mkdir -p /mnt/pool
    if [ "$boot" = 0 ]; then
        lode mkfs "$1" --size 64M >/tmp/mkfs.log 2>&1 || die "lode mkfs: $(cat /tmp/mkfs.log)"
        sync
    fi
}

# A pool that a pulled plug has left, before anybody has recovered it.
as_left_by_a_pull() {
    [ "$boot" = 0 ] || lode fsck -n "$1" >/tmp/fsck.log 2>&1 || die "fsck after a pulled plug: $(cat /tmp/fsck.log)"
}

# A load in this process, until the plug is pulled, or but the judging; of an engine that leaves out a rule, if one is named.
pulled_library() {
    new_pool /mnt/dax/pool
    as_left_by_a_pull /mnt/dax/pool
    plug library /mnt/dax/pool "$seed" "$acked" "$@" ${last:+--check}
    lode fsck -n /mnt/dax/pool >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
}

# The same load on a mount.
pulled_mount() {
    new_pool /mnt/dax/pool
    as_left_by_a_pull /mnt/dax/pool
    lode mount /mnt/dax/pool /mnt/pool || die "mount after a pulled plug"
    plug mount /mnt/pool "$seed" "$acked" ${last:+--check}
    lode umount /mnt/pool
    lode fsck -n /mnt/dax/pool >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
}

# What is served is stamped by NBD, until the plug is pulled, or but judged: `stamped EXPORT KEPT SECTOR WORD...`, the words those
# of the server.
stamped() {
    export=$1 kept=$2 sector=$3
    shift 3
    lode block serve "$@" --socket /tmp/nbd >/tmp/served 2>&1 &
    server=$! tries=0
    until grep -q nbd+unix: /tmp/served; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || die "nothing is served: $(cat /tmp/served)"
        sleep 0.05
    done
    stamps /tmp/nbd "$export" "$kept" "$sector" "$seed" "$acked" /mnt/dax/notes ${last:+--check}
    kill $server
    wait $server || die "the server ends with $?: $(cat /tmp/served)"
}

# Sectors of a whole region: `pulled_raw KEPT SECTOR SIZE WORD...`, the words those of the server.
pulled_raw() {
    kept=$1 sector=$2 size=$3
    shift 3
    if [ "$boot" = 0 ]; then
        truncate -s "$size" /mnt/dax/region && sync
    fi
    stamped raw "$kept" "$sector" --raw /mnt/dax/region --sector "$sector" "$@"
}

# Sectors of a volume are stamped by NBD, until the plug is pulled, or but judged: `pulled_volume SECTOR SIZE [OPTION]`.
pulled_volume() {
    sector=$1
    new_pool /mnt/dax/pool
    if [ "$boot" = 0 ]; then
        # (In pages of 2 MiB, as volumes of any size are.)
        # shellcheck disable=SC2086
        lode block create /mnt/dax/pool v --size "$2" --sector "$sector" ${3:+$3} >/dev/null || die "lode block create"
        sync
    fi
    as_left_by_a_pull /mnt/dax/pool
    stamped v whole "$sector" /mnt/dax/pool v
    lode fsck -n /mnt/dax/pool >/tmp/fsck.log 2>&1 || die "fsck: $(cat /tmp/fsck.log)"
}
