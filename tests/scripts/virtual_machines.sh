#!/usr/bin/env bash
# Pools on emulated persistent memory, in virtual machines whose plug is pulled: tests/vm/. Where there is no qemu or no
# kernel, and none can be installed, it says so.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

status=0
bash tests/vm/image.sh >/dev/null || status=$?
if [ "$status" -eq 77 ]; then
    echo "skipped: no virtual machine can be made here"
    exit 0
fi
[ "$status" -eq 0 ] || die "what virtual machines start from can't be made"
bash tests/vm/run.sh
