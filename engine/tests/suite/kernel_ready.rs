//! The engine could be part of a kernel: it builds without an operating system, calls no
//! helper that a kernel does not have, and no function of it takes more than 1 KiB of stack.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL: &str = "x86_64-unknown-none";
const FRAME_MOST: u64 = 1024;

/// Helpers of floating point, of 128-bit division and of 128-bit atomics begin or end so.
const HELPERS_BEGIN: [&str; 12] = [
    "__float",
    "__fix",
    "__extend",
    "__trunc",
    "__udivti",
    "__umodti",
    "__divti",
    "__modti",
    "__udivmodti",
    "__divmodti",
    "__atomic_",
    "__sync_",
];
const HELPERS_END: [&str; 10] =
    ["sf2", "df2", "tf2", "sf3", "df3", "tf3", "sf4", "xf3", "si2f", "cas16"];
const HELPERS: [&str; 8] = ["pow", "exp", "log", "sqrt", "floor", "ceil", "fmod", "round"];

fn is_helper(symbol: &str) -> bool {
    let name = symbol.trim_start_matches("0000000000000000").trim();
    let is_double_underscore = name.starts_with("__");
    HELPERS_BEGIN.iter().any(|begin| name.starts_with(begin))
        || (is_double_underscore && HELPERS_END.iter().any(|end| name.ends_with(end)))
        || HELPERS.contains(&name)
}

fn run(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a tool of binutils says; without it nothing can be checked.
fn tool(command: &mut Command) -> String {
    let name = command.get_program().to_string_lossy().into_owned();
    run(command).unwrap_or_else(|| {
        panic!("{name} is missing or failed: install binutils, then run this test again")
    })
}

/// The kernel's target where it is there or can be had, else the host's.
fn target() -> Option<&'static str> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let installed = || {
        let library =
            run(Command::new(&rustc).args(["--print", "target-libdir", "--target", KERNEL]));
        library.is_some_and(|path| Path::new(path.trim()).is_dir())
    };
    if !installed() {
        let _ = run(Command::new("rustup").args(["target", "add", KERNEL]));
    }
    installed().then_some(KERNEL)
}

/// Builds the instances and returns their libraries.
fn build(target: Option<&str>) -> Vec<PathBuf> {
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernelcheck");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["build", "--release", "-p", "lode-kernelcheck"]);
    // Libraries that are to be optimised across crates have no code of their own yet, and in one unit
    // more is inlined, into larger frames: both are for the command, not for a kernel.
    cargo.arg("--target-dir").arg(&into).env_remove("RUSTFLAGS");
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    if let Some(target) = target {
        cargo.args(["--target", target]);
    }
    let output = cargo.output().unwrap();
    assert!(
        output.status.success(),
        "the engine does not build for {target:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let deps = target.map_or(into.clone(), |target| into.join(target)).join("release/deps");
    // Several builds may lie there: the newest of each name is this one's.
    let mut newest: BTreeMap<String, (std::time::SystemTime, PathBuf)> = BTreeMap::new();
    for entry in std::fs::read_dir(deps).unwrap().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        if let Some((name, _)) = file.strip_suffix(".rlib").and_then(|name| name.rsplit_once('-'))
            && ["liblode_engine", "liblode_pmem", "liblode_kernelcheck"].contains(&name)
        {
            let time = entry.metadata().unwrap().modified().unwrap();
            let known = newest.get(name);
            if known.is_none_or(|(other, _)| *other < time) {
                newest.insert(name.to_owned(), (time, entry.path()));
            }
        }
    }
    assert_eq!(newest.len(), 3, "libraries of engine, door and instances");
    newest.into_values().map(|(_, path)| path).collect()
}

/// Stack frame of each function, in bytes, from a disassembly.
fn frames(disassembly: &str) -> BTreeMap<String, u64> {
    let mut frames = BTreeMap::new();
    let mut function = String::new();
    for line in disassembly.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            function = name.1.to_owned();
            continue;
        }
        if let Some(bytes) = stack_of(line) {
            // A probing loop subtracts a page at a time: any of it is too much.
            let frame = frames.entry(function.clone()).or_insert(0);
            *frame = (*frame).max(bytes);
        }
    }
    frames
}

/// Bytes that an instruction takes from the stack by moving its pointer.
fn stack_of(line: &str) -> Option<u64> {
    let (operation, operands) = line.rsplit_once('\t')?.1.trim().split_once(' ')?;
    let operands = operands.trim().strip_suffix(",%rsp")?;
    match operation {
        "sub" | "subq" => u64::from_str_radix(operands.strip_prefix("$0x")?, 16).ok(),
        "add" | "addq" => {
            let added = operands.strip_prefix("$0xffffffff")?;
            u64::from_str_radix(&format!("ffffffff{added}"), 16).ok().map(u64::wrapping_neg)
        }
        "lea" | "leaq" => {
            let taken = operands.strip_prefix("-0x")?.strip_suffix("(%rsp)")?;
            u64::from_str_radix(taken, 16).ok()
        }
        _ => None,
    }
}

#[test]
fn the_engine_could_be_part_of_a_kernel() {
    let target = target();
    match target {
        Some(target) => println!("built for {target}"),
        None => println!("skipped: {KERNEL} can't be installed; looking at the host's code"),
    }
    let libraries = build(target);
    let mut wrong = Vec::new();
    let mut all = BTreeMap::new();
    for library in &libraries {
        let symbols = tool(Command::new("nm").arg("-u").arg(library));
        for symbol in symbols.lines().filter_map(|line| line.trim().strip_prefix("U ")) {
            if is_helper(symbol) {
                wrong.push(format!("calls {symbol}"));
            }
        }
        let arguments = ["-d", "-C", "--no-show-raw-insn"];
        let code = tool(Command::new("objdump").args(arguments).arg(library));
        if target.is_some() && code.contains("%xmm") {
            wrong.push("uses SIMD registers".to_owned());
        }
        for (function, bytes) in frames(&code) {
            // Several instances of a generic function may have the same name.
            let frame = all.entry(function).or_insert(0);
            *frame = bytes.max(*frame);
        }
    }
    let mut largest: Vec<(&String, &u64)> = all.iter().collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    println!("{} functions with a frame; the largest, in bytes:", largest.len());
    for (function, bytes) in largest.iter().take(12) {
        println!("{bytes:>6} {function}");
    }
    assert!(largest.len() > 20, "the disassembly was understood");
    for (function, bytes) in largest.iter().filter(|(_, bytes)| **bytes > FRAME_MOST) {
        wrong.push(format!("stack frame of {bytes} bytes: {function}"));
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "not fit for a kernel:\n{}", wrong.join("\n"));
}

#[test]
fn frames_are_read_from_a_disassembly() {
    let text = "0000 <one>:\n   4:\tsub    $0x418,%rsp\n   8:\tret\n0010 <two>:\n  10:\tpush %rbx\n\
                11:\tlea    -0x20(%rsp),%rsp\n0020 <three>:\n  20:\tadd    $0xffffffffffffff80,%rsp\n";
    let wanted = [("one".to_owned(), 0x418), ("three".to_owned(), 128), ("two".to_owned(), 32)];
    assert_eq!(frames(text), BTreeMap::from(wanted));
    assert!(is_helper("__udivti3") && is_helper("__floatundidf") && is_helper("__muldf3"));
    assert!(!is_helper("memcpy") && !is_helper("__rust_alloc"));
}
