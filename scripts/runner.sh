#!/usr/bin/env bash
# Runs a program of tests for cargo, which calls it if CARGO_TARGET_..._RUNNER says so: none may hang. LODE_WHICH says which
# are run now: `alone` those that nothing may run beside, `patient` those that take what others leave, `beside` all else;
# without it all.
set -euo pipefail
# shellcheck source=scripts/limits.sh
source "$(dirname "${BASH_SOURCE[0]}")/limits.sh"

program=$(basename "$1")
name=${CARGO_PKG_NAME:-docs}/${program%-????????????????}
which=beside
! is_alone "$name" || which=alone
! is_patient "$name" || which=patient
[ "${LODE_WHICH:-$which}" = $which ] || exit 0
exec python3 "$(dirname "${BASH_SOURCE[0]}")/limited.py" "$(limit_of "$name")" "$name" "$@"
