# How long tests may take. Sourced, not run. They are long: a test that takes longer hangs.
# shellcheck shell=bash

# limit_of NAME: seconds, for a script, or for a program of Rust tests by its crate and name; LODE_LIMIT_TIMES as many.
limit_of() {
    local seconds
    case $1 in
    # These build something first, or install it.
    tests/scripts/nbd_fuzz.sh | tests/scripts/instructions.sh | tests/scripts/pjdfstest.sh | tests/scripts/fsx.sh) seconds=900 ;;
    tests/scripts/nbd_clients.sh | tests/programs/postgres.sh) seconds=600 ;;
    # (It has a limit of its own, below this.)
    tests/scripts/virtual_machines.sh) seconds=900 ;;
    tests/scripts/make_run_works_twice.sh | tests/scripts/file_systems_on_volumes.sh | tests/scripts/heap_programs.sh) seconds=600 ;;
    tests/scripts/* | tests/programs/*) seconds=300 ;;
    # All of them together: each has its own.
    "cargo test"*) seconds=5400 ;;
    building) seconds=2400 ;;
    # (They get what the others leave.)
    lode-crash/survive | lode-cli/mutants) seconds=2700 ;;
    # (Ten minutes of a processor, of which others want a share.)
    lode-crash/suite) seconds=1800 ;;
    *) seconds=900 ;;
    esac
    echo $((seconds * ${LODE_LIMIT_TIMES:-1}))
}

# is_alone NAME: whether a test measures times, or takes all processors, so that nothing else may run beside it.
is_alone() {
    case $1 in
    tests/scripts/virtual_machines.sh | tests/scripts/programs_on_volumes.sh) return 0 ;;
    lode-crash/explore | lode-cli/crash_quick | lode-cli/bench_command) return 0 ;;
    lode-engine/measures | lode-nbd/hostile | lode-sqlite/speed) return 0 ;;
    lode-pmem/emulation_is_what_was_set | lode-pmem/raw_regions | lode-pmem/speed) return 0 ;;
    esac
    return 1
}

# is_patient NAME: whether a test only computes, for minutes, and measures nothing: it takes what those leave of the processors
# that wait for disks, processes and clocks.
is_patient() {
    case $1 in
    lode-crash/survive | lode-cli/mutants) return 0 ;;
    esac
    return 1
}
