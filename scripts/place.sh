# Where `make run` has its things. Sourced after lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034
# One pool for each user and checkout, so that two of them don't meet.
PLACE_ID=$(id -u)-$(printf '%s' "$LODE_ROOT" | cksum | cut -d' ' -f1)
POOL_BYTES=$((1 << 30))

# has_room DIR: room for the pool, or the pool is there already.
has_room() {
    [ -d "$1" ] && [ -w "$1" ] || return 1
    [ -e "$1/lode-run-$PLACE_ID.pool" ] && return 0
    [ "$(df --output=avail -B1 "$1" | tail -1)" -gt $((POOL_BYTES + (64 << 20))) ]
}

POOL_DIR=${TMPDIR:-/tmp}
if has_room "${LODE_TEST_SCRATCH:-/dev/shm}"; then
    POOL_DIR=${LODE_TEST_SCRATCH:-/dev/shm}
fi
POOL=${LODE_RUN_POOL:-$POOL_DIR/lode-run-$PLACE_ID.pool}
MNT=${LODE_RUN_MNT:-$LODE_ROOT/mnt}
# (Tests take what they have built.)
LODE=$TARGET/${LODE_BUILT:-release}/lode
