#!/usr/bin/env bash
# Format, lints and shell scripts; any warning fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_cargo
install_missing cc:build-essential shellcheck:shellcheck
for part in fmt clippy; do
    cargo "$part" --version >/dev/null 2>&1 ||
        die "cargo $part is missing: rustup component add rustfmt clippy"
done

say "rustfmt"
cargo fmt --all --check
say "clippy"
# (In the tests' profile: what it builds to be run, such as C sources of crates, tests need as well.)
cargo clippy --workspace --all-targets --profile test --quiet -- -D warnings
say "shell scripts"
mapfile -t scripts < <(find scripts tests .ci -type f \( -name '*.sh' -o -path '.ci/run' \) 2>/dev/null | sort)
for script in "${scripts[@]}"; do
    bash -n "$script"
done
shellcheck -x "${scripts[@]}"
say "lint: nothing to complain about"
