#!/usr/bin/env bash
# What the independent reader finds in a pool equals what its mount showed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lode=${LODE:-${CARGO_TARGET_DIR:-$root/target}/${LODE_BUILT:-debug}/lode}
where=${LODE_TEST_SCRATCH:-/dev/shm}
[ -w "$where" ] || where=/tmp
scratch=$(mktemp -d "$where/lode-reader.XXXXXX")
trap '"$lode" umount "$scratch/mnt" >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT

mkdir "$scratch/mnt"
"$lode" mkfs "$scratch/pool" --size 128M >/dev/null
"$lode" mount "$scratch/pool" "$scratch/mnt" >/dev/null
cp -r "$root/engine" "$root/docs" "$scratch/mnt/"
ln -s "docs/a target that is longer than sixteen bytes" "$scratch/mnt/link"
ln "$scratch/mnt/docs/format.md" "$scratch/mnt/another name, long enough for a second line of its record"
truncate -s 1G "$scratch/mnt/sparse"
printf 'in the middle' | dd of="$scratch/mnt/sparse" bs=1 seek=5000000 conv=notrunc status=none
printf 'over' | dd of="$scratch/mnt/docs/guide.md" bs=1 seek=100 conv=notrunc status=none
rm -r "$scratch/mnt/engine/tests"
python3 "$root/tests/reader/list_tree.py" "$scratch/mnt" >"$scratch/mounted"
"$lode" umount "$scratch/mnt" >/dev/null
python3 "$root/tests/reader/lode_reader.py" "$scratch/pool" >"$scratch/read"
diff "$scratch/mounted" "$scratch/read"
echo "$(wc -l <"$scratch/read") files: the reader and the mount agree"
