//! Has this library carry what it needs of libgcc: looking for `libgcc_s.so.1`, mapping and linking it is a third of what the library adds to
//! the start of each program, and most programs have no use for it.
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    if let Some(dir) = std::env::var_os("OUT_DIR").map(PathBuf::from)
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        // (Where `-lgcc_s` is looked for first, before the system's.)
        std::fs::write(dir.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")?;
        println!("cargo:rustc-link-search=native={}", dir.display());
    }
    Ok(())
}
