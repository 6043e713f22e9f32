#!/usr/bin/env bash
# Programs with memory of a pool, and who lends it, are killed at random while files are written: no page is lost, none is
# had by two, what a program has stays what it stored, the pool is clean, and in the end as much is free as in the beginning.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
rounds=${LODE_STORM_ROUNDS:-9}

need_cargo
need_fuse
install_missing python3:python3
profile="test"
[ "${LODE_BUILT:-debug}" = debug ] || profile=release
cargo build --quiet --profile "$profile" -p lode-cli -p lode-preload
LODE=$TARGET/${LODE_BUILT:-debug}/lode

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-storm.XXXXXX")
pool=$scratch/pool
mount=$scratch/mount
programs=()
server=
end_all() {
    local pid
    for pid in "${programs[@]}" $server; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    ! is_mounted "$mount" || umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" || true
    rm -rf "$scratch"
}
trap end_all EXIT

# A program that stores what it can tell again into blocks of all sizes, frees some, forks now and then, and looks. It
# ends with 3 where something is not what it stored; there may be no memory, but never another's.
cat >"$scratch/holder.py" <<'PY'
import os, random, sys
seed = int(sys.argv[1])
pick = random.Random(seed)
held = []

def stamp(size, tag):
    return bytes([tag]) * size

def look(where):
    for size, tag, block in held:
        if block != stamp(size, tag):
            os.write(2, b"%s: a block of %d bytes is not what was stored\n" % (where, size))
            os._exit(3)

while True:
    for _ in range(40):
        size = pick.choice([100, 5000, 70000, 1 << 20, 5 << 20])
        if sum(s for s, _, _ in held) + size < 24 << 20:
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

serve() {
    if [ $((round % 3)) -eq 2 ]; then
        "$LODE" heap serve "$pool" --foreground -o heap_reserve=16M >"$scratch/served" 2>&1 &
        server=$!
        at=$pool
    else
        "$LODE" mount "$pool" "$mount" -o heap_reserve=16M
        server=$(server_pid "$mount")
        at=$mount
    fi
    local tries=0
    until "$LODE" heap stats "$at" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || die "nobody lends: $(cat "$scratch/served" 2>/dev/null)"
        sleep 0.05
    done
}

# start METHOD: a program, whose process is known: the command takes the place of what starts it.
start() {
    "$LODE" heap run --pool "$at" --method "$1" -- python3 "$scratch/holder.py" $((round * 100 + ${#programs[@]})) \
        2>>"$scratch/errors" &
    programs+=($!)
}

# write_files: some that are looked at after the next kill, some that go.
write_files() {
    # (From within: without the mount its directory is another one.)
    cd "$mount" || return 0
    local number
    for number in $(seq 20); do
        head -c $((number * 9000)) /dev/urandom >"kept-$number" || return 0
        sha256sum <"kept-$number" >"$scratch/sum-$number.new" || return 0
        mv "$scratch/sum-$number.new" "$scratch/sum-$number"
        rm -f "gone-$((number - 1))"
        head -c 50000 /dev/zero >"gone-$number" || return 0
    done 2>/dev/null
}

# ended: programs that ended by themselves have failed; the others stay in the list.
ended() {
    local pid status still=()
    for pid in "${programs[@]}"; do
        if is_alive "$pid"; then
            still+=("$pid")
        else
            status=0
            wait "$pid" || status=$?
            [ "$status" = 137 ] || die "a program ended with $status: $(tail -5 "$scratch/errors")"
        fi
    done
    programs=("${still[@]}")
}

"$LODE" mkfs "$pool" --size 320M >/dev/null
mkdir "$mount"
"$LODE" mount "$pool" "$mount"
"$LODE" umount "$mount"
before=$(free_pages "$pool")
methods=(direct indirect mmap)
RANDOM=${LODE_STORM_SEED:-1}
lent_most=0
for round in $(seq 0 $((rounds - 1))); do
    serve
    for _ in 1 2 3; do start "${methods[$((RANDOM % 3))]}"; done
    if [ "$at" = "$mount" ]; then write_files & writer=$!; else writer=; fi
    sleep 1.$((RANDOM % 9))
    ended
    lent=$("$LODE" heap stats "$at" --json | number lent_bytes)
    [ "$lent" -le "$lent_most" ] || lent_most=$lent
    # One or two programs, then who lends: at once, every second time by a signal that it may heed.
    for _ in $(seq $((1 + RANDOM % 2))); do
        [ ${#programs[@]} -eq 0 ] || kill -9 "${programs[$((RANDOM % ${#programs[@]}))]}" 2>/dev/null || true
    done
    if [ $((RANDOM % 2)) -eq 0 ]; then kill -9 "$server"; else kill -TERM "$server"; fi
    tries=0
    while is_alive "$server"; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || die "who lends does not end"
        sleep 0.05
    done
    [ -z "$writer" ] || wait "$writer" || true
    ! is_mounted "$mount" || umount -l "$mount"
    ended
    [ ${#programs[@]} -le 4 ] || { kill -9 "${programs[0]}" 2>/dev/null; sleep 0.2; ended; }
    # Beside programs that live on with what they have.
    "$LODE" fsck -n "$pool" >"$scratch/fsck" || die "the pool is not clean after round $round: $(cat "$scratch/fsck")"
done
[ "$lent_most" -gt 0 ] || die "nothing was ever lent"
for pid in "${programs[@]}"; do kill -9 "$pid"; done
for pid in "${programs[@]}"; do wait "$pid" 2>/dev/null || true; done
programs=()

# All is back: files are what was written, and without them as much is free as before.
round=0
serve
for sum in "$scratch"/sum-*; do
    [ "$(sha256sum <"$mount/kept-${sum##*-}")" = "$(cat "$sum")" ] || die "kept-${sum##*-} is not what was written"
done
rm -f "$mount"/kept-* "$mount"/gone-*
"$LODE" umount "$mount"
server=
"$LODE" fsck -n "$pool" >"$scratch/fsck" || die "the pool is not clean: $(cat "$scratch/fsck")"
after=$(free_pages "$pool")
[ "$before" = "$after" ] || die "free before: $before, after: $after"
echo "$rounds rounds, at most $lent_most lent at a look, nothing lost; free: $after"
