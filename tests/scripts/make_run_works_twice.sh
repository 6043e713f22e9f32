#!/usr/bin/env bash
# `make run` works, works again with what it left, and again when its server was killed in between.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source=scripts/place.sh
source "$LODE_ROOT/scripts/place.sh"

# Not where the user's own pool may be.
export LODE_RUN_POOL=$POOL_DIR/lode-test-$PLACE_ID.pool LODE_RUN_MNT
LODE_RUN_MNT=$(mktemp -d "${TMPDIR:-/tmp}/lode-test.XXXXXX")
cleanup() {
    if is_mounted "$LODE_RUN_MNT"; then
        "$LODE" umount "$LODE_RUN_MNT"
    fi
    rm -f "$LODE_RUN_POOL"
    rmdir "$LODE_RUN_MNT"
}
trap cleanup EXIT

for round in fresh again after-a-kill; do
    printf '\n---- make run, %s\n' "$round"
    bash scripts/run.sh
    [ -d "$LODE_RUN_MNT/source" ] || die "make run has not left the pool mounted"
    if [ "$round" = again ]; then
        pid=$(server_pid "$LODE_RUN_MNT")
        kill -9 "$pid"
    fi
done
