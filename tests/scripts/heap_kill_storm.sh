#!/usr/bin/env bash
# Programs with memory of a pool, and who lends it, are killed at random while files are written: no page is lost, none is
# had by two, also where a program stands still while its owner dies and goes on beside the next one, what a program has stays what it stored while its owner is gone and a new one and files work on, the pool is
# clean, and in the end exactly as much is free as recovery finds.
# LODE_STORM_SECONDS: how long it goes on. LODE_STORM_SEED: what is done in which order, as an earlier run has told it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
seconds=${LODE_STORM_SECONDS:-40}
seed=${LODE_STORM_SEED:-$(($(date +%s) % 30000 + 1))}
say "Seed $seed, $seconds s: LODE_STORM_SEED=$seed LODE_STORM_SECONDS=$seconds $0"

need_fuse
install_missing python3:python3
if [ -z "${LODE_BUILT:-}" ]; then
    need_cargo
    cargo build --quiet --profile test -p lode-cli -p lode-preload
fi
LODE=$TARGET/${LODE_BUILT:-debug}/lode

scratch=$(mktemp -d "${LODE_TEST_SCRATCH:-${TMPDIR:-/tmp}}/lode-storm.XXXXXX")
pool=$scratch/pool
mount=$scratch/mount
programs=()
stopped=()
server=
writer=
end_all() {
    local status=$? pid
    [ "$status" = 0 ] || printf 'error: after %d rounds of seed %s\n' "${rounds:-0}" "$seed" >&2
    for pid in "${programs[@]}" $server $writer; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    ! is_mounted "$mount" || umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" || true
    rm -rf "$scratch"
}
trap end_all EXIT

# A program that stores what it can tell again into blocks of all sizes, frees some, forks now and then, and looks. It ends
# with 3 where something is not what it stored; there may be no memory, but never another's.
cat >"$scratch/holder.py" <<'PY'
import os, random, sys
pick = random.Random(int(sys.argv[1]))
held = []

def stamp(size, tag):
    return bytes([tag]) * size

def look(where):
    for size, tag, block in held:
        # (Without memory for a second one: there may be none.)
        if len(block) != size or block.count(tag) != size:
            os.write(2, b"%s: a block of %d bytes is not what was stored\n" % (where, size))
            os._exit(3)

while True:
    for _ in range(30):
        size = pick.choice([100, 5000, 70000, 1 << 20, 5 << 20, 9 << 20])
        if sum(s for s, _, _ in held) + size < 32 << 20:
            tag = pick.randrange(1, 256)
            try:
                held.append((size, tag, bytearray(stamp(size, tag))))
            except MemoryError:
                pass
        elif held:
            held.pop(pick.randrange(len(held)))
    look(b"program")
    if pick.randrange(8) == 0:
        child = os.fork()
        if child == 0:
            look(b"child")
            for _, _, block in held[:3]:
                block[0] ^= 0xff
            os._exit(0)
        if os.waitpid(child, 0)[1] >> 8 == 3:
            os._exit(3)
        look(b"parent")
PY

# number KEY: the largest number of this key in what comes in.
number() { sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" | sort -n | tail -1; }
free_pages() { "$LODE" info "$1" --json | number pages_free; }

# within TENTHS WHAT COMMAND...: until the command succeeds.
within() {
    local tries=$1 what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || die "not in time: $what"
        sleep 0.1
    done
}
is_dead() { ! is_alive "$1"; }
# (What a process had open is closed a little later.)
is_over() { is_dead "$1" && "$LODE" info "$pool"; }
lends_nothing() { [ "$("$LODE" heap stats "$1" --json | number lent_bytes)" = 0 ]; }

# serve HOW: the pool is lent from by a mount, or by a server without one.
serve() {
    if [ "$1" = alone ]; then
        "$LODE" heap serve "$pool" --foreground -o heap_reserve=16M >"$scratch/served" 2>&1 &
        server=$!
        disown "$server"
        at=$pool
    else
        "$LODE" mount "$pool" "$mount" -o heap_reserve=16M >/dev/null
        server=$(server_pid "$mount")
        at=$mount
    fi
    within 200 "somebody lends" "$LODE" heap stats "$at"
}

# start METHOD: a program, whose process is known: the command takes the place of what starts it.
start() {
    started=$((started + 1))
    "$LODE" heap run --pool "$at" --method "$1" -- python3 "$scratch/holder.py" $((seed * 1000 + started)) \
        2>>"$scratch/errors" &
    programs+=($!)
    # (The shell need not tell how it ends.)
    disown $!
}

# write_files: some that are looked at after the next kill, some that go. From within: without the mount its directory is another.
write_files() {
    cd "$mount" || return 0
    local turn number
    for turn in 1 2 3; do
        for number in $(seq 12); do
            head -c $((number * turn * 9000)) /dev/urandom >"new-$number" || return 0
            sha256sum <"new-$number" >"$scratch/sum-$number.new" || return 0
            # (In this order: what is told is there.)
            mv "new-$number" "kept-$number" || return 0
            mv "$scratch/sum-$number.new" "$scratch/sum-$number"
            rm -f "gone-$((number - 1))"
            head -c 300000 /dev/zero >"gone-$number" || return 0
        done
    done 2>/dev/null
}

# all_live: none ends by itself.
all_live() {
    local pid
    for pid in "${programs[@]}"; do
        is_alive "$pid" || die "a program has ended: $(tail -5 "$scratch/errors")"
    done
}

# kill_one: any of the programs.
kill_one() {
    [ ${#programs[@]} -gt 0 ] || return 0
    local which=$((RANDOM % ${#programs[@]}))
    local pid=${programs[$which]}
    kill -9 "$pid" 2>/dev/null || true
    within 100 "a killed program ends" is_dead "$pid"
    unset "programs[$which]"
    programs=("${programs[@]}")
}

# stop_some: half of the programs, just as they are; in half of all cases while they wait for who lends, who answers to them then.
stop_some() {
    local pid slow=$((RANDOM % 2))
    if [ $slow -eq 1 ]; then
        kill -STOP "$server"
        sleep 0.1
    fi
    for pid in "${programs[@]}"; do
        [ $((RANDOM % 2)) -eq 0 ] || continue
        kill -STOP "$pid"
        stopped+=("$pid")
        stops=$((stops + 1))
    done
    if [ $slow -eq 1 ]; then
        kill -CONT "$server"
        sleep 0.1
    fi
}
go_on() {
    local pid
    for pid in "${stopped[@]}"; do kill -CONT "$pid" 2>/dev/null || true; done
    stopped=()
}

"$LODE" mkfs "$pool" --size 320M >/dev/null
mkdir "$mount"
serve mounted
"$LODE" umount "$mount" >/dev/null
server=
before=$(free_pages "$pool")
methods=(direct indirect mmap)
RANDOM=$seed
lent_most=0 rounds=0 started=0 survived=0 stops=0
end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ]; do
    if [ $((RANDOM % 3)) -eq 0 ]; then serve alone; else serve mounted; fi
    while [ ${#programs[@]} -lt $((2 + RANDOM % 3)) ]; do start "${methods[$((RANDOM % 3))]}"; done
    writer=
    if [ "$at" = "$mount" ]; then write_files & writer=$!; fi
    # (Files are written meanwhile.)
    sleep "0.$((RANDOM % 6))"
    go_on
    sleep "$((RANDOM % 2)).$((RANDOM % 9))"
    all_live
    lent=$("$LODE" heap stats "$at" --json | number lent_bytes)
    [ "$lent" -le "$lent_most" ] || lent_most=$lent
    stop_some
    # A program, or none, then who lends: one time in three by a signal that it may heed; then perhaps a program without an owner.
    [ $((RANDOM % 3)) -eq 0 ] || kill_one
    if [ $((RANDOM % 3)) -eq 0 ]; then kill -TERM "$server"; else kill -9 "$server"; fi
    within 300 "who lends ends" is_over "$server"
    server=
    if [ -n "$writer" ]; then wait "$writer" || true; fi
    writer=
    ! is_mounted "$mount" || umount -l "$mount"
    [ $((RANDOM % 2)) -eq 0 ] || kill_one
    all_live
    survived=$((survived + ${#programs[@]}))
    # Beside programs that live on with what they have.
    "$LODE" fsck -n "$pool" >"$scratch/fsck" || die "the pool is not clean after round $rounds: $(cat "$scratch/fsck")"
    rounds=$((rounds + 1))
done
[ "$lent_most" -gt 0 ] || die "nothing was lent"
[ "$survived" -gt 0 ] || die "nobody has outlived who lent it memory"

# Files are what was written, beside programs that are there still; then these end, and all that they had is back.
serve mounted
for sum in "$scratch"/sum-*[0-9]; do
    kept=$mount/kept-${sum##*-}
    [ "$(sha256sum <"$kept")" = "$(cat "$sum")" ] || die "$kept is not what was written"
done
go_on
while [ ${#programs[@]} -gt 0 ]; do kill_one; done
within 100 "all is back" lends_nothing "$mount"
rm -f "$mount"/kept-* "$mount"/gone-* "$mount"/new-*
# (A chunk that is kept ready is as free as any.)
live=$(free_pages "$mount")
# What is free is what recovery finds, too, who knows of nothing that was lent.
kill -9 "$server"
within 300 "who lends ends" is_over "$server"
server=
umount -l "$mount"
"$LODE" fsck -n "$pool" >"$scratch/fsck" || die "the pool is not clean: $(cat "$scratch/fsck")"
serve mounted
recovered=$(free_pages "$mount")
"$LODE" umount "$mount" >/dev/null
server=
closed=$(free_pages "$pool")
echo "free: before $before; $live; after recovery: $recovered; closed: $closed"
[ "$live $closed" = "$recovered $before" ] || die "free space is not what it has to be"
echo "$rounds rounds, $started programs, $survived times one outlived its owner, $stops times one was stopped, at most $lent_most bytes lent at a look"
