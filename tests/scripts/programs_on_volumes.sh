#!/usr/bin/env bash
# Whole programs on ext4 on volumes, by `lode bench programs`: each does its work, what it leaves is sound, and nothing of a run
# stays mounted or attached, neither at its end nor, once it was taken away, after a kill.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
lode=${LODE:-$TARGET/${LODE_BUILT:-debug}/lode}

skip() {
    echo "skipped: $*"
    exit 0
}

is_root || skip "only root may mount what programs are measured on"
need_fuse
losetup --find >/dev/null 2>&1 || skip "there are no loop devices"
(install_missing dbench:dbench mkfs.ext4:e2fsprogs python3:python3 setpriv:util-linux) || skip "dbench can't be installed"
# (Of what of these is absent the run tells.)
(install_missing clamscan:clamav pgbench:postgresql) || true
[ -x "$lode" ] || { need_cargo && cargo build --quiet -p lode-cli; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-programs.XXXXXX")
mkdir "$scratch/run"
# The database's user gets through.
chmod 711 "$scratch" "$scratch/run"
victim=
finish() {
    [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null || true
    "$lode" bench --clean --dir "$scratch/run" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$scratch"
}
trap finish EXIT

# what_is_there: mounts, loop devices and servers below the directory of runs.
what_is_there() {
    { grep -F " $scratch/run/" /proc/self/mountinfo || true; } | awk '{ print "mount", $5 }'
    { grep -HF "$scratch/run/" /sys/block/loop*/loop/backing_file 2>/dev/null || true; }
    # (Processes come and go.)
    grep -aslF "$scratch/run/" /proc/[0-9]*/cmdline || true
    ls -A "$scratch/run"
}
# nothing_stays WHEN: devices and servers end a moment after their mounts.
nothing_stays() {
    local tries=0 left
    while left=$(what_is_there) && [ -n "$left" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || die "$1 there is still: $left"
        sleep 0.1
    done
}

# run NAME WORKLOADS SUBJECTS
run() {
    local status=0
    timeout 55 "$lode" bench programs --quick --rounds 1 --json --dir "$scratch/run" \
        --workload "$2" --subject "$3" --html "$scratch/$1.html" >"$scratch/$1.json" || status=$?
    [ "$status" -eq 0 ] || {
        cat "$scratch/$1.json" >&2
        die "lode bench programs ended with $status"
    }
    nothing_stays "after a run"
}
# check NAME WORKLOADS SUBJECTS: a row for each, or the package to be installed.
check() {
    python3 - "$scratch/$1.json" "$2" "$3" <<'PY'
import json, sys

report = json.load(open(sys.argv[1]))
rows = {(row["workload"], row["subject"]): row for row in report["rows"]}
left_out = {one["what"]: one["why"] for one in report["left_out"]}
absent = []
for workload in sys.argv[2].split(","):
    if workload in left_out:
        assert "apt install" in left_out[workload], left_out
        absent.append(workload)
        continue
    for subject in sys.argv[3].split(","):
        row = rows[workload, subject]
        assert row["ns_per_op"] > 1000 and row["repetitions"] == 1 and not row["emulated"], row
assert set(left_out) == set(absent), left_out
judged = report["targets"]
assert len(judged) == 1 and judged[0]["met"] is True, judged
print(f"programs: {len(rows)} rows; {judged[0]['measured']}")
for workload in absent:
    print(f"skipped: {left_out[workload]}")
PY
}

run volumes untar,tar,sfs tmpfs,ext4-ram,ext4-volume
check volumes untar,tar,sfs tmpfs,ext4-ram,ext4-volume
grep -q '<svg' "$scratch/volumes.html" || die "the page has no plots"
run others build,clamav,tpcc tmpfs,ext4-volume
check others build,clamav,tpcc tmpfs,ext4-volume

# A run that is killed while a program works on a volume.
"$lode" bench programs --quick --rounds 9 --json --dir "$scratch/run" --workload sfs --subject ext4-volume \
    >/dev/null 2>&1 &
victim=$!
tries=0
until mount_point=$(what_is_there | awk '/^mount .*\/root$/ { print $2 }') && [ -n "$mount_point" ] &&
    compgen -G "$mount_point/clients/clients/client*" >/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || die "a program was waited for in vain"
    sleep 0.1
done
kill -9 "$victim"
wait "$victim" 2>/dev/null || true
victim=
[ -n "$(what_is_there)" ] || die "nothing was left by a run that was killed: this tests nothing"
"$lode" bench --clean --dir "$scratch/run" >/dev/null
nothing_stays "after a run that was killed, and taken away,"
echo "programs: what a killed run had left is gone"
