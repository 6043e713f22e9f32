#!/usr/bin/env bash
# The independent reader reads what a pool of docs/format.md holds, and finds what is damaged.
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/../reader/test_reader.py"
