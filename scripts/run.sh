#!/usr/bin/env bash
# Builds Lode, makes a pool of 1 GiB, mounts it at ./mnt and shows that real programs run on it
# and that nothing acknowledged is lost when its server is killed. Leaves it mounted.
# LODE_RUN_POOL and LODE_RUN_MNT put pool and mount elsewhere.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/place.sh
source "$LODE_ROOT/scripts/place.sh"

BATCH_ROWS=1000
BATCHES=120
TREE_KIB_MAX=$((256 << 10))
NOTES=$(mktemp -d "${TMPDIR:-/tmp}/lode-run.XXXXXX")
WRITER=
TABLE=()

cleanup() {
    local code=$?
    if [ -n "$WRITER" ]; then
        kill "$WRITER" 2>/dev/null || true
    fi
    rm -rf "$NOTES"
    if [ "$code" -ne 0 ]; then
        printf '\nmake run FAILED (%s). The pool is %s; make run starts anew.\n' "$code" "$POOL" >&2
    fi
}
trap cleanup EXIT

# timed LABEL COMMAND ...: runs it and adds a row to the table.
timed() {
    local label=$1 from=${EPOCHREALTIME/[.,]/} until
    shift
    "$@"
    until=${EPOCHREALTIME/[.,]/}
    TABLE+=("$(printf '%-58s %8d ms' "$label" $(((until - from) / 1000)))")
}

# What an earlier run left: a mount, perhaps without its server, and a pool.
start_afresh() {
    mkdir -p "$MNT" 2>/dev/null || true
    local tries=0
    while is_mounted "$MNT"; do
        tries=$((tries + 1))
        [ "$tries" -le 3 ] || die "$MNT is still mounted"
        "$LODE" umount "$MNT" || die "close what uses $MNT, then try again"
    done
    mkdir -p "$MNT"
    # The new pool may need the space of the old one. What is in use stays, and mkfs says so.
    if [ -e "$POOL" ] && flock -n "$POOL" true; then
        rm -f "$POOL"
    fi
}

# Real source code: what this build compiles, Rust's library, this checkout; some thousand files.
choose_trees() {
    local tree kib used=0
    TREES=()
    for tree in "$(rustc --print sysroot)/lib/rustlib/src/rust/library" \
        "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/*/ "$LODE_ROOT"/*/src; do
        [ -d "$tree" ] || continue
        kib=$(du -sk "$tree" | cut -f1)
        [ $((used + kib)) -le $TREE_KIB_MAX ] || continue
        used=$((used + kib))
        TREES+=("${tree%/}")
    done
    [ ${#TREES[@]} -gt 0 ] || die "no source tree found to copy"
}

copy_trees() {
    local tree number=0
    for tree in "${TREES[@]}"; do
        number=$((number + 1))
        mkdir -p "$MNT/source/$number"
        cp -r "$tree" "$MNT/source/$number/"
    done
}

compare_trees() {
    local tree number=0
    for tree in "${TREES[@]}"; do
        number=$((number + 1))
        diff -r --no-dereference "$tree" "$MNT/source/$number/$(basename "$tree")" ||
            die "the copy differs from $tree"
    done
}

# sql_batches FIRST LAST: batches of rows, each committed, its number then noted outside the pool.
sql_batches() {
    local batch
    echo ".bail on"
    echo "PRAGMA synchronous=FULL;"
    for ((batch = $1; batch <= $2; batch++)); do
        cat <<SQL
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $BATCH_ROWS)
INSERT INTO item SELECT $batch, i, hex(randomblob(32)) FROM n;
COMMIT;
.system echo $batch >>$NOTES/acknowledged
SQL
    done
}

sqlite_rows() {
    sqlite3 "$MNT/shop.db" "CREATE TABLE item(batch INT, number INT, text TEXT, PRIMARY KEY(batch, number));"
    sql_batches 1 $BATCHES | sqlite3 "$MNT/shop.db" >/dev/null
    local rows
    rows=$(sqlite3 "$MNT/shop.db" "SELECT count(*) FROM item;")
    [ "$rows" -eq $((BATCHES * BATCH_ROWS)) ] || die "SQLite has $rows rows"
}

# Kills the server while SQLite and a copy are writing.
kill_in_the_middle() {
    local pid target
    pid=$(server_pid "$MNT")
    target=$((BATCHES + 20 + RANDOM % 40))
    sql_batches $((BATCHES + 1)) 100000 2>/dev/null | sqlite3 "$MNT/shop.db" >/dev/null 2>&1 &
    WRITER=$!
    (while cp -r "${TREES[0]}" "$MNT/more" && rm -r "$MNT/more"; do :; done) 2>/dev/null &
    local copier=$!
    until [ "$(tail -1 "$NOTES/acknowledged")" -ge "$target" ]; do
        kill -0 "$WRITER" 2>/dev/null || die "SQLite ended before the server was killed"
        sleep 0.01
    done
    kill -9 "$pid"
    wait "$WRITER" 2>/dev/null || true
    WRITER=
    wait "$copier" 2>/dev/null || true
    while is_alive "$pid"; do sleep 0.01; done
    ACKNOWLEDGED=$(tail -1 "$NOTES/acknowledged")
    echo "server $pid killed by SIGKILL after batch $ACKNOWLEDGED was acknowledged, in the middle of the next ones"
}

check_database() {
    local integrity missing rows
    integrity=$(sqlite3 "$MNT/shop.db" "PRAGMA integrity_check;")
    [ "$integrity" = ok ] || die "SQLite's integrity check says: $integrity"
    rows=$(sqlite3 "$MNT/shop.db" "SELECT count(*) FROM item WHERE batch <= $ACKNOWLEDGED;")
    missing=$((ACKNOWLEDGED * BATCH_ROWS - rows))
    [ "$missing" -eq 0 ] || die "$missing acknowledged rows are missing"
    echo "all $rows rows of the $ACKNOWLEDGED acknowledged commits are there; SQLite's integrity check says ok"
}

need_cargo
install_missing cc:build-essential sqlite3:sqlite3 diff:diffutils
need_fuse

if [ -z "${LODE_BUILT:-}" ]; then
    say "Building"
    cargo build --release --package lode-cli --bin lode
fi

start_afresh
say "A pool of 1 GiB"
timed "make a pool of 1 GiB" "$LODE" mkfs "$POOL" --size 1G --label make-run --force
timed "mount it" "$LODE" mount "$POOL" "$MNT"

choose_trees
say "Copying ${#TREES[@]} real source trees in"
timed "copy the source trees in" copy_trees
files=$(find "$MNT/source" -type f | wc -l)
timed "compare them with the originals ($files files)" compare_trees
echo "$files files, $(du -sh "$MNT/source" | cut -f1), equal to the originals"

say "SQLite: $((BATCHES * BATCH_ROWS)) rows in $BATCHES commits"
timed "SQLite: $((BATCHES * BATCH_ROWS)) rows in $BATCHES commits" sqlite_rows

say "Killing the server in the middle of writing"
kill_in_the_middle

say "Checking the pool as the kill left it"
timed "lode fsck of the pool as the kill left it" "$LODE" fsck -n "$POOL"
say "Mounting it again"
timed "mount it again, with recovery" "$LODE" mount "$POOL" "$MNT"
timed "check every acknowledged commit" check_database
timed "compare the source trees once more" compare_trees

say "Unmounting, checking, mounting"
timed "unmount" "$LODE" umount "$MNT"
timed "lode fsck of the cleanly unmounted pool" "$LODE" fsck -n "$POOL"
timed "mount it again, without recovery" "$LODE" mount "$POOL" "$MNT"

say "Done"
printf '%s\n' "${TABLE[@]}"
cat <<TEXT

The pool $POOL is mounted at $MNT. Use it as any directory, and look at it:
  ls $MNT/source
  $LODE stats $MNT
  $LODE info $MNT
Unmount it:
  $LODE umount $MNT
TEXT
