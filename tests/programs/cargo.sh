#!/usr/bin/env bash
# cargo: build scripts, procedural macros (loaded by mmap), incremental builds and tests with sources
# and target directory on the mount; with LODE_PROGRAMS=all this project itself. The same binaries as
# on ext4, byte for byte.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
prepare cargo "$(by_size 1G 5G)" cc:build-essential
need_cargo
# Wherever a user's own settings have it.
export CARGO_TARGET_DIR=target
export CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never CARGO_TERM_QUIET=true
# Fingerprints and caches hold times and random names: binaries and sources are compared.
LISTING=(--without target --without .git)

small_sources() {
    mkdir -p small/src small/macros/src
    cat >small/Cargo.toml <<'TOML'
[package]
name = "small"
version = "0.1.0"
edition = "2021"

[dependencies]
macros = { path = "macros" }

[workspace]
TOML
    cat >small/build.rs <<'RUST'
use std::{env, fs, path::Path};
fn main() {
    println!("cargo:rerun-if-changed=words.txt");
    let words = fs::read_to_string("words.txt").unwrap();
    let out = Path::new(&env::var_os("OUT_DIR").unwrap()).join("words.rs");
    fs::write(out, format!("pub const WORDS: &[&str] = &{:?};", words.lines().collect::<Vec<_>>())).unwrap();
}
RUST
    cat >small/macros/Cargo.toml <<'TOML'
[package]
name = "macros"
version = "0.1.0"
edition = "2021"

[lib]
proc-macro = true
TOML
    cat >small/macros/src/lib.rs <<'RUST'
use proc_macro::TokenStream;
#[proc_macro]
pub fn number_of_tokens(input: TokenStream) -> TokenStream {
    input.into_iter().count().to_string().parse().unwrap()
}
RUST
    cat >small/src/main.rs <<'RUST'
mod parts;
include!(concat!(env!("OUT_DIR"), "/words.rs"));
fn main() {
    println!("{} {WORDS:?} {}", macros::number_of_tokens!(a b c), parts::sum());
}
#[cfg(test)]
mod tests {
    #[test]
    fn adds_up() {
        assert_eq!(super::parts::sum(), (0..40).sum::<u64>() + super::parts::MORE);
    }
}
RUST
    parts 0
    seq 5 >small/words.txt
}

# parts NUMBER: a module of forty small ones, and a number in it.
parts() {
    local part
    {
        for part in {0..39}; do echo "mod part$part { pub fn value() -> u64 { $part } }"; done
        echo "pub const MORE: u64 = $1;"
        echo "pub fn sum() -> u64 { MORE $(printf ' + part%d::value()' {0..39}) }"
    } >small/src/parts.rs
}

built() {
    local program
    for program in "$@"; do
        "$program" --version
        sha256sum "$program"
    done
}

small_project() {
    small_sources
    cd small
    cargo build
    built target/debug/small
    cd ..
    parts 7
    seq 8 >small/words.txt
    cd small
    cargo build
    built target/debug/small
    cargo test 2>&1 | grep '^test result' | cut -d';' -f1-4
    cargo build --release
    built target/release/small
    # Nothing to do: everything is as new as it was.
    cargo build --verbose --config term.quiet=false 2>&1 | grep -c Fresh
}
on_both small_project

this_project() {
    local file
    (cd "$LODE_ROOT" && find Cargo.toml Cargo.lock rustfmt.toml ./*/Cargo.toml ./*/src ./*/tests docs -type f) >"$SCRATCH/files"
    mkdir lode
    while read -r file; do
        mkdir -p "lode/$(dirname "$file")"
        cp "$LODE_ROOT/$file" "lode/$file"
    done <"$SCRATCH/files"
    cd lode
    CARGO_NET_OFFLINE=false cargo build --locked --package lode-cli
    built target/debug/lode
    # A change far below everything: only what needs it is built again.
    echo "// A last line." >>pmem/src/lib.rs
    cargo build --locked --package lode-cli
    built target/debug/lode
    du -sh target >&3
}
if [ "$(by_size quick all)" = all ]; then
    on_both this_project
fi
done_well "$(cargo --version)"
