#!/usr/bin/env bash
# Takes away what `make run` and the builds have left.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/place.sh
source "$LODE_ROOT/scripts/place.sh"

if is_mounted "$MNT"; then
    "$LODE" umount "$MNT"
fi
rm -f "$POOL"
rmdir "$MNT" 2>/dev/null || true
if command -v cargo >/dev/null 2>&1; then
    cargo clean
fi
