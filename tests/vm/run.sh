#!/usr/bin/env bash
# Runs scenarios in virtual machines with emulated persistent memory: `run.sh [NAME...]`, all if none is named.
#
# A scenario is a file in scenarios/: a line that says what it shows, lines `#: WORD VALUE` that say what machine it
# needs, and what the machine runs (with guest.sh). Words: `nvdimm SIZE` (an NVDIMM, which a scenario of several boots
# finds again), `virtio-pmem SIZE`, `reserved SIZE!START` (memory of the machine that is to be persistent; it forgets poison
# that is written over), `persistence cpu|mem-ctrl` (what of the CPU's stores it says that a power failure spares),
# `volume SIZE` (it boots from a volume of that size, see volume.sh, and from nothing else), `memory SIZE`, `cpus N`,
# `seconds N` (the longest that a boot may take), `pulls N` (the plug is
# pulled so often; LODE_PULLS says another number), `fails WORDS` (it must fail, and say so).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
source "$HERE/../../scripts/lib.sh"
# shellcheck source=tests/vm/volume.sh
source "$HERE/volume.sh"

# What is under test: the command, and the examples `plug`, `stamps` and `mapping`.
BUILT=$TARGET/${LODE_BUILT:-debug}
WORDS='nvdimm|virtio-pmem|reserved|persistence|volume|memory|cpus|seconds|pulls|fails'
# The longest that all may take together, unless LODE_PULLS says that plugs are to be pulled more often: two fast
# processors took 228 for them, two slow ones a little over 600.
SECONDS_MAX=1500

# word FILE WORD DEFAULT: what a scenario says of the machine it needs.
word() {
    local value
    value=$(sed -n "s/^#: $2 *//p" "$1" | head -1)
    echo "${value:-$3}"
}

# How a scenario is run, by its name.
scenario_start() {
    # shellcheck disable=SC2016
    echo '. /scenario/guest.sh; . "/scenario/$1.sh"'
}

# kernel_words FILE [WORD...]: the kernel's command line.
kernel_words() {
    local reserved
    reserved=$(word "$1" reserved "")
    echo "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off no_timer_check lode.scenario=$(basename "$1" .sh)" \
        "${reserved:+memmap=$reserved}" "${@:2}"
}

# The first file system's second part: what is under test, and the scenarios.
put_on_top() {
    local root
    root=$WORK/first
    mkdir -p "$root/bin" "$root/scenario" "$root/lib64"
    for program in "$@"; do
        strip -o "$root/bin/$(basename "$program")" "$program"
        while read -r file; do
            mkdir -p "$root$(dirname "$file")"
            cp -Ln "$file" "$root$file"
        done < <(ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | sort -u)
    done
    cp "$HERE/init" "$root/init"
    cp "$HERE/guest.sh" "$HERE"/scenarios/*.sh "$root/scenario/"
    scenario_start >"$root/scenario/run"
    chmod +x "$root/init"
    { cat "$VM/base.cpio" && (cd "$root" && find . | cpio --quiet -o -H newc); } >"$WORK/first.cpio"
    rm -r "$root"
}

# machine FILE NVDIMM CONSOLE [KERNEL-WORD...]: starts one in the background; its process is in QEMU.
machine() {
    local file=$1 nvdimm=$2 console=$3 memory size persistence
    shift 3
    memory=$(word "$file" memory 1G)
    persistence=$(word "$file" persistence "")
    local args=(-machine "q35,nvdimm=on${persistence:+,nvdimm-persistence=$persistence}" -m "$memory,slots=2,maxmem=8G" -accel tcg -cpu max -smp "$(word "$file" cpus 1)"
        -nographic -monitor none -serial stdio -no-reboot -nic none)
    if [ -n "$(word "$file" volume "")" ]; then
        args+=(-blockdev "$(volume_node d1 "$nvdimm.pool")" -device "virtio-blk-pci,drive=d1,bootindex=1")
    else
        args+=(-kernel "$VM/vmlinuz" -initrd "$WORK/first.cpio" -append "$(kernel_words "$file" "$@")")
    fi
    size=$(word "$file" nvdimm "")
    if [ -n "$size" ]; then
        args+=(-object "memory-backend-file,id=m1,share=on,mem-path=$nvdimm,size=$size"
            -device "nvdimm,id=n1,memdev=m1")
    fi
    size=$(word "$file" virtio-pmem "")
    if [ -n "$size" ]; then
        args+=(-object "memory-backend-file,id=m2,share=on,mem-path=$nvdimm.virtio,size=$size"
            -device "virtio-pmem-pci,memdev=m2,id=v1")
    fi
    # (What an earlier boot has said is not this one's.)
    : >"$console"
    qemu-system-x86_64 "${args[@]}" </dev/null >>"$console" 2>&1 &
    QEMU=$!
}

# ended STORY: waits for a machine that ends, or was killed; says how qemu ended, where that is not as it should.
ended() {
    local status=0
    wait "$QEMU" 2>/dev/null || status=$?
    QEMU=
    [ "$status" -eq 0 ] || [ "$status" -eq 137 ] || echo "qemu ended with $status" >>"$1"
}

# Whether all has taken too long together: what is not over then is ended, so that something can be told of it.
is_late() { [ -z "${LODE_PULLS:-}" ] && [ "$SECONDS" -gt "$SECONDS_MAX" ]; }

# too_long SECONDS: says how long a machine had, that of itself or together with all others.
too_long() {
    if is_late; then echo "all together took longer than $SECONDS_MAX s"; else echo "it took longer than $1 s"; fi
}

# await SECONDS STORY: waits for a machine to end; kills it after so long, and says so.
await() {
    local left=$(($1 * 10))
    while kill -0 "$QEMU" 2>/dev/null; do
        if [ $((left--)) -le 0 ] || is_late; then
            kill -9 "$QEMU"
            ended "$2"
            echo "it did not end: $(too_long "$1")" >>"$2"
            return 1
        fi
        sleep 0.1
    done
    ended "$2"
}

# Whether a scenario has come to a good end, by the last that its machine said of that.
ended_well() { grep '^lode-vm: over ' "$1" | tail -1 | grep -q '^lode-vm: over 0'; }

# once FILE: one boot, which must end well.
once() {
    local file=$1 name console
    name=$(basename "$file" .sh)
    console=$WORK/$name.console
    machine "$file" "$WORK/$name.nvdimm" "$console"
    if ! await "$(word "$file" seconds 90)" "$WORK/$name.story" || ! ended_well "$console"; then
        return 1
    fi
}

# from_volume FILE: the same from a volume, which must have what the machine has written.
from_volume() {
    local file=$1 name pool
    name=$(basename "$file" .sh)
    pool=$WORK/$name.nvdimm.pool
    volume_up "$file" "$pool" >>"$WORK/$name.story" && once "$file" &&
        volume_down "$pool" "$WORK/$name.console" >>"$WORK/$name.story"
}

# pulled FILE: boots again and again with the same NVDIMM; the plug is pulled while the machine works, but the last time.
# What it acknowledged before is what the next boot must find.
pulled() {
    local file=$1 pulls=$2 name console acked=0 new seed boot left seconds
    name=$(basename "$file" .sh) seed=$RANDOM seconds=$(word "$file" seconds 90)
    console=$WORK/$name.console
    echo "seed $seed" >>"$WORK/$name.story"
    for ((boot = 0; boot < pulls; boot++)); do
        machine "$file" "$WORK/$name.nvdimm" "$console" "lode.boot=$boot lode.seed=$seed lode.acked=$acked"
        left=$((seconds * 10))
        until grep -q '^lode-vm: loading' "$console"; do
            if ! kill -0 "$QEMU" 2>/dev/null; then
                ended "$WORK/$name.story"
                echo "it ended before it had begun to work" >>"$WORK/$name.story"
                return 1
            fi
            if [ $((left--)) -le 0 ] || is_late; then
                kill -9 "$QEMU" 2>/dev/null || true
                ended "$WORK/$name.story"
                echo "it had not begun to work: $(too_long "$seconds")" >>"$WORK/$name.story"
                return 1
            fi
            sleep 0.1
        done
        sleep "$((RANDOM % 2)).$((100 + RANDOM % 900))"
        # (Who has ended before did not bear the load.)
        if ! kill -9 "$QEMU" 2>/dev/null; then
            ended "$WORK/$name.story"
            echo "it ended before the plug was pulled" >>"$WORK/$name.story"
            return 1
        fi
        ended "$WORK/$name.story"
        ! grep -qE '^lode-vm: (FAILED|over)|panicked at' "$console" || return 1
        # (What was acknowledged once stays so, also if nothing was by this boot; and what was seen to be there does.)
        new=$(sed -nE 's/^(ack |lode-vm: state )([0-9]+)( of .*)?\r$/\2/p' "$console" | tail -1)
        acked=${new:-$acked}
        grep '^lode-vm: state' "$console" >>"$WORK/$name.story"
    done
    if [ "$acked" -eq 0 ]; then
        echo "nothing was ever acknowledged" >>"$WORK/$name.story"
        return 1
    fi
    machine "$file" "$WORK/$name.nvdimm" "$console" "lode.boot=$boot lode.seed=$seed lode.acked=$acked lode.last=1"
    await "$seconds" "$WORK/$name.story" && ended_well "$console"
}

# rounds FILE PULLS: the same with a new NVDIMM now and then, as each boot does in its model all that was ever done.
rounds() {
    local file=$1 left=$2 name now most=10
    name=$(basename "$file" .sh)
    while [ "$left" -gt 0 ]; do
        now=$((left < most ? left : most)) left=$((left - most))
        pulled "$file" "$now" || return 1
        rm -f "$WORK/$name.nvdimm"
    done
}

# work FILE: whether it comes to a good end. What must fail is not pulled more often.
work() {
    local file=$1 pulls
    pulls=$(word "$file" pulls 0)
    if [ -n "$(word "$file" volume "")" ]; then
        from_volume "$file"
    elif [ "$pulls" -eq 0 ]; then
        once "$file"
    elif [ -n "$(word "$file" fails "")" ]; then
        pulled "$file" "$pulls"
    else
        rounds "$file" "${LODE_PULLS:-$pulls}"
    fi
}

# run FILE: whether it ended as it must.
run() {
    local file=$1 name fails
    name=$(basename "$file" .sh) fails=$(word "$file" fails "")
    if work "$file"; then
        [ -z "$fails" ] || echo "it was to fail, and did not" >>"$WORK/$name.story"
        [ -z "$fails" ]
    else
        [ -n "$fails" ] && grep -qE "^lode-vm: FAILED: $fails" "$WORK/$name.console"
    fi
}

# Shows what a machine said of itself; all of its console where it failed.
show() {
    local lines=.
    [ "$2" = all ] || lines='^lode-vm:'
    { cat "${1%.console}.story" "$1" 2>/dev/null || true; } | tr -d '\r' | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g; s/^\x1bc//' |
        { grep -v '^ack ' | grep "$lines" || true; } | sed 's/^/    /'
}

# Where there is room for NVDIMMs: in memory, if that has it.
place() {
    local free memory=${LODE_TEST_SCRATCH:-/dev/shm}
    free=$(df --output=avail -k "$memory" 2>/dev/null | tail -1)
    if [ "${free:-0}" -gt $((4 << 20)) ]; then echo "$memory"; else echo "${TMPDIR:-/tmp}"; fi
}

# How many machines may run at a time: each keeps a processor busy, and may take 3 GiB with its NVDIMM.
at_a_time() {
    local free most
    free=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / (3 << 20)))
    most=$((free < $(nproc) ? free : $(nproc)))
    echo "${LODE_VMS:-$((most > 1 ? most : 1))}"
}

# tell FILE: runs a scenario, and says at once how that went.
tell() {
    local file=$1 name began=$SECONDS told
    name=$(basename "$file" .sh)
    # (What it started ends with it, be it cut off.)
    trap '[ -z "${QEMU:-}" ] || kill -9 "$QEMU" 2>/dev/null || true
        [ -z "${SERVER:-}" ] || kill -9 "$SERVER" 2>/dev/null || true' EXIT
    if run "$file"; then
        touch "$WORK/$name.ok"
        told="ok      $name, $((SECONDS - began)) s
$(show "$WORK/$name.console" some)"
    else
        told="FAILED  $name, $((SECONDS - began)) s; its console:
$(show "$WORK/$name.console" all)"
    fi
    rm -f "$WORK/$name".nvdimm*
    (flock 9 && echo "$told") 9>"$WORK/told"
}

# Leaves out of `files` what can't be done here.
leave_out() {
    local file left=()
    for file in "${files[@]}"; do
        if [ -n "$(word "$file" volume "")" ] && ! (volume_programs); then
            echo "skipped: $(basename "$file" .sh): no disk to boot from can be made here"
        else
            left+=("$file")
        fi
    done
    files=("${left[@]}")
}

# The files, those with most boots first: at the end nothing long runs alone.
longest_first() {
    local file
    for file; do
        printf '%s\t%s\n' "$(word "$file" pulls 0)" "$file"
    done | sort -s -k1,1nr | cut -f2
}

main() {
    local started=$SECONDS
    VM=$(bash "$HERE/image.sh")
    WORK=$(mktemp -d "$(place)/lode-vm.XXXXXX")
    # What was started ends with this, be it cut off.
    trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$WORK"' EXIT
    trap 'exit 143' TERM INT
    put_on_top "$BUILT/lode" "$BUILT"/examples/{plug,stamps,mapping}
    local files=() file pids=() good
    for name in "$@"; do
        [ -f "$HERE/scenarios/$name.sh" ] || die "there is no scenario $name in tests/vm/scenarios"
        files+=("$HERE/scenarios/$name.sh")
    done
    [ ${#files[@]} -gt 0 ] || files=("$HERE"/scenarios/*.sh)
    local wrong
    wrong=$(grep -hE '^#:' "${files[@]}" | grep -vE "^#: ($WORDS) +[^ ]" || true)
    [ -z "$wrong" ] || die "a scenario says what nobody knows: $wrong"
    leave_out
    mapfile -t files < <(longest_first "${files[@]}")
    local left
    left=$(at_a_time)
    for file in "${files[@]}"; do
        if [ $((left--)) -le 0 ]; then wait -n || true; fi
        tell "$file" &
        pids+=($!)
    done
    wait "${pids[@]}" || true
    good=$(find "$WORK" -name '*.ok' | wc -l)
    echo "$good of ${#files[@]} scenarios are as they must be, $((SECONDS - started)) s"
    [ "$good" -eq ${#files[@]} ]
}

main "$@"
