#!/usr/bin/env bash
# LMDB writes by pwrite and reads the same file through a shared mapping. The same database as on ext4;
# and with the server of the mount, or a writer, killed in the middle, every acknowledged transaction
# is there and each is whole, also for readers in other processes at any moment.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
prepare lmdb 256M mdb_stat:lmdb-utils
# Debian's package is for Debian's Python, which need not be the first one in the PATH.
python=/usr/bin/python3
if ! $python -c 'import lmdb' 2>/dev/null; then
    (install_missing no-such-command:python3-lmdb) || skip "lmdb: python3-lmdb can't be installed here"
fi
load=$PROGRAMS/lmdb_load.py

content() {
    mkdir copied
    $python "$load" fill "$PWD/data" "$(by_size 200 3000)"
    mdb_stat -a -f data
    mdb_dump -a data | sha256sum
    mdb_dump -a data >dump
    mkdir loaded
    # It says which words of the dump it has no use for.
    mdb_load -f dump loaded 2>/dev/null
    mdb_copy data.copy copied
    mdb_stat -e copied
}
# Its locks hold process ids.
LISTING=(--without lock.mdb)
on_both content

# round VICTIM NUMBER: two writers and a reader; the victim dies in the middle.
round() {
    local stop=$SCRATCH/stop writers=() sizes=() writer reader
    rm -f "$stop"
    for writer in 1 2; do
        sizes[writer]=$(size_of "$SCRATCH/notes-$writer")
        $python "$load" write "$WORK/data" $writer "$SCRATCH/notes-$writer" "$stop" 2>"$SCRATCH/errors-$writer" &
        writers+=($!)
    done
    $python "$load" read "$WORK/data" "$stop" 2>"$SCRATCH/errors-reader" &
    reader=$!
    for writer in 1 2; do
        until_noted "${writers[writer - 1]}" "$SCRATCH/notes-$writer" "${sizes[writer]}"
    done
    sleep "$(between 100 900)"
    if [ "$1" = server ]; then
        # What is mapped is gone with the mount: some of them end by SIGBUS, and the shell would say so.
        {
            kill_lode
            touch "$stop"
            wait "${writers[@]}" "$reader" || true
        } 2>/dev/null
        lode_again
    else
        kill_child "${writers[0]}"
        sleep 0.3
        touch "$stop"
        wait "${writers[1]}" || die "lmdb: the other writer failed: $(tail -1 "$SCRATCH/errors-2")"
        wait "$reader" || die "lmdb: the reader failed: $(tail -1 "$SCRATCH/errors-reader")"
    fi
    ! grep -q 'a reader sees' "$SCRATCH/errors-reader" || die "lmdb: $(tail -1 "$SCRATCH/errors-reader")"
    $python "$load" judge "$WORK/data" "1:$SCRATCH/notes-1" "2:$SCRATCH/notes-2" >"$SCRATCH/judged" ||
        die "lmdb: a transaction is lost or torn, $1 killed in round $2"
}

lode_up
for ((number = 1; number <= $(by_size 3 40); number++)); do
    round server "$number"
    round writer "$number"
done
mdb_stat -e "$WORK/data" >/dev/null
lode_down
done_well "$(mdb_stat -V | cut -d: -f1), $(((number - 1) * 2)) kills: no acknowledged transaction lost, of $(paste -sd+ "$SCRATCH/judged")"
