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
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$TARGET/release/lode" crash run --full --progress "${args[@]}" | tee "$report"
# All of it is more than ten million different states, without the file data in them.
different=$(sed -n 's/.*different images (\([0-9,]*\) without the file data.*/\1/p' "$report" | tr -d ,)
if [ ${#args[@]} -eq 0 ] && [ "${different:-0}" -lt 10000000 ]; then
    echo "only ${different:-no} different states of metadata were judged, not ten million"
    exit 1
fi
say "Leaving out what each fence, write-back and rule is for"
"$TARGET/release/lode" crash mutants --progress
say "Damaging pools: a million times"
"$TARGET/release/lode" crash corrupt --injections 1000000 --progress
say "Pulling the plug of virtual machines: 500 times"
if is_root || command -v qemu-system-x86_64 >/dev/null 2>&1; then
    LODE_PULLS=250 bash scripts/test-vm.sh pulled-library pulled-mount || [ $? -eq 77 ]
else
    echo "skipped: there is no qemu-system-x86_64, and only root can install it"
fi
