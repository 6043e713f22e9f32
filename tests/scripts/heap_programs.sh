#!/usr/bin/env bash
# Real programs with main memory of a pool, by each method: a C project built by make -j2, compiling and linking apart, numpy,
# SQLite in memory, sort of more than it may have, Redis. What they give is what they give without; and what they have
# in use is the pool's, at least nine tenths of it, by their own ledger.
# LODE_HEAP_VALUES_MIB: of Redis' values; 1024, where there is the memory. LODE_HEAP_LINES: to be sorted.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
lines=${LODE_HEAP_LINES:-1000000}

install_missing python3:python3 cc:build-essential make:build-essential sqlite3:sqlite3
(install_missing redis-server:redis-server) >/dev/null 2>&1 || true
if [ -z "${LODE_BUILT:-}" ]; then
    need_cargo
    cargo build --quiet --profile test -p lode-cli -p lode-preload
fi
LODE=$TARGET/${LODE_BUILT:-debug}/lode

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-heap.XXXXXX")
# The pool is memory where there is enough for it and for what else runs.
available_mib=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
usual_mib=1024
[ "$available_mib" -ge 5000 ] || usual_mib=128
values_mib=${LODE_HEAP_VALUES_MIB:-$usual_mib}
[ "$values_mib" -ge 1024 ] || echo "skipped: Redis with 1 GiB of values: $available_mib MiB of memory are free"
pool_mib=$((values_mib + values_mib / 8 + 640))
memory=${LODE_TEST_SCRATCH:-/dev/shm}
pool=$scratch/pool
if [ -w "$memory" ] && [ "$(df --output=avail -m "$memory" | tail -1)" -gt "$pool_mib" ]; then
    pool=$(mktemp -u "$memory/lode-heap.XXXXXX")
fi
server=""
redis=""
end_all() {
    local pid
    for pid in $redis $server; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$scratch" "$pool"
}
trap end_all EXIT

"$LODE" mkfs "$pool" --size "${pool_mib}M" >/dev/null
"$LODE" heap serve "$pool" --foreground >"$scratch/served" 2>&1 &
server=$!
tries=0
until "$LODE" heap stats "$pool" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 400 ] || die "nobody lends: $(cat "$scratch/served")"
    sleep 0.05
done

# with METHOD COMMAND...
with() {
    local method=$1
    shift
    timeout 250 "$LODE" heap run --pool "$pool" --method "$method" --ledger "$scratch" -- "$@"
}

# is_the_pools WHAT [LEAST_MIB]: of what the processes of the ledger had in use, which is then begun anew.
is_the_pools() {
    python3 - "$1" "${2:-8}" "$scratch/ledger" <<'PY' || exit 1
import json, sys
what, least, path = sys.argv[1], int(sys.argv[2]) << 20, sys.argv[3]
pool = dram = processes = 0
for line in open(path):
    it = json.loads(line)
    # (A program of a few megabytes is mostly what libc has made for itself before anything else.)
    if it["pool_touched"] + it["dram_peak"] >= least:
        pool, dram, processes = pool + it["pool_touched"], dram + it["dram_peak"], processes + 1
if not processes:
    sys.exit(f"error: {what}: no process of {least >> 20} MiB is in the ledger")
part = pool / (pool + dram)
print(f"{what}: {processes} processes, {pool >> 20} MiB of the pool, {part:.3f} of what they had in use")
if part < 0.9:
    sys.exit(f"error: {what}: less than nine tenths are the pool's")
PY
    rm -f "$scratch/ledger"
}

# told WHAT: how long it took since the last time.
last=0
told() {
    echo "($1: $((SECONDS - last)) s)"
    last=$SECONDS
}

# A C project: ten files of many functions, and the program that they make.
mkdir "$scratch/project"
python3 - "$scratch/project" <<'PY'
import sys
where = sys.argv[1]
files = 8
for number in range(files):
    with open(f"{where}/part{number}.c", "w") as out:
        out.write("#include <stdio.h>\n#include <string.h>\n")
        for f in range(120):
            out.write(f"""
int part{number}_{f}(int n) {{
    int sums[16] = {{0}}, i;
    for (i = 0; i < n; i++) {{ sums[i % 16] += i * {f + 3} + (i ^ {number + 1}); if (sums[i % 16] % {f + 2} == 1) sums[(i + 3) % 16] -= i; }}
    switch (n % 5) {{ case 0: return sums[0] + sums[5]; case 1: return sums[1] ^ sums[7]; case 2: return sums[2] * 3; default: return (int)strlen("{f}") + sums[9]; }}
}}
""")
        out.write(f"int part{number}(int n) {{ int sum = 0;\n" + "".join(f"sum += part{number}_{f}(n + {f});\n" for f in range(120)) + "return sum; }\n")
with open(f"{where}/main.c", "w") as out:
    out.write("#include <stdio.h>\n" + "".join(f"int part{n}(int);\n" for n in range(files)))
    out.write("int main(void) { int sum = 0;\n" + "".join(f"sum ^= part{n}({n + 40});\n" for n in range(files)) + 'printf("%d\\n", sum); return 0; }\n')
with open(f"{where}/Makefile", "w") as out:
    names = " ".join([f"part{n}.o" for n in range(files)] + ["main.o"])
    out.write(f"CFLAGS = -O2\nobjects: {names}\nprogram: {names}\n\tcc -o program {names}\nclean:\n\trm -f *.o program\n")
PY
build() { "$@" make -s -C "$scratch/project" clean && "$@" make -s -j2 -C "$scratch/project" objects; }
build env
make -s -C "$scratch/project" program
"$scratch/project/program" >"$scratch/wanted"
wanted=$(sha256sum <"$scratch/project/program")
for method in direct indirect mmap; do
    build with "$method"
    is_the_pools "$method: make -j2, compiling" 4
    with "$method" make -s -C "$scratch/project" program
    is_the_pools "$method: make, linking" 4
    [ "$(sha256sum <"$scratch/project/program")" = "$wanted" ] || die "$method: the project is another one"
    cmp <("$scratch/project/program") "$scratch/wanted" || die "$method: the program says something else"
done

told "a C project"

# sort, with less memory than its input takes.
python3 -c 'import random, sys
pick = random.Random(1)
for _ in range(int(sys.argv[1])): print(pick.getrandbits(150))' "$lines" >"$scratch/lines"
LC_ALL=C sort -S 24M -T "$scratch" "$scratch/lines" | sha256sum >"$scratch/wanted"
for method in direct indirect mmap; do
    LC_ALL=C with "$method" sort -S 24M -T "$scratch" "$scratch/lines" | sha256sum | cmp - "$scratch/wanted" ||
        die "$method: sort gives something else"
    is_the_pools "$method: sort of $(du -m "$scratch/lines" | cut -f1) MiB in 24"
done

told sort

# SQLite in memory.
cat >"$scratch/queries" <<'SQL'
create table t (a integer primary key, b text, c integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
insert into t select i, hex(i * 7919) || '-' || (i % 97), i % 1009 from n;
create index t_b on t (b);
select count(*), sum(c), max(b), min(b) from t;
select c, count(*) from t where b > '3' group by c order by 2 desc, 1 limit 5;
SQL
sqlite3 :memory: <"$scratch/queries" >"$scratch/wanted"
for method in direct indirect mmap; do
    with "$method" sqlite3 :memory: <"$scratch/queries" | cmp - "$scratch/wanted" || die "$method: SQLite says something else"
    is_the_pools "$method: SQLite in memory"
done

told SQLite

# numpy, where it is to be had.
python=/usr/bin/python3
"$python" -c 'import numpy' 2>/dev/null || (install_missing python3-numpy-is-a-module:python3-numpy) >/dev/null 2>&1 || true
if "$python" -c 'import numpy' 2>/dev/null; then
    cat >"$scratch/arrays.py" <<'PY'
import numpy
a = numpy.arange(9_000_000, dtype=numpy.float64)
b = (a * 3.5 + 1).reshape(3000, 3000)
c = b.T + b
print(c.sum(), numpy.sort(a[::-1])[:5], (b[:300, :300] @ c[:300, :300]).trace())
PY
    "$python" "$scratch/arrays.py" >"$scratch/wanted"
    for method in direct indirect mmap; do
        with "$method" "$python" "$scratch/arrays.py" | cmp - "$scratch/wanted" || die "$method: numpy says something else"
        is_the_pools "$method: numpy"
    done
else
    echo "skipped: numpy is missing"
fi

told numpy

# redis_with METHOD MIB: Redis, with so much in values, and what it has in the end read back.
redis_with() {
    local method=$1 mib=$2 socket=$scratch/redis.sock tries=0 key
    "$LODE" heap run --pool "$pool" --method "$method" --ledger "$scratch" -- redis-server --port 0 --unixsocket "$socket" \
        --save "" --appendonly no --daemonize no --dir "$scratch" >"$scratch/redis" 2>&1 &
    redis=$!
    until redis-cli -s "$socket" ping >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || die "$method: Redis does not answer: $(tail -5 "$scratch/redis")"
        sleep 0.05
    done
    redis-cli -s "$socket" eval "for i = 1, $mib do redis.call('set', 'key' .. i, string.rep(tostring(i) .. ',', 600000):sub(1, 1048576)) end return 'done'" 0 >/dev/null
    for key in 1 $((mib / 2)) "$mib"; do
        redis-cli -s "$socket" get "key$key" | tr -d '\n' | sha256sum |
            cmp - <(python3 -c 'import sys; print((sys.argv[1] + ",") * 600000, end="")' "$key" | head -c 1048576 | sha256sum) ||
            die "$method: Redis has another value of key$key"
    done
    [ "$(redis-cli -s "$socket" dbsize)" = "$mib" ] || die "$method: Redis has lost keys"
    redis-cli -s "$socket" shutdown nosave >/dev/null 2>&1 || true
    wait "$redis" || die "$method: Redis ended with $?"
    redis=
    is_the_pools "$method: Redis with $mib MiB of values"
}
if command -v redis-server >/dev/null 2>&1 && command -v redis-cli >/dev/null 2>&1; then
    redis_with direct "$values_mib"
    redis_with indirect $((values_mib / 8))
    redis_with mmap $((values_mib / 8))
else
    echo "skipped: redis-server is missing"
fi

told Redis

# All is back.
tries=0
until "$LODE" heap stats "$pool" --json | grep -q '"lent_bytes": *0\b'; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || die "memory of programs that have ended is still lent: $("$LODE" heap stats "$pool")"
    sleep 0.05
done
kill "$server"
wait "$server" || die "the server ended with $?"
server=
"$LODE" fsck -n "$pool" >"$scratch/fsck" || die "the pool is not clean: $(cat "$scratch/fsck")"
