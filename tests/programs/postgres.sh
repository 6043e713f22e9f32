#!/usr/bin/env bash
# PostgreSQL: the same content as on ext4; and with the server of the mount killed under pgbench, its
# recovery finds every acknowledged transaction, books that balance and checksums that hold.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

programs() { find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort -V | tail -1 | xargs -r dirname; }
bin=$(programs)
if [ -z "$bin" ]; then
    # Its package would start a database of its own there.
    [ ! -d /run/systemd/system ] || skip "postgres: not installed (apt-get install postgresql)"
    (install_missing initdb:postgresql) || skip "postgres: it can't be installed here"
    bin=$(programs)
fi
prepare postgres "$(by_size 512M 1G)" runuser:util-linux setpriv:util-linux
user=postgres
id $user >/dev/null 2>&1 || skip "postgres: there is no user $user to run it"
mkdir "$SCRATCH/socket"
chown $user "$SCRATCH/socket"
export PGHOST=$SCRATCH/socket PGUSER=$user PGDATABASE=postgres PGOPTIONS=
sql() { psql -X -q -t -A -v ON_ERROR_STOP=1 "$@"; }

# as_user COMMAND ...: becomes it, so that its process is the one we know.
as_user() { exec setpriv --reuid=$user --regid="$(id -g $user)" --init-groups "$@"; }

init() {
    mkdir "$1"
    chown $user "$1"
    (as_user "$bin/initdb" -D "$1" --data-checksums --locale=C.UTF-8 --encoding=UTF8 -A trust -U $user) >"$SCRATCH/initdb.log"
}

# pg_up DIR OPTION ...
pg_up() {
    (as_user "$bin/postgres" -D "$1" -k "$PGHOST" -c listen_addresses= -c shared_buffers=16MB \
        -c max_wal_size=64MB -c min_wal_size=32MB "${@:2}") >"$SCRATCH/postgres.log" 2>&1 &
    postgres=$!
    until "$bin/pg_isready" -q; do
        is_alive $postgres || die "postgres has ended: $(tail -5 "$SCRATCH/postgres.log")"
        sleep 0.05
    done
}

pg_down() {
    kill -INT $postgres
    wait $postgres || die "postgres did not end well: $(tail -5 "$SCRATCH/postgres.log")"
}

# dump DATABASE: without the lines that hold a random word.
dump() { "$bin/pg_dump" "$1" | grep -v '^[\]' | sha256sum; }

content() {
    init "$PWD/data"
    mkdir space
    chown $user space
    pg_up "$PWD/data" -c autovacuum=off -c fsync=on
    sql -c "CREATE TABLESPACE space LOCATION '$PWD/space'"
    "$bin/pgbench" -q -i -s "$(by_size 1 10)" >/dev/null 2>&1
    "$bin/pgbench" -n -c 1 -t "$(by_size 200 5000)" --random-seed=7 >/dev/null 2>&1
    sql <<'SQL'
ALTER TABLE pgbench_history DROP COLUMN mtime;
CREATE TABLE long(id int PRIMARY KEY, text text, list jsonb) TABLESPACE space;
ALTER TABLE long ALTER text SET STORAGE EXTERNAL;
INSERT INTO long SELECT n, repeat(md5(n::text), n * 7 % 2000), jsonb_build_array(n, md5(n::text)) FROM generate_series(1, 300) n;
CREATE INDEX ON long USING gin(list);
CREATE INDEX ON long USING hash(id);
DELETE FROM long WHERE id % 3 = 0;
VACUUM FULL long;
ALTER TABLE pgbench_tellers SET TABLESPACE space;
CREATE DATABASE second TEMPLATE postgres STRATEGY file_copy;
SQL
    dump postgres
    dump second
    sql -c "SELECT count(*), sum(length(text)) FROM long" -c "SELECT sum(abalance) FROM pgbench_accounts"
    sql -c "DROP DATABASE second" -c "CHECKPOINT" -c "SHOW wal_sync_method" -c "SHOW fsync" -c "SHOW data_checksums"
    pg_down
    pg_up "$PWD/data"
    dump postgres
    pg_down
    (as_user "$bin/pg_checksums" --check -D data) | grep -E '^(Bad|Data)'
    # Everything else in there depends on the moment.
    find . -type d | grep -v -E '/(base|PG_[^/]*)/' | sort
    rm -r data space
}
on_both content

# own_writer NUMBER: transactions of two rows and an update; each is noted after it was acknowledged.
own_writer() {
    awk -v w="$1" -v n="$(sql -c "SELECT steps FROM own_done WHERE writer = $1")" 'BEGIN {
        for (;;) {
            n++
            printf "BEGIN; INSERT INTO own VALUES (%d, %d, 1), (%d, %d, 2);\n", w, n, w, n
            printf "UPDATE own_done SET steps = %d WHERE writer = %d; COMMIT;\n\\echo %d\n", n, w, n
        }
    }' 2>/dev/null | sql >>"$SCRATCH/notes-$1" 2>/dev/null
}

# load: starts pgbench and two writers of our own, and returns when these are at work.
load() {
    local writer sizes=()
    before=$(sql -c "SELECT count(*) FROM pgbench_history")
    "$bin/pgbench" -n -c 4 -j 2 -T 600 >"$SCRATCH/pgbench.log" 2>&1 &
    clients=($!)
    for writer in 1 2; do
        sizes[writer]=$(size_of "$SCRATCH/notes-$writer")
        own_writer $writer &
        clients+=($!)
    done
    for writer in 1 2; do
        until_noted "${clients[writer]}" "$SCRATCH/notes-$writer" "${sizes[writer]}"
    done
}

# The mount is gone: PostgreSQL can't go on, and whatever is left of it is ended.
pg_away() {
    local children child
    read -ra children <"/proc/$postgres/task/$postgres/children" || true
    kill -QUIT $postgres 2>/dev/null || true
    for _ in {1..50}; do is_alive $postgres && sleep 0.1; done
    kill_child $postgres
    for child in "${children[@]}"; do
        while is_alive "$child"; do sleep 0.05; done
    done
}

# judge NUMBER: what recovery has to have found.
judge() {
    local writer noted there done_by_pgbench history
    there=$(sql -c "SELECT count(DISTINCT sum) FROM (SELECT sum(abalance) FROM pgbench_accounts
        UNION ALL SELECT sum(bbalance) FROM pgbench_branches UNION ALL SELECT sum(tbalance) FROM pgbench_tellers
        UNION ALL SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS sums")
    [ "$there" = 1 ] || die "postgres: pgbench's books do not balance after kill $1"
    # pgbench says how many it saw end; each of its four clients had one more under way.
    done_by_pgbench=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$SCRATCH/pgbench.log")
    history=$(($(sql -c "SELECT count(*) FROM pgbench_history") - before))
    within "$done_by_pgbench" "$history" $((done_by_pgbench + 4)) ||
        die "postgres: pgbench saw $done_by_pgbench transactions end, $history are there after kill $1"
    transactions=$((transactions + history))
    for writer in 1 2; do
        noted=$(tail -n1 "$SCRATCH/notes-$writer")
        there=$(sql -c "SELECT steps FROM own_done WHERE writer = $writer")
        within "${noted:-0}" "$there" $((${noted:-0} + 1)) ||
            die "postgres: ${noted:-0} transactions of writer $writer were acknowledged, $there are there after kill $1"
        [ "$(sql -c "SELECT count(*), count(DISTINCT step), coalesce(max(step), 0) FROM own WHERE writer = $writer")" = \
            "$((there * 2))|$there|$there" ] || die "postgres: transactions of writer $writer are there in part after kill $1"
    done
    [ "$(by_size quick all)" = quick ] || "$bin/pg_amcheck" --heapallindexed -d postgres
}

lode_up
init "$WORK/data"
pg_up "$WORK/data"
"$bin/pgbench" -q -i -s "$(by_size 1 5)" >/dev/null 2>&1
sql <<'SQL'
CREATE EXTENSION amcheck;
CREATE TABLE own(writer int, step int, part int, PRIMARY KEY (writer, step, part));
CREATE TABLE own_done(writer int PRIMARY KEY, steps int);
INSERT INTO own_done VALUES (1, 0), (2, 0);
SQL
transactions=0
for ((number = 1; number <= $(by_size 2 20); number++)); do
    load
    sleep "$(between 500 "$(by_size 2000 8000)")"
    # The shell would tell of every one that it finds dead.
    {
        kill_lode
        pg_away
        wait "${clients[@]}" || true
    } 2>/dev/null
    lode_again
    pg_up "$WORK/data"
    judge "$number"
done
"$bin/pg_amcheck" --heapallindexed -d postgres
pg_down
(as_user "$bin/pg_checksums" --check -D "$WORK/data") >/dev/null
lode_down
done_well "$("$bin/postgres" --version | cut -d' ' -f1-3), $((number - 1)) kills: all of $transactions pgbench transactions and our own are there"
