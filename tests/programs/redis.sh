#!/usr/bin/env bash
# Redis, its file synced for each answer: with the server of the mount killed in the middle, every
# acknowledged transaction is there and each is whole. And the same content as on ext4.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# The tools' package has the server's program, too, and starts no service.
prepare redis 256M redis-cli:redis-tools redis-check-rdb:redis-tools
load=$PROGRAMS/redis_load.py
program=$SCRATCH/redis-server
ln -s "$(command -v redis-server || command -v redis-check-rdb)" "$program"
socket=$SCRATCH/socket

# redis_up: Redis serves what is in $WORK.
redis_up() {
    "$program" --port 0 --unixsocket "$socket" --dir "$WORK" --appendonly yes --appendfsync always \
        --auto-aof-rewrite-percentage 0 --save '' >"$SCRATCH/redis.log" 2>&1 &
    redis=$!
    until [ "$(redis-cli -s "$socket" ping 2>&1)" = PONG ]; do
        is_alive $redis || die "redis has ended: $(tail -3 "$SCRATCH/redis.log")"
        sleep 0.02
    done
}

redis_down() {
    kill $redis
    wait $redis || die "redis did not end well: $(tail -3 "$SCRATCH/redis.log")"
}

describe() {
    redis-cli -s "$socket" dbsize
    redis-cli -s "$socket" --raw dump long | sha256sum
    redis-cli -s "$socket" --raw zrange sorted 0 -1 withscores
    redis-cli -s "$socket" pfcount distinct
}

content() {
    redis_up
    python3 "$load" fill "$socket" "$(by_size 300 5000)"
    redis_down
    # From what it had appended; then from what it has rewritten.
    redis_up
    describe
    redis-cli -s "$socket" bgrewriteaof >/dev/null
    while redis-cli -s "$socket" info persistence | grep -Eq 'aof_rewrite_(in_progress|scheduled):1'; do sleep 0.02; done
    redis-cli -s "$socket" save
    redis_down
    redis_up
    describe
    redis_down
    redis-check-rdb dump.rdb | grep -c 'RDB looks OK'
    # They hold the time and how much memory was in use.
    rm -r dump.rdb appendonlydir/*.rdb
}
on_both content

lode_up
for ((number = 1; number <= $(by_size 3 40); number++)); do
    redis_up
    writers=() pairs=() sizes=()
    for writer in 1 2 3 4; do
        sizes[writer]=$(size_of "$SCRATCH/notes-$writer")
        python3 "$load" write "$socket" $writer "$SCRATCH/notes-$writer" 2>"$SCRATCH/errors-$writer" &
        writers+=($!)
        pairs+=("$writer:$SCRATCH/notes-$writer")
    done
    for writer in 1 2 3 4; do
        until_noted "${writers[writer - 1]}" "$SCRATCH/notes-$writer" "${sizes[writer]}"
    done
    sleep "$(between 100 1000)"
    # It ends by itself: what it can't make durable it must not answer. The shell would say so.
    {
        kill_lode
        for _ in {1..50}; do is_alive $redis && sleep 0.1; done
        kill_child $redis
    } 2>/dev/null
    for writer in "${writers[@]}"; do
        wait "$writer" || die "redis: a writer failed: $(tail -qn1 "$SCRATCH"/errors-*)"
    done
    lode_again
    redis_up
    python3 "$load" judge "$socket" "${pairs[@]}" >"$SCRATCH/judged" ||
        die "redis: a transaction is lost or torn after kill $number"
    redis_down
done
lode_down
done_well "$(redis-cli --version), $((number - 1)) kills: no acknowledged transaction lost, of $(paste -sd+ "$SCRATCH/judged")"
