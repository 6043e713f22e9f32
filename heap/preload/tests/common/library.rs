//! The library that programs get.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The library that is preloaded: built here, since nothing that is linked needs it, unless all is built already.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let mut dir = std::env::current_exe().unwrap();
        dir.pop();
        dir.pop();
        if std::env::var_os("LODE_BUILT").is_none() {
            let profile = if dir.ends_with("release") { "release" } else { "test" };
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--offline", "--package", "lode-preload"]);
            cargo.args(["--profile", profile]).current_dir(env!("CARGO_MANIFEST_DIR"));
            let done = cargo.output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        dir.join("liblode_malloc.so").canonicalize().unwrap()
    });
    built.clone()
}
