#!/usr/bin/env bash
# SQLite in all its journal modes: the same database as on ext4; and with the server of the mount, or
# SQLite itself, killed in the middle, every acknowledged transaction is there and each is whole.
# MEMORY and OFF keep no journal on the medium, so SQLite promises nothing when killed: only compared.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
prepare sqlite 256M sqlite3:sqlite3
load=$PROGRAMS/sqlite_load.py

journal_modes() {
    local mode
    for mode in DELETE TRUNCATE PERSIST MEMORY WAL OFF; do
        echo "$mode"
        python3 "$load" steps "$mode.db" "$mode" "$(by_size 45 400)" | sha256sum
        sqlite3 "$mode.db" "PRAGMA integrity_check; SELECT count(*), max(number) FROM change;"
    done
    # A journal mode changed in between, an attached database, and a backup while it is used.
    sqlite3 WAL.db "PRAGMA journal_mode = DELETE; VACUUM INTO 'vacuumed.db';" ".backup 'backup.db'"
    sqlite3 DELETE.db "ATTACH 'WAL.db' AS other; BEGIN; DELETE FROM change; DELETE FROM other.change; COMMIT;"
    sha256sum ./*.db
}
# Where a page of the database ends up depends on nothing but the steps; what the -shm file holds does.
LISTING=(--without PERSIST.db-journal)
on_both journal_modes

# round MODE VICTIM NUMBER: two writers and a reader; the victim dies in the middle.
round() {
    local db=$WORK/$1.db stop=$SCRATCH/stop writers=() reader size
    size=$(size_of "$SCRATCH/$1-1")
    rm -f "$stop"
    python3 "$load" write "$db" "$1" 1 "$SCRATCH/$1-1" "$stop" 2>"$SCRATCH/errors-1" &
    writers+=($!)
    # From now on nobody changes the journal mode, nor makes tables.
    until_noted "${writers[0]}" "$SCRATCH/$1-1" "$size"
    python3 "$load" write "$db" "$1" 2 "$SCRATCH/$1-2" "$stop" 2>"$SCRATCH/errors-2" &
    writers+=($!)
    python3 "$load" read "$db" "$stop" 2>"$SCRATCH/errors-reader" &
    reader=$!
    sleep "$(between 50 600)"
    if [ "$2" = server ]; then
        kill_lode
        touch "$stop"
        wait "${writers[@]}" "$reader" 2>/dev/null || true
        lode_again
    else
        kill_child "${writers[0]}"
        # The others find its journal, roll it back and go on.
        sleep 0.3
        touch "$stop"
        wait "${writers[1]}" || die "sqlite: $1: the other writer failed: $(tail -1 "$SCRATCH/errors-2")"
        wait "$reader" || die "sqlite: $1: the reader failed: $(tail -1 "$SCRATCH/errors-reader")"
    fi
    ! grep -q 'a reader sees' "$SCRATCH/errors-reader" || die "sqlite: $1: $(tail -1 "$SCRATCH/errors-reader")"
    python3 "$load" judge "$db" "1:$SCRATCH/$1-1" "2:$SCRATCH/$1-2" >"$SCRATCH/judged" ||
        die "sqlite: $1, $2 killed in round $3: a transaction is lost or torn"
}

lode_up
kills=0
for mode in DELETE TRUNCATE PERSIST WAL; do
    for ((number = 1; number <= $(by_size 1 25); number++)); do
        round $mode server "$number"
        round $mode itself "$number"
        kills=$((kills + 2))
    done
    echo "sqlite: $mode: transactions there after the last kill: $(paste -sd' ' "$SCRATCH/judged")"
done
lode_down
done_well "$(sqlite3 --version | cut -d' ' -f1), $kills kills: no acknowledged transaction lost, none in part"
