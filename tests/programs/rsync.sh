#!/usr/bin/env bash
# rsync -aHAX --checksum of a tree with everything that a tree can have, from ext4 to Lode and back:
# nothing is lost either way, and a second run finds nothing to do.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
prepare rsync "$(by_size 256M 1G)" rsync:rsync setfacl:acl setfattr:attr setcap:libcap2-bin

odd_names() {
    local long
    long=$(printf 'n%.0s' {1..255})
    mkdir -p odd/"$long" 'odd/ '
    touch odd/$'new\nline' odd/$'tab\t' odd/$'\x80\xff not UTF-8' 'odd/ leading' 'odd/trailing ' 'odd/-dash' \
        'odd/*?[x]' "odd/'quotes\"" 'odd/back\slash' 'odd/#hash' odd/ünï-ço∂é-日本語 "odd/$long/$long" odd/...
}

kinds() {
    mkfifo -m 622 kinds/fifo
    mknod -m 640 kinds/char c 1 3
    mknod -m 606 kinds/block b 7 200
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("kinds/socket")'
    ln -s nowhere kinds/dangling
    ln -s "$(printf 'target/%.0s' {1..500})" kinds/long-link
    ln -s ../odd kinds/link-to-dir
    ln kinds/fifo kinds/fifo-again
    ln kinds/dangling kinds/link-again
    chown -h 12:34 kinds/dangling kinds/fifo
}

modes() {
    local mode
    for mode in 0000 0400 0755 1777 2750 4711 6555 7777; do
        echo $mode >modes/$mode
        chown $((0x$mode % 60000)):4294967294 modes/$mode
        chmod $mode modes/$mode
        mkdir modes/dir-$mode
        chmod $mode modes/dir-$mode
    done
}

attributes() {
    local number
    echo x >attributes/file
    setfattr -n user.empty attributes/file
    setfattr -n user.binary -v 0x00ff0a0d00 attributes/file
    setfattr -n trusted.note -v trusted attributes/file
    setfattr -n security.note -v security attributes/file
    # What ext4 can have: about one block in all.
    for number in {1..30}; do
        setfattr -n "user.name-$number" -v "$(head -c 40 /dev/zero | tr '\0' "$((number % 10))")" attributes
    done
    setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' v)" kinds/../modes/0755
    setfattr -h -n trusted.link -v link kinds/dangling
    setfattr -n trusted.device -v device kinds/char
    cp /bin/true attributes/capable
    setcap cap_net_raw,cap_chown=ep attributes/capable
    setfacl -m u:1234:rw,g:4321:r,m::r attributes/file
    mkdir attributes/default
    setfacl -d -m u:77:rwx,g::-,o::- attributes/default
    touch attributes/default/inherits
    mkdir attributes/default/inherits-too
}

sparse() {
    truncate -s 64M sparse/only-hole
    truncate -s 20M sparse/some
    printf middle | dd of=sparse/some bs=1 seek=7000001 conv=notrunc status=none
    printf end | dd of=sparse/some bs=1 seek=20971517 conv=notrunc status=none
    head -c 300000 /dev/urandom >sparse/full
    fallocate -p -o 65536 -l 131072 sparse/full
}

links() {
    local number
    for number in {1..20}; do
        head -c $((number * 700)) /dev/urandom >"links/$number"
        ln "links/$number" "links/dir-$((number % 4))/$number"
        ln "links/$number" "links/also-$number"
    done
}

times() {
    touch -d 1969-12-31T23:59:58.123456789Z times/before-1970
    touch -d 1910-06-01T00:00:00.000000001Z times/long-ago
    touch -d 2038-01-19T03:14:08.999999999Z times/after-2038
    touch -d 2199-12-31T23:59:59.5Z times/next-century
    ln -s x times/link
    touch -h -d 2001-02-03T04:05:06.070809Z times/link
}

make_tree() {
    mkdir -p "$1"
    cd "$1"
    mkdir -p kinds modes attributes sparse links/dir-{0,1,2,3} times source
    odd_names
    kinds
    modes
    attributes
    sparse
    links
    times
    cp -r "$LODE_ROOT"/{engine,docs} source/
    if [ "$(by_size quick all)" = all ]; then
        cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/[s-z]* source/
    fi
    touch -d 2002-02-02T02:02:02.020202020Z attributes kinds modes odd
    cd "$OLDPWD"
}

# copy FROM TO: and again, which has to find nothing to do.
copy() {
    local again
    # rsync takes a directory's time to be right if its second is: not in the second of the changes.
    sleep 1.1
    rsync -aHAX --numeric-ids --checksum --sparse "$1/" "$2/"
    again=$(rsync -aHAX --numeric-ids --checksum --sparse --itemize-changes --delete "$1/" "$2/")
    [ -z "$again" ] || die "rsync: a second run still finds something to do from $1 to $2: $again"
}

list() { python3 -B "$PROGRAMS/listing.py" --times --holes "$1"; }

same() {
    diff "$SCRATCH/$1" "$SCRATCH/$2" >"$SCRATCH/diff" || { head -20 "$SCRATCH/diff" && die "rsync: $2 is not $1"; }
}

mkdir "$SCRATCH/other"
ext4_up
if is_mounted "$WORK"; then
    mount --move "$WORK" "$SCRATCH/other"
elif ! setfattr -n trusted.test -v test "$SCRATCH/other" || ! setfacl -m u:1:r "$SCRATCH/other"; then
    skip "rsync: there is neither a loop device nor a directory with all attributes to copy from"
fi 2>/dev/null
lode_up

make_tree "$SCRATCH/other/made"
list "$SCRATCH/other/made" >"$SCRATCH/made"
copy "$SCRATCH/other/made" "$WORK/copy"
list "$WORK/copy" >"$SCRATCH/copy"
same made copy
copy "$WORK/copy" "$SCRATCH/other/back"
list "$SCRATCH/other/back" >"$SCRATCH/back"
same made back

# A tree made on Lode itself, changed, and brought up to date.
make_tree "$WORK/own"
copy "$WORK/own" "$SCRATCH/other/from-own"
rm -r "$WORK/own/odd" "$WORK"/own/links/dir-1
ln "$WORK/own/links/3" "$WORK/own/links/dir-2/more"
setfacl -x u:1234 "$WORK/own/attributes/file"
setfattr -x user.empty "$WORK/own/attributes/file"
sleep 1.1
rsync -aHAX --numeric-ids --checksum --delete "$WORK/own/" "$SCRATCH/other/from-own/"
list "$WORK/own" >"$SCRATCH/own"
list "$SCRATCH/other/from-own" >"$SCRATCH/from-own"
same own from-own

# Another life of the pool shows the same.
patiently "$LODE" umount "$WORK"
lode_again
list "$WORK/copy" >"$SCRATCH/later"
same made later
lode_down
done_well "$(rsync --version | head -1 | cut -d' ' -f1-4): $(wc -l <"$SCRATCH/made") files from $REFERENCE to Lode and back"
