//! Gives the shared library its name of record: what the programs linked with it ask for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Goes up when a program built with an older header can't use the library any more.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblode.so.0");
}
