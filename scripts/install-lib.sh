#!/usr/bin/env bash
# Builds the C library and installs it: header, shared and static library, file for pkg-config; and the malloc that
# `lode heap run` preloads.
#   PREFIX (/usr/local), LIBDIR (its lib): where it will be; DESTDIR: put before, to make packages
#   BUILT: where the libraries are already; nothing is built then
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
profile=${PROFILE:-release}
for dir in "$prefix" "$libdir"; do
    case $dir in
        /*) ;;
        *) die "$dir does not begin with a slash" ;;
    esac
done

built=${BUILT:-}
if [ -z "$built" ]; then
    need_cargo
    install_missing cc:build-essential
    cargo build --quiet -p lode-capi -p lode-preload --lib --profile "$profile"
    built=$TARGET/$profile
    case $profile in dev | test) built=$TARGET/debug ;; esac
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
soname=liblode.so.0
install -d "${DESTDIR:-}$prefix/include" "${DESTDIR:-}$libdir/pkgconfig"
install -m 644 capi/include/lode.h "${DESTDIR:-}$prefix/include/lode.h"
install -m 644 "$built/liblode_c.a" "${DESTDIR:-}$libdir/liblode.a"
# This makes a new file: programs may be running with the old one.
install -m 755 "$built/liblode_c.so" "${DESTDIR:-}$libdir/liblode.so.$version"
ln -sfn "liblode.so.$version" "${DESTDIR:-}$libdir/$soname"
ln -sfn "$soname" "${DESTDIR:-}$libdir/liblode.so"
install -m 755 "$built/liblode_malloc.so" "${DESTDIR:-}$libdir/liblode_malloc.so"
pc=$(<capi/lode.pc.in)
pc=${pc//@PREFIX@/"$prefix"}
pc=${pc//@LIBDIR@/"$libdir"}
printf '%s\n' "${pc//@VERSION@/"$version"}" >"${DESTDIR:-}$libdir/pkgconfig/lode.pc"
chmod 644 "${DESTDIR:-}$libdir/pkgconfig/lode.pc"
echo "liblode $version is in ${DESTDIR:-}$prefix"
