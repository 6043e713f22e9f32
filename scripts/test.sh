#!/usr/bin/env bash
# Everything that must hold: Rust tests, then script tests. With --all, longer.
#
# Each script and each program of tests has a limit (scripts/limits.sh), and so has all of it, if LODE_BEGIN_BY and LODE_END_BY
# say so (seconds since 1970): after the first nothing begins any more, at the second what still runs is ended.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/limits.sh
source "$LODE_ROOT/scripts/limits.sh"

# All is built once, as the Rust tests need it; the scripts take what is there.
# (What a kernel would hold is built by the test that looks at it, as a kernel needs it.)
cargo_args=(--workspace --exclude lode-kernelcheck)
test_args=(-- --show-output)
export LODE_BUILT=debug
if [ "${1:-}" = --all ]; then
    export LODE_KILLS=${LODE_KILLS:-1000} LODE_COPIES=${LODE_COPIES:-300}
    export LODE_FSX_OPS=${LODE_FSX_OPS:-1000000} LODE_FSX_SEEDS=${LODE_FSX_SEEDS:-1 2 3}
    export LODE_STRESS_SECONDS=${LODE_STRESS_SECONDS:-600} LODE_MEMORY_SECONDS=${LODE_MEMORY_SECONDS:-3600}
    export LODE_FILE_OPS=${LODE_FILE_OPS:-1000000} LODE_STORM_SECONDS=${LODE_STORM_SECONDS:-900}
    export LODE_PROGRAMS=${LODE_PROGRAMS:-all}
    export LODE_LIMIT_TIMES=${LODE_LIMIT_TIMES:-24}
    LODE_BUILT=release
    cargo_args+=(--release)
    # A hundred programs are not optimised across crates one by one.
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    test_args+=(--include-ignored)
fi

need_cargo
install_missing cc:build-essential sqlite3:sqlite3 python3:python3 nm:binutils objdump:binutils \
    stress-ng:stress-ng fusermount3:fuse3 dbench:dbench mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs c++:g++ \
    pkg-config:pkg-config
need_fuse

work=$(mktemp -d)
log=$work/log
export LODE_TIMES=$work/times
# By process: the step, and the file of what it says.
declare -A running=() said=()
finish() {
    local pid
    for pid in "${!running[@]}"; do
        printf '\n-- %s is ended; its last lines:\n' "${running[$pid]}"
        tail -30 "${said[$pid]}"
        # (It ends what it has started, and itself, within half a minute.)
        kill "$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT

# The command of a step, which is a script, or `cargo test` of a part of the tests of Rust (scripts/runner.sh).
runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER
command_of() {
    local which=${1##* }
    case $1 in
    cargo*)
        command=(env "$runner=$LODE_ROOT/scripts/runner.sh" "LODE_WHICH=$which" cargo test "${cargo_args[@]}" --no-fail-fast)
        # (Those of documents are beside.)
        [ "$which" = beside ] || command+=(--tests)
        command+=("${test_args[@]}")
        [ "$which" != patient ] || command=(nice -n 19 "${command[@]}")
        ;;
    *) command=(bash "$1") ;;
    esac
    command=(python3 scripts/limited.py "$(limit_of "$1")" "$1" "${command[@]}")
}

passed=0 failed=() not_run=()
# begin STEP: in the background.
begin() {
    local command file
    file=$(mktemp "$work/step.XXXXXX")
    command_of "$1"
    printf -- '-- %s: begins after %d s\n' "$1" "$SECONDS"
    "${command[@]}" >"$file" 2>&1 &
    running[$!]=$1 said[$!]=$file
}

# await: waits until one of those that run has ended, and shows what it said.
await() {
    local pid status=0 step
    wait -n -p pid "${!running[@]}" || status=$?
    step=${running[$pid]}
    unset "running[$pid]"
    printf '\n-- %s\n' "$step"
    printf -- '---- %s stdout ----\n' "${step// /-}" >>"$log"
    tee -a "$log" <"${said[$pid]}"
    rm "${said[$pid]}"
    case $status in
    0) [[ $step == cargo* ]] || passed=$((passed + 1)) ;;
    125) not_run+=("$step") failed+=("$step") ;;
    *) failed+=("$step") ;;
    esac
}

# What only computes runs behind all that may run beside others, and is no more than a bystander to these.
patient="cargo test patient"
# at_a_time NUMBER STEP...: runs them, so many side by side; ends when nothing runs any more.
at_a_time() {
    local step bystanders number=$1
    shift
    for step; do
        while
            bystanders=0
            [[ " ${running[*]} " != *" $patient "* ]] || bystanders=1
            [ $((${#running[@]} - bystanders)) -ge "$number" ]
        do
            await
        done
        begin "$step"
    done
    while [ ${#running[@]} -gt 0 ]; do await; done
}

say "Building"
python3 scripts/limited.py "$(limit_of building)" building cargo test "${cargo_args[@]}" --no-run
# (Programs' malloc, which nothing that is linked needs.)
profile="test"
[ "$LODE_BUILT" = debug ] || profile=$LODE_BUILT
python3 scripts/limited.py "$(limit_of building)" "building programs' malloc" \
    cargo build --profile "$profile" -p lode-preload

# What runs beside others, and what runs by itself then.
beside=("cargo test beside") alone=("cargo test alone")
shopt -s nullglob
for script in tests/scripts/*.sh tests/programs/*.sh; do
    [ "$script" != tests/programs/lib.sh ] || continue
    if is_alone "$script"; then alone+=("$script"); else beside+=("$script"); fi
done
say "Tests, two at a time where they don't measure, and behind these what only computes"
begin "$patient"
at_a_time $(($(nproc) > 1 ? 2 : 1)) "${beside[@]}"
say "Tests that measure, one at a time"
at_a_time 1 "${alone[@]}"

say "make test: $(((SECONDS + 59) / 60)) minutes"
# What the machine lacks: each reason, and the tests that could not do all they do.
awk '
    /^---- .* stdout ----$/ { test = $2 }
    /^skipped: / {
        why = substr($0, 10)
        if (!seen[why, test]++) {
            if (!count[why]++) order[++reasons] = why
            if (!known[test]++) tests++
            names[why] = names[why] "\n      " test
        }
    }
    END {
        printf "skipped, in part or wholly: %d tests\n", tests
        for (i = 1; i <= reasons; i++) printf "  %s:%s\n", order[i], names[order[i]]
    }' "$log"
# table TITLE LINES: of what took longest.
table() {
    printf '%-56s seconds  of processors\n' "$1"
    sort -rn | head -"$2" | awk -F '\t' '{ printf "  %-54s %7.1f  %7.1f\n", $3, $1, $2 }'
}
echo "Seconds"
{ grep -v $'\tlode' "$LODE_TIMES" || true; } | table "parts and scripts" 60
{ grep $'\tlode' "$LODE_TIMES" || true; } | table "programs of Rust tests, the slowest" 25
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    [ ${#not_run[@]} -eq 0 ] || printf 'not run, as there was no time left: %s\n' "${not_run[@]}"
    # Which ones: who reads only the end of a long log needs the names, and what each said last.
    awk '
        /^ +Running |^ +Doc-tests / { where = $0; sub(/^ +/, "", where) }
        # (Behind what a program that it started has said last, too.)
        /(^|[^a-z])test [^ ].* \.\.\. FAILED$/ {
            name = $0; sub(/.*test /, "", name); sub(/ \.\.\. FAILED$/, "", name)
            printf "  %s: %s\n", where, name; sub(/ .*/, "", name); failed[name] }
        /^ +Running / { slow = "" }
        / has been running for over 60 seconds$/ { slow = slow " " $2 }
        / took longer than [0-9]+ s\. |^not run, as there is no time left: / { print "  " $0 slow }
        /^---- .* stdout ----$/ { test = $2; n = 0 }
        /panicked at/ && test in failed && n == 0 { n = 4 }
        n > 0 && test in failed { print "      " substr($0, 1, 400); n-- }
        # (What ends by a signal, or is not built, has no verdict of its own; cargo says which it was.)
        / targets? failed:$/ { of = 1; print "  " $0; next }
        of && /^    `/ { print "  " $0; next }
        /^error: |^  process didn.t exit successfully/ { print "  " substr($0, 1, 400) }
        { of = 0 }' "$log"
    for name in "${failed[@]}"; do
        [[ $name != cargo* ]] || continue
        printf '\n-- %s, its last lines:\n' "$name"
        awk -v test="$name" '/^---- .* stdout ----$/ { on = $2 == test; next } on' "$log" |
            { grep -A25 '^FAILED' || true; } >"$log.failed"
        [ -s "$log.failed" ] || awk -v test="$name" '/^---- .* stdout ----$/ { on = $2 == test; next } on' "$log" |
            tail -40 >"$log.failed"
        cut -c1-300 "$log.failed" | head -80
    done
fi
scripts_failed=0
for name in "${failed[@]}"; do
    [[ $name == cargo* ]] || scripts_failed=$((scripts_failed + 1))
done
echo "$passed passed, $scripts_failed failed"
[ ${#failed[@]} -eq 0 ]
