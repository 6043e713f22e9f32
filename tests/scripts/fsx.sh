#!/usr/bin/env bash
# fsx, the file system exerciser: random reads, writes, mappings, truncations, holes and copies of
# one file, each read compared with what must be there. LODE_FSX_OPS and LODE_FSX_SEEDS say how much.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
lode=${LODE:-$TARGET/${LODE_BUILT:-debug}/lode}
version=0.3.2
ops=${LODE_FSX_OPS:-100000}
read -ra seeds <<<"${LODE_FSX_SEEDS:-$RANDOM}"

need_cargo
# (What it asks takes the kernel and the server longer than it: a build that is not optimised is there sooner.)
cargo install --quiet --locked --debug --root "$TARGET/tools" "fsx@$version"
where=${LODE_TEST_SCRATCH:-/dev/shm}
[ -w "$where" ] || where=/tmp
scratch=$(mktemp -d "$where/lode-fsx.XXXXXX")
trap '"$lode" umount "$scratch/mnt" >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT
cat >"$scratch/fsx.toml" <<'TOML'
flen = 262144

[opsize]
min = 1
max = 20000

[weights]
close_open = 1
invalidate = 1
truncate = 4
read = 10
write = 10
mapread = 8
mapwrite = 8
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 2
posix_fadvise = 1
copy_file_range = 3
TOML

mkdir "$scratch/mnt"
"$lode" mkfs "$scratch/pool" --size 64M >/dev/null
# exercise OPTIONS OPERATIONS SEED
exercise() {
    "$lode" mount "$scratch/pool" "$scratch/mnt" -o "$1" >/dev/null
    "$TARGET/tools/bin/fsx" -N "$2" -S "$3" -f "$scratch/fsx.toml" -P "$scratch" "$scratch/mnt/fsx" \
        >"$scratch/out" 2>&1 || {
        tail -60 "$scratch/out"
        echo "fsx: wrong with seed $3, -o $1"
        exit 1
    }
    "$lode" umount "$scratch/mnt" >/dev/null
    "$lode" fsck -f "$scratch/pool" >/dev/null
    echo "fsx $version: $2 operations, seed $3, -o $1: all right, the pool is sound"
}
# fsx never unmaps what it reads by: the more mappings, the slower, and Linux lets a program have 65,530.
# More operations than this are several runs, each with a seed of its own.
run_max=100000
# in_runs OPTIONS OPERATIONS SEED
in_runs() {
    local left=$2 seed=$3
    while [ "$left" -gt 0 ]; do
        exercise "$1" "$((left < run_max ? left : run_max))" "$seed"
        left=$((left - run_max))
        seed=$((seed + 100000))
    done
}
for seed in "${seeds[@]}"; do
    in_runs rw "$ops" "$seed"
done
in_runs relaxed $((ops / 5)) "${seeds[0]}"
