#!/usr/bin/env bash
# Everything that must hold: Rust tests, then script tests. With --all, longer.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What is built is what the tests build anyway.
build_args=(--workspace --profile test)
cargo_args=(--workspace --no-fail-fast)
test_args=(-- --show-output)
export LODE_BUILT=debug
if [ "${1:-}" = --all ]; then
    export LODE_KILLS=${LODE_KILLS:-1000} LODE_COPIES=${LODE_COPIES:-300}
    export LODE_FSX_OPS=${LODE_FSX_OPS:-1000000} LODE_FSX_SEEDS=${LODE_FSX_SEEDS:-1 2 3}
    export LODE_STRESS_SECONDS=${LODE_STRESS_SECONDS:-600} LODE_MEMORY_SECONDS=${LODE_MEMORY_SECONDS:-3600}
    export LODE_FILE_OPS=${LODE_FILE_OPS:-1000000}
    export LODE_PROGRAMS=${LODE_PROGRAMS:-all}
    build_args=(--workspace)
    LODE_BUILT=release
    cargo_args+=(--release)
    # A hundred programs are not optimised across crates one by one.
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    test_args+=(--include-ignored)
fi

need_cargo
install_missing cc:build-essential sqlite3:sqlite3 python3:python3 nm:binutils objdump:binutils \
    stress-ng:stress-ng fusermount3:fuse3 dbench:dbench mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs c++:g++ \
    pkg-config:pkg-config
need_fuse

log=$(mktemp)
trap 'rm -f "$log" "$log.failed"' EXIT
started=$SECONDS
say "Building"
cargo build "${build_args[@]}"

failed=()
say "Rust tests"
cargo test "${cargo_args[@]}" "${test_args[@]}" 2>&1 | tee "$log" || failed+=("cargo test")

say "Script tests"
passed=0
shopt -s nullglob
for script in tests/scripts/*.sh tests/programs/*.sh; do
    [ "$script" != tests/programs/lib.sh ] || continue
    printf '\n-- %s\n' "$script"
    printf -- '---- %s stdout ----\n' "$script" >>"$log"
    if bash "$script" 2>&1 | tee -a "$log"; then
        passed=$((passed + 1))
    else
        failed+=("$script")
    fi
done

minutes=$(((SECONDS - started + 59) / 60))
say "make test: $minutes minutes"
# What the machine lacks: each reason, and the tests that could not do all they do.
awk '
    /^---- .* stdout ----$/ { test = $2 }
    /^skipped: / {
        why = substr($0, 10)
        if (!seen[why, test]++) {
            if (!count[why]++) order[++reasons] = why
            if (!known[test]++) tests++
            names[why] = names[why] "\n      " test
        }
    }
    END {
        printf "skipped, in part or wholly: %d tests\n", tests
        for (i = 1; i <= reasons; i++) printf "  %s:%s\n", order[i], names[order[i]]
    }' "$log"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    # Which ones: who reads only the end of a long log needs the names, and what each said last.
    awk '
        /^ +Running |^ +Doc-tests / { where = $0; sub(/^ +/, "", where) }
        /^test .* \.\.\. FAILED$/ { printf "  %s: %s\n", where, $2; failed[$2] }
        /^---- .* stdout ----$/ { test = $2; n = 0 }
        /panicked at/ && test in failed && n == 0 { n = 4 }
        n > 0 && test in failed { print "      " substr($0, 1, 400); n-- }' "$log"
    for name in "${failed[@]}"; do
        [ "$name" != "cargo test" ] || continue
        printf '\n-- %s, its last lines:\n' "$name"
        awk -v test="$name" '/^---- .* stdout ----$/ { on = $2 == test; next } on' "$log" |
            { grep -A25 '^FAILED' || true; } >"$log.failed"
        [ -s "$log.failed" ] || awk -v test="$name" '/^---- .* stdout ----$/ { on = $2 == test; next } on' "$log" |
            tail -40 >"$log.failed"
        cut -c1-300 "$log.failed" | head -80
    done
fi
scripts_failed=0
for name in "${failed[@]}"; do
    [ "$name" = "cargo test" ] || scripts_failed=$((scripts_failed + 1))
done
echo "$passed passed, $scripts_failed failed"
[ ${#failed[@]} -eq 0 ]
