#!/usr/bin/env bash
# Everything that must hold: Rust tests, then script tests. With --all, longer.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cargo_args=(--workspace --no-fail-fast)
test_args=()
if [ "${1:-}" = --all ]; then
    export LODE_KILLS=${LODE_KILLS:-1000} LODE_COPIES=${LODE_COPIES:-300}
    cargo_args+=(--release)
    test_args+=(-- --include-ignored)
fi

need_cargo
install_missing cc:build-essential sqlite3:sqlite3 python3:python3
need_fuse

started=$SECONDS
say "Building"
cargo build --workspace

failed=()
say "Rust tests"
cargo test "${cargo_args[@]}" "${test_args[@]}" || failed+=("cargo test")

say "Script tests"
passed=0
shopt -s nullglob
for script in tests/scripts/*.sh; do
    printf '\n-- %s\n' "$script"
    if bash "$script"; then
        passed=$((passed + 1))
    else
        failed+=("$script")
    fi
done

minutes=$(((SECONDS - started + 59) / 60))
say "make test: $minutes minutes"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
fi
scripts_failed=0
for name in "${failed[@]}"; do
    [ "$name" = "cargo test" ] || scripts_failed=$((scripts_failed + 1))
done
echo "$passed passed, $scripts_failed failed"
[ ${#failed[@]} -eq 0 ]
