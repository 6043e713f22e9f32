#!/usr/bin/env bash
# The server of block devices as other people's clients see it: libnbd's, QEMU's and fio. Memory is served, copied to and
# from, compared, and written with patterns that are verified, in blocks of any size and of 4 KiB; and all of it by TLS. So
# are volumes, of a pool and of a mount, and whole regions.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
size=$((96 << 20))

need_cargo
# Where they can't be had, there is nothing to ask.
(install_missing nbdinfo:libnbd-bin nbdsh:python3-libnbd qemu-img:qemu-utils fio:fio \
    nbdkit:nbdkit openssl:openssl) >/dev/null 2>&1 || true
for program in nbdinfo nbdcopy qemu-img qemu-io fio openssl; do
    command -v "$program" >/dev/null 2>&1 || {
        echo "skipped: $program is missing"
        exit 0
    }
done
memory=$TARGET/${LODE_BUILT:-debug}/examples/memory
[ -n "${LODE_BUILT:-}" ] || cargo build --quiet -p lode-nbd --example memory

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lode-nbd.XXXXXX")
server=
mounted=
region=
stop() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    [ -z "$mounted" ] || "$lode" umount "$mounted" || true
    [ -z "$region" ] || rm -f "$region"
}
trap 'stop; rm -rf --one-file-system "$scratch"' EXIT
socket=$scratch/nbd.sock

# serve MIN_BLOCK [CERTIFICATES ADDRESS:PORT]
serve() {
    : >"$scratch/served"
    "$memory" "$socket" "$size" "$@" >"$scratch/served" &
    server=$!
    local tries=0
    until grep -q serving "$scratch/served"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || die "the server does not serve"
        sleep 0.05
    done
}
# serve_lode WORD ARGUMENT...: `lode block serve` with them, until it prints the URI that has the word.
serve_lode() {
    local word=$1 tries=0
    shift
    : >"$scratch/served"
    "$lode" block serve "$@" >"$scratch/served" &
    server=$!
    until grep -q "$word" "$scratch/served"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || die "lode does not serve: $(cat "$scratch/served")"
        sleep 0.05
    done
}
# end_lode: it ends as it should.
end_lode() {
    kill "$server"
    wait "$server" || die "lode block serve failed: $?"
    server=
}
# end: the server says how much was asked of it, and goes with its socket.
end() {
    kill "$server"
    wait "$server" || die "the server failed: $?"
    server=
    [ ! -e "$socket" ] || die "the socket is still there"
    grep -q ' errors: 0,' "$scratch/served" || die "requests failed: $(cat "$scratch/served")"
}
# refused WORDS COMMAND...: it fails, and says why.
refused() {
    local words=$1
    shift
    if timeout 60 "$@" >"$scratch/out" 2>&1; then
        die "it should have been refused: $*"
    fi
    grep -qiE -- "$words" "$scratch/out" || die "no clear word ($words) of $*: $(cat "$scratch/out")"
}
# quietly COMMAND...: what it says only counts if it fails.
quietly() {
    timeout 300 "$@" >"$scratch/out" 2>&1 || {
        tail -40 "$scratch/out" >&2
        die "failed: $*"
    }
}

check_info() {
    quietly nbdinfo --json "$uri"
    local wanted
    for wanted in '"export-size": '"$size" '"can_fast_zero": true' '"can_multi_conn": true' \
        '"can_df": true' '"block_size_minimum": '"$1" '"base:allocation"'; do
        grep -qF -- "$wanted" "$scratch/out" || die "nbdinfo does not know $wanted"
    done
    quietly nbdinfo --list "$uri"
    grep -q 'export="frozen"' "$scratch/out" || die "an export is not listed"
    quietly nbdinfo --map "$uri"
    grep -q 'hole,zero' "$scratch/out" || die "memory that was never written is no hole"
}

# There and back; what is a hole stays one, but in what is `solid`.
solid=
check_copies() {
    quietly nbdcopy "$scratch/image" "$uri"
    quietly nbdcopy "$uri" "$scratch/back"
    cmp "$scratch/image" "$scratch/back"
    quietly nbdcopy --connections=4 --requests=64 "$uri" "$scratch/back"
    cmp "$scratch/image" "$scratch/back"
    quietly nbdcopy --synchronous --request-size=4194304 "$scratch/image" "$uri"
    quietly qemu-img compare -f raw -F raw "$scratch/image" "$uri"
    quietly nbdinfo --map --totals "$uri"
    grep -q 'hole,zero' "$scratch/out" || [ -n "$solid" ] || die "holes were filled"
    rm "$scratch/back"
    quietly qemu-img convert -f raw -O raw "$uri" "$scratch/back"
    cmp "$scratch/image" "$scratch/back"
    quietly qemu-img convert -n -f raw -O raw "$scratch/back" "$uri"
    quietly qemu-img compare -f raw -F raw "$scratch/image" "$uri"
}

check_patterns() {
    quietly qemu-io -f raw "$uri" -c 'write -P 0xa5 1M 3M' -c 'read -P 0xa5 1M 3M' \
        -c 'write -f -P 0x5a 4k 8k' -c 'read -P 0x5a 4k 8k' -c 'write -z 2M 64k' -c 'read -P 0 2M 64k' \
        -c 'write -z -u 2M 128k' -c 'read -P 0 2M 128k' -c 'discard 1M 512k' -c flush \
        -c 'read -P 0xa5 3M 1M' -c 'write -P 1 16M 33M' -c 'read -P 1 16M 33M'
    if grep -qiE 'verification failed|error' "$scratch/out"; then
        cat "$scratch/out" >&2
        die "qemu-io read something else"
    fi
}

# check_fio [SIZE]: so far short requests reach, of which each may have to wait for its turn on a processor, in several
# programs.
check_fio() {
    local bytes reach
    # Each length by itself: where writes of several overlap, fio verifies wrongly, on a plain file, too.
    for bytes in 4k 100k 1m; do
        reach=$size
        [ "$bytes" != 4k ] || reach=${1:-$size}
        quietly fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bs="$bytes" --size="$reach" \
            --iodepth=32 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fsync=64 --randseed="$RANDOM"
    done
    quietly fio --name=trim --ioengine=nbd --uri="$uri" --rw=randtrim --bs=64k --size="$size" --iodepth=8 \
        --randseed="$RANDOM"
}

# By hand, what no program above asks for.
check_shell() {
    # Its module is one of the system's Python, which may not be the first in PATH.
    local shell=(env "PATH=/usr/bin:$PATH" nbdsh)
    if ! "${shell[@]}" -c 'pass' >/dev/null 2>&1; then
        echo "skipped: nbdsh is missing"
        return 0
    fi
    quietly "${shell[@]}" --base-allocation -u "$uri" -c '
data = bytes(range(256)) * 32
h.pwrite(data, 8192, nbd.CMD_FLAG_FUA)
assert h.pread(8192, 8192) == data
h.zero(4096, 8192, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
assert h.pread(8192, 8192) == bytes(4096) + data[4096:]
h.zero(4096, 8192, nbd.CMD_FLAG_FAST_ZERO)
h.trim(4096, 8192)
h.cache(4096, 8192)
h.flush()
seen = []
h.block_status(1 << 20, 0, lambda context, at, entries, error: seen.append((context, entries)) or 0,
    nbd.CMD_FLAG_REQ_ONE)
assert len(seen) == 1 and seen[0][0] == "base:allocation" and len(seen[0][1]) == 2, seen
chunks = []
h.pread_structured(1 << 20, 0, lambda data, at, kind, error: chunks.append(kind) or 0, nbd.CMD_FLAG_DF)
assert chunks == [nbd.READ_DATA], chunks
try:
    h.set_strict_mode(0)
    h.pread(4096, h.get_size())
    raise SystemExit("a read behind the end was answered")
except nbd.Error as error:
    assert error.errnum == 22, error
h.shutdown()
'
}

# A client that knows of no block sizes, as old ones: what is in whole blocks is done, and nothing else.
check_old() {
    env "PATH=/usr/bin:$PATH" nbdsh -c 'pass' >/dev/null 2>&1 || return 0
    quietly env "PATH=/usr/bin:$PATH" "NBD_URI=$uri" nbdsh -c '
import os
h.set_request_block_size(False)
h.set_strict_mode(0)
h.connect_uri(os.environ["NBD_URI"])
h.pwrite(b"x" * 4096, 8192)
assert h.pread(4096, 8192) == b"x" * 4096
for at, count in ((512, 4096), (4096, 512)):
    try:
        h.pwrite(b"y" * count, at)
        raise SystemExit("half a block was written")
    except nbd.Error as error:
        assert error.errnum == 22, error
'
}

# sign DIR WHO EXTENSIONS: a key and a certificate of WHO, as the directory's authority signs it.
sign() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" -keyout "$1/$2-key.pem" \
        -out "$1/$2.csr" &&
        openssl x509 -req -in "$1/$2.csr" -CA "$1/ca-cert.pem" -CAkey "$1/ca-key.pem" -CAcreateserial -days 2 \
            -extfile <(printf '%s\n' "$3") -out "$1/$2-cert.pem"
}
# authority DIR: one who signs, a server's certificate and a client's, named as libnbd and QEMU name them.
authority() {
    mkdir "$1" &&
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=authority" \
            -keyout "$1/ca-key.pem" -out "$1/ca-cert.pem" &&
        sign "$1" server "subjectAltName=DNS:localhost,IP:127.0.0.1" &&
        sign "$1" client "extendedKeyUsage=clientAuth"
}

# Whoever has no certificate, one of somebody else, or does not encrypt is refused, and says why.
check_refusals() {
    local port=$1 plain="nbd://localhost:$1/memory"
    mkdir "$scratch/nobody" "$scratch/mixed"
    cp "$scratch/tls/ca-cert.pem" "$scratch/nobody"
    cp "$scratch/tls/ca-cert.pem" "$scratch/other"/client-*.pem "$scratch/mixed"
    refused 'TLS' nbdinfo "$plain"
    # (What the server says, some versions of libnbd only tell who debugs.)
    refused 'only for clients that use TLS' env LIBNBD_DEBUG=1 nbdinfo --list "nbd://localhost:$port"
    refused 'only for clients that use TLS' qemu-img info -f raw "$plain"
    refused 'verification' nbdinfo "nbds://localhost:$port/memory?tls-certificates=$scratch/other"
    refused 'fatal alert' nbdinfo "nbds://localhost:$port/memory?tls-certificates=$scratch/nobody"
    refused 'fatal alert' nbdinfo "nbds://localhost:$port/memory?tls-certificates=$scratch/mixed"
    refused 'TLS channel' qemu-img info --object "tls-creds-x509,id=tls,dir=$scratch/nobody,endpoint=client" \
        --image-opts "driver=nbd,host=localhost,port=$port,export=memory,tls-creds=tls"
}

check_tls() {
    local who
    for who in tls other; do
        authority "$scratch/$who" >"$scratch/out" 2>&1 || die "no certificates: $(cat "$scratch/out")"
    done
    serve 1 "$scratch/tls" 127.0.0.1:0
    local port qemu
    port=$(sed -n 's/^port //p' "$scratch/served")
    uri="nbds://localhost:$port/memory?tls-certificates=$scratch/tls"
    check_refusals "$port"
    quietly nbdinfo --json "$uri"
    grep -q '"TLS": true' "$scratch/out" || die "nbdinfo does not see TLS: $(cat "$scratch/out")"
    quietly nbdcopy "$scratch/image" "$uri"
    quietly nbdcopy --connections=4 --requests=64 "$uri" "$scratch/back"
    cmp "$scratch/image" "$scratch/back"
    quietly nbdcopy "nbds+unix://localhost/memory?socket=$socket&tls-certificates=$scratch/tls" "$scratch/back"
    cmp "$scratch/image" "$scratch/back"
    qemu="driver=nbd,host=localhost,port=$port,export=memory,tls-creds=tls"
    quietly qemu-img compare --object "tls-creds-x509,id=tls,dir=$scratch/tls,endpoint=client" --image-opts \
        "driver=raw,file.driver=file,file.filename=$scratch/image" "$qemu"
    end
    echo "nbd: libnbd and QEMU agree by TLS, and who may not come is told why"
}

# The command itself: a volume for other machines.
check_command() {
    local port uri
    quietly "$lode" mkfs "$scratch/pool" --size 128M
    quietly "$lode" block create "$scratch/pool" disk --size "$size" --thin
    refused 'tls-cert' "$lode" block serve "$scratch/pool" --listen 0.0.0.0:0
    serve_lode nbds: "$scratch/pool" --listen 0.0.0.0:0 --tls-cert "$scratch/tls/server-cert.pem" \
        --tls-key "$scratch/tls/server-key.pem" --tls-ca "$scratch/tls/ca-cert.pem"
    port=$(sed -n 's|.*nbds://0.0.0.0:\([0-9]*\)/disk.*|\1|p' "$scratch/served")
    uri="nbds://localhost:$port/disk?tls-certificates=$scratch/tls"
    quietly nbdcopy "$scratch/image" "$uri"
    quietly nbdcopy "$uri" "$scratch/back"
    cmp "$scratch/image" "$scratch/back"
    refused 'TLS' qemu-img info -f raw "nbd://localhost:$port/disk"
    end_lode
    quietly "$lode" fsck "$scratch/pool"
    echo "nbd: lode block serve serves a volume by TLS"
}

# check_served [SIZE]: what all of them do with what the command serves; nbdkit's client among them, which passes all on, and
# the hexdump of libnbd.
check_served() {
    check_copies
    check_patterns
    check_fio "$@"
    quietly nbdcopy "$scratch/image" "$uri"
    if command -v nbdkit >/dev/null 2>&1; then
        # shellcheck disable=SC2016
        quietly nbdkit -U - nbd uri="$uri" --run 'nbdcopy "$uri" '"$scratch/back"
        cmp "$scratch/image" "$scratch/back"
    else
        echo "skipped: nbdkit is missing"
    fi
    if command -v nbddump >/dev/null 2>&1; then
        quietly nbddump --length=4096 "$uri"
        grep -q "^0000000000: $(head -c 8 "$scratch/image" | od -An -tx1 | sed 's/^ //')" "$scratch/out" ||
            die "nbddump shows something else: $(cat "$scratch/out")"
    fi
}

# Volumes as clients see them who know nothing of pools.
check_volumes() {
    local sector uri
    for sector in 512 4096; do
        quietly "$lode" mkfs "$scratch/pool" --force --size 256M
        quietly "$lode" block create "$scratch/pool" disk --size "$size" --thin --sector "$sector"
        serve_lode nbd+unix: "$scratch/pool" disk --socket "$socket"
        uri="nbd+unix:///disk?socket=$socket"
        check_served
        end_lode
        quietly "$lode" fsck -n "$scratch/pool"
    done
    echo "nbd: libnbd, QEMU, fio and nbdkit agree about volumes, in sectors of 512 and 4096 bytes"
}

# A volume of a pool that is mounted: it is there in the mount, and in the pool.
check_mounted() {
    local uri
    if ! (need_fuse) >/dev/null 2>&1; then
        echo "skipped: there is no /dev/fuse"
        return 0
    fi
    mkdir "$scratch/mount"
    quietly "$lode" mkfs "$scratch/pool" --force --size 256M
    quietly "$lode" block create "$scratch/pool" disk --size "$size" --thin
    quietly "$lode" mount "$scratch/pool" "$scratch/mount"
    mounted=$scratch/mount
    serve_lode nbd+unix: "$scratch/mount" disk --socket "$socket"
    uri="nbd+unix:///disk?socket=$socket"
    # (Each request goes through the server of the mount, too.)
    check_served $((8 << 20))
    cmp "$scratch/image" "$scratch/mount/.lode/volumes/disk"
    end_lode
    quietly "$lode" umount "$scratch/mount"
    mounted=
    quietly "$lode" fsck -n "$scratch/pool"
    serve_lode nbd+unix: "$scratch/pool" disk --socket "$socket" --read-only
    quietly qemu-img compare -f raw -F raw "$scratch/image" "$uri"
    end_lode
    echo "nbd: they agree about a volume of a mount"
}

# A whole region in memory, through each way to protect it that is there, and each way to write; the file has what was copied.
check_regions() {
    local way uri solid=yes
    region=$(mktemp /dev/shm/lode-nbd.XXXXXX)
    for way in "key nt" "mprotect clwb" "mprotect-batch nt" "private-map clflush" "none cached"; do
        [ "$way" != "key nt" ] || grep -qw ospke /proc/cpuinfo || way="none nt"
        truncate -s 0 "$region"
        truncate -s "$size" "$region"
        serve_lode nbd+unix: --raw "$region" --socket "$socket" --protect-io "${way% *}" --write-scheme "${way#* }"
        uri=$(grep -o 'nbd+unix:[^ ]*' "$scratch/served")
        check_served
        end_lode
        cmp "$scratch/image" "$region"
    done
    echo "nbd: they agree about a region, whatever protects it, and however it is written"
}

head -c $((16 << 20)) /dev/urandom >"$scratch/image"
truncate -s $((40 << 20)) "$scratch/image"
head -c $((8 << 20)) /dev/urandom >>"$scratch/image"
truncate -s "$size" "$scratch/image"

uri="nbd+unix:///memory?socket=$socket"
for block in 1 4096; do
    serve "$block"
    check_info "$block"
    check_copies
    check_patterns
    check_fio
    end
    echo "nbd: libnbd, QEMU and fio agree, in blocks of $block bytes: $(sed 's/^Statistics //; 1d' "$scratch/served")"
done
serve 1
check_shell
nbdinfo "nbd+unix:///frozen?socket=$socket" >"$scratch/out" || die "a read-only export is not there"
if timeout 60 nbdcopy "$scratch/image" "nbd+unix:///frozen?socket=$socket" >"$scratch/out" 2>&1; then
    die "a read-only export was written to"
fi
stop
server=
echo "nbd: what is read-only stays so"
serve 4096
check_old
stop
server=
check_tls
lode=$TARGET/${LODE_BUILT:-debug}/lode
[ -x "$lode" ] || cargo build --quiet --profile test -p lode-cli
check_command
check_volumes
check_mounted
check_regions
