#!/usr/bin/env bash
# How many instructions the engine's operations, and those of block devices, execute, counted by valgrind, so that a busy machine changes nothing: as many
# as tests/instructions.tsv says. More than 3 % above is a loss to be explained, more than 10 % below a gain to be kept.
#   tests/scripts/instructions.sh --update     writes what is counted now to the table
# Only the program's own instructions count, not the C library's, of which each machine has another.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

TABLE=$LODE_ROOT/tests/instructions.tsv
TURNS=${LODE_INSTRUCTION_TURNS:-500}
MORE_PERCENT=3
LESS_PERCENT=10

skip() {
    echo "skipped: $*"
    exit 0
}

# counted PROGRAM OPERATION: instructions of one turn.
counted() {
    local program=$TARGET/release/examples/$1 out=$scratch/$2.out
    valgrind --tool=callgrind --toggle-collect='*measured_work*' --callgrind-out-file="$out" \
        "$program" "$2" "$TURNS" >"$scratch/$2.log" 2>&1 || {
        cat "$scratch/$2.log" >&2
        die "$2 could not be counted"
    }
    # In the profile, what a call costs stands in the line behind it, and is counted where it is.
    awk -v turns="$TURNS" '
        /^c?ob=/ {
            at = name = substr($0, index($0, "=") + 1)
            sub(/ .*/, "", at)
            if (sub(/^[^ ]* /, "", name)) objects[at] = name
            if (/^ob=/) own = objects[at] ~ /\/examples\/instructions(_blocks)?$/
            next
        }
        /^calls=/ { getline; next }
        /^[0-9+*-]/ { if (own) sum += $NF }
        END { printf "%d\n", sum / turns }' "$out"
}

[ "$(uname -m)" = x86_64 ] || skip "instructions are counted on x86-64"
# Where it can't be had, there is nothing to count with.
(install_missing valgrind:valgrind) >/dev/null 2>&1 || true
command -v valgrind >/dev/null 2>&1 || skip "valgrind is missing"
need_cargo
install_missing cc:build-essential

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-instructions.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
programs=(instructions instructions_blocks)
# (What is not counted need not be optimised: that only takes the compiler its time.)
uncounted=()
for crate in rustls rustls-webpki; do
    uncounted+=(--config "profile.release.package.\"$crate\".opt-level=0")
done
CARGO_PROFILE_RELEASE_DEBUG=false cargo build --quiet --release "${uncounted[@]}" \
    -p lode-testkit --features counted "${programs[@]/#/--example=}"
compiler=$(rustc --version)

for program in "${programs[@]}"; do
    "$TARGET/release/examples/$program" >"$scratch/names"
    while read -r name; do
        printf '%s\t%s\n' "$name" "$(counted "$program" "$name")"
    done <"$scratch/names"
done >"$scratch/counts"

if [ "${1:-}" = --update ]; then
    {
        printf '# Instructions that one turn executes: made by tests/scripts/instructions.sh --update\n'
        printf '# %s\n' "$compiler"
        cat "$scratch/counts"
    } >"$TABLE"
    cat "$TABLE"
    exit 0
fi

# Another compiler makes other instructions of the same.
made_by=$(sed -n 's/^# \(rustc .*\)/\1/p' "$TABLE")
if [ "$made_by" != "$compiler" ]; then
    cat "$scratch/counts"
    skip "the table of instructions is of $made_by, this is $compiler"
fi
awk -F '\t' -v more="$MORE_PERCENT" -v less="$LESS_PERCENT" '
    /^#/ { next }
    FNR == NR { figure[$1] = $2; next }
    {
        if (!($1 in figure)) { printf "%-14s %7d   has no figure\n", $1, $2; wrong++; next }
        change = ($2 / figure[$1] - 1) * 100
        word = change > more ? "too many" : change < -less ? "a gain: keep it" : ""
        if (word) wrong++
        printf "%-14s %7d of %7d %+6.1f %%  %s\n", $1, $2, figure[$1], change, word
        delete figure[$1]
    }
    END {
        for (name in figure) { printf "%-14s is counted no more\n", name; wrong++ }
        exit wrong > 0
    }' "$TABLE" "$scratch/counts" || die "the engine does not execute the instructions that $TABLE says.
  valgrind --tool=callgrind $program OPERATION $TURNS, then callgrind_annotate, shows where they are.
  If they are what is wanted:  bash tests/scripts/instructions.sh --update  and say why in the commit."
