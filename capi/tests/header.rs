//! The header says what the library has: `include/lode.h` is what comes of the definitions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

/// `LODE_WRITE_HEADER=1 cargo test -p lode-capi --test header` writes it.
const WRITE: &str = "LODE_WRITE_HEADER";

#[test]
fn the_header_is_made_from_the_definitions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::generate_with_config(root, config).unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).unwrap();

    let header = root.join("include/lode.h");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&header, &made).unwrap();
    }
    let kept = fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == made,
        "include/lode.h is not what the definitions say: set {WRITE}=1, run this again"
    );
}

/// Functions that can't fail.
const HARMLESS: [&str; 2] = ["lode_last_error", "lode_version"];

#[test]
fn each_function_works_inside_the_border() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut functions = 0;
    for file in fs::read_dir(source).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for part in text.split("extern \"C\" fn ").skip(1) {
            let (name, _) = part.split_once('(').unwrap();
            let (body, _) = part.split_once("\n}\n").unwrap();
            functions += 1;
            let guards = ["(", "_path(", "_file(", "_map(", "_log(", "_kept(", "_snapshot("];
            let guards = guards.map(|guard| format!(" with{guard}")).into_iter();
            let mut guards = guards.chain([" call(".to_owned()]);
            let guarded = guards.any(|guard| body.contains(&guard));
            assert!(guarded || HARMLESS.contains(&name), "a panic of {name} would end the process");
        }
    }
    assert!(functions > 40, "{functions}");
}
