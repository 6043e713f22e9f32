#!/usr/bin/env bash
# Fuzzing of the NBD server's conversations and parsers (nbd/fuzz), for half a minute: by libFuzzer, which sees what each
# input reaches. The flags are those of `cargo fuzz run --sanitizer none`, which the stable compiler has as well.
# LODE_FUZZ_SECONDS fuzzes longer.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
seconds=${LODE_FUZZ_SECONDS:-30}

need_cargo
install_missing c++:g++
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target, what runs while building is built without the flags. (Not optimised as far as can be: that takes the compiler longer than
# the fuzzer is given.)
flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Ccodegen-units=1
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares)
RUSTFLAGS="${flags[*]}" CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_TARGET_DIR=$TARGET/fuzz CARGO_INCREMENTAL=0 \
    cargo build --quiet --locked --release --manifest-path nbd/fuzz/Cargo.toml --target "$host" --bins

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# fuzz TARGET SECONDS MOST_BYTES: one that fails leaves its input below the target directory.
fuzz() {
    local found=$scratch/$1 kept=$TARGET/fuzz/failures
    mkdir -p "$found" "$kept"
    if ! timeout $(($2 + 60)) "$TARGET/fuzz/$host/release/$1" -max_total_time="$2" -max_len="$3" -timeout=20 \
        -rss_limit_mb=1024 -print_final_stats=1 -verbosity=0 -artifact_prefix="$kept/" \
        "$found" "nbd/fuzz/corpus/$1" >"$scratch/log" 2>&1; then
        tail -40 "$scratch/log" >&2
        die "fuzzing of $1 has found something: its input is in $kept"
    fi
    local runs
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$scratch/log")
    [ "${runs:-0}" -gt "$(find "nbd/fuzz/corpus/$1" -type f | wc -l)" ] || die "$1 was not fuzzed"
    echo "nbd_fuzz: $1: $runs inputs, $(find "$found" -type f | wc -l) of them reached something new"
}

fuzz conversation $((seconds * 5 / 6)) 32768
fuzz parsers $((seconds - seconds * 5 / 6)) 8192
