#!/usr/bin/env bash
# Explores all crashes there are. What is written behind `make crash` in CRASH_ARGS goes to
# `lode crash run`, such as CRASH_ARGS="--time 3600 --html page.html".
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_cargo
install_missing cc:build-essential
say "Building"
cargo build --release --package lode-cli
say "Exploring"
read -ra args <<<"${CRASH_ARGS:-}"
"$TARGET/release/lode" crash run --full --progress "${args[@]}"
say "Leaving out what each fence, write-back and rule is for"
exec "$TARGET/release/lode" crash mutants --progress
