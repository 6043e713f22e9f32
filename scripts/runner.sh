#!/usr/bin/env bash
# Runs a program of tests for cargo, which calls it if CARGO_TARGET_..._RUNNER says so: none may hang. LODE_WHICH says which
# are run now: `beside` those that other things may run beside, `alone` the others; without it all.
set -euo pipefail
# shellcheck source=scripts/limits.sh
source "$(dirname "${BASH_SOURCE[0]}")/limits.sh"

program=$(basename "$1")
name=${CARGO_PKG_NAME:-docs}/${program%-????????????????}
which=beside
! is_alone "$name" || which=alone
[ "${LODE_WHICH:-$which}" = $which ] || exit 0
exec python3 "$(dirname "${BASH_SOURCE[0]}")/limited.py" "$(limit_of "$name")" "$name" "$@"
