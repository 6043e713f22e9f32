# What keeps stray stores and loads out of a whole region while it is written: this processor has memory protection keys, which the
# machine that tests run on may lack. And a DAX device is served as one block device in each way that a DAX device may not allow.
# shellcheck shell=sh
#: nvdimm 128M
TMPDIR=/tmp lode bench block --strays --dir /tmp >/tmp/strays 2>&1 || die "lode bench: $(cat /tmp/strays)"
cat /tmp/strays

# Whether a stray is kept out: `kept KIND PROTECTION PERCENT`.
kept() {
    grep -A1 "^stray $1 beside a write, $2\$" /tmp/strays | grep -q " $3 %" || die "a stray $1 with $2 is not «$3 %» kept out"
}
kept store none 0.000
kept store key 100.0
kept store key-rw 100.0
kept store mprotect 100.0
kept load none 0.000
kept load key 0.000
kept load key-rw 100.0

namespace devdax
for way in "--protect-io key" "--protect-io key-rw" "--protect-io private-map" "--protect-io mprotect-batch" "--write-scheme cached"; do
    # (A server's own words: its file is begun anew only after the shell has gone on.)
    rm -f /tmp/served
    # (Words, one by one.)
    # shellcheck disable=SC2086
    lode block serve --raw /dev/dax0.0 --socket /tmp/raw.sock $way >/tmp/served 2>/tmp/serve.log &
    server=$!
    until [ -s /tmp/served ]; do
        kill -0 $server 2>/dev/null || die "no server: $(cat /tmp/serve.log)"
        sleep 0.1
    done
    say "$(head -1 /tmp/served)"
    kill $server
    wait $server || die "the server ended with $?: $(cat /tmp/serve.log)"
done
