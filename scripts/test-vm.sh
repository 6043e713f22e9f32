#!/usr/bin/env bash
# Pools on emulated persistent memory, in virtual machines: tests/vm/. What is written behind it are names of scenarios.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_cargo
say "Building"
cargo build --profile test --package lode-cli --bin lode
cargo build --profile test --package lode-testkit --features real --example plug --example stamps
cargo build --profile test --package lode --example mapping
say "Virtual machines"
bash tests/vm/run.sh "$@"
