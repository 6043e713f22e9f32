//! The library as it is installed: its files, and C programs that are built with them as pkg-config says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

#[path = "../../heap/preload/tests/common/owner.rs"]
#[allow(dead_code)]
mod owner;

mod keeper;

/// Programs of `tests/c` that use all that there is.
const PROGRAMS: [&str; 12] = [
    "pools",
    "files",
    "open_flags",
    "maps",
    "logs",
    "kept",
    "names",
    "attributes",
    "snapshots",
    "hostile",
    "threads",
    "heap",
];
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What a command that must end well says.
#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{failed}");
    said.into_owned()
}

/// The script that installs, in the profile of this test; where all is built already, what lies beside this program.
fn installer(prefix: &Path) -> Command {
    let mut command = Command::new("bash");
    command.arg(here("../scripts/install-lib.sh")).env("PREFIX", prefix);
    command.env_remove("LIBDIR").env_remove("DESTDIR");
    command.env("PROFILE", if cfg!(debug_assertions) { "test" } else { "release" });
    if std::env::var_os("LODE_BUILT").is_some() {
        command.env("BUILT", std::env::current_exe().unwrap().parent().unwrap());
    }
    command
}

/// Where the library is installed.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("liblode");
        let _ = fs::remove_dir_all(&prefix);
        run(&mut installer(&prefix));
        prefix
    })
}

fn library() -> PathBuf {
    installed().join("lib/liblode.so")
}

/// What pkg-config says of the library.
fn pkg_config(words: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(words).arg("lode").env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// A directory in memory.
fn scratch() -> TempDir {
    lode_testkit::real::scratch("lode-capi-")
}

/// Builds a program in C.
fn built(source: &str, dir: &TempDir, link: &[&str], pkg: &[&str]) -> PathBuf {
    let program = dir.path().join(Path::new(source).file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-D_GNU_SOURCE", "-pthread"]).args(STRICT);
    cc.arg(here(source)).arg("-o").arg(&program).args(link).args(pkg_config(pkg));
    run(&mut cc);
    program
}

/// Runs a program with the shared library and a directory of its own.
#[track_caller]
fn ends_well(program: &Path) -> String {
    let dir = scratch();
    run(Command::new(program).arg(dir.path()).env("LD_LIBRARY_PATH", installed().join("lib")))
}

#[test]
fn each_call_is_as_posix_has_it_in_the_shared_library() {
    let dir = scratch();
    for name in PROGRAMS {
        ends_well(&built(&format!("tests/c/{name}.c"), &dir, &[], &["--cflags", "--libs"]));
    }
}

#[test]
fn a_program_in_c_has_memory_of_a_pool() {
    let dir = scratch();
    let program = built("tests/c/heap.c", &dir, &[], &["--cflags", "--libs"]);
    let place = scratch();
    let owner = owner::Owner::new(&place.path().join("socket"), owner::pool(40), usize::MAX);
    let mut command = Command::new(program);
    let said = run(command.arg(place.path()).env("LD_LIBRARY_PATH", installed().join("lib")));
    assert!(said.contains("came from the pool"), "{said}");
    owner.until("all of it is back", |owner| owner.out() == 0);
}

#[test]
fn a_program_in_c_has_a_kept_heap_of_a_pool_that_another_process_has() {
    let dir = scratch();
    for (link, pkg) in [
        (&[][..], &["--cflags", "--libs"][..]),
        (&["-static"], &["--static", "--cflags", "--libs"]),
    ] {
        let program = built("tests/c/attached.c", &dir, link, pkg);
        let place = scratch();
        let command = |what: &str| {
            let mut command = Command::new(&program);
            command.arg(place.path()).arg(what).env("LD_LIBRARY_PATH", installed().join("lib"));
            command
        };
        let owner = keeper::Keeper::start(place.path());
        run(&mut command("make"));
        run(&mut command("find"));
        let mut stays =
            command("stay").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(stays.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "attached\n");
        owner.end();
        stays.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(stays.wait().unwrap().success());
        // The next owner's pool has what there was before.
        let owner = keeper::Keeper::start(place.path());
        run(&mut command("find"));
        owner.end();
    }
}

#[test]
fn each_call_is_as_posix_has_it_in_the_static_library() {
    let dir = scratch();
    for name in PROGRAMS {
        let source = format!("tests/c/{name}.c");
        let program = built(&source, &dir, &["-static"], &["--static", "--cflags", "--libs"]);
        let dynamic = run(Command::new("readelf").arg("-d").arg(&program));
        assert!(!dynamic.contains("NEEDED"), "{dynamic}");
        ends_well(&program);
    }
}

#[test]
fn the_static_library_can_be_used_with_a_shared_system() {
    let archive = installed().join("lib/liblode.a");
    let mut options: Vec<_> = pkg_config(&["--cflags"]);
    options.push(archive.to_str().unwrap().to_owned());
    options.extend(pkg_config(&["--static", "--libs-only-l"]));
    options.retain(|option| option != "-llode");
    let dir = scratch();
    let program = dir.path().join("files");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-D_GNU_SOURCE"]).arg(here("tests/c/files.c")).arg("-o").arg(&program);
    run(cc.args(options));
    assert!(!run(Command::new("readelf").arg("-d").arg(&program)).contains("liblode"));
    ends_well(&program);
}

#[test]
fn what_is_called_most_makes_no_system_call_and_allocates_nothing() {
    let dir = scratch();
    ends_well(&built("tests/c/hot_paths.c", &dir, &[], &["--cflags", "--libs"]));
}

#[test]
fn the_example_counts_its_runs() {
    let dir = scratch();
    let program = built("examples/hello.c", &dir, &[], &["--cflags", "--libs"]);
    let pool = dir.path().join("pool");
    for runs in 1..=3 {
        let mut command = Command::new(&program);
        command.arg(&pool).env("LD_LIBRARY_PATH", installed().join("lib"));
        let said = run(&mut command);
        assert!(said.contains(&format!("opened {runs} times")), "{said}");
        assert!(said.contains("\nruns ("), "{said}");
    }
}

#[test]
fn the_example_of_maps_and_logs_keeps_its_accounts() {
    let dir = scratch();
    let program = built("examples/journal.c", &dir, &[], &["--cflags", "--libs"]);
    let pool = dir.path().join("pool");
    for runs in 1..=3 {
        let mut command = Command::new(&program);
        command.arg(&pool).env("LD_LIBRARY_PATH", installed().join("lib"));
        let (transfers, moved) = (runs * 10, runs * 55);
        let expected = format!("{transfers} transfers, accounts of -{moved} and {moved}\n");
        assert_eq!(run(&mut command), expected);
    }
}

#[test]
fn the_header_is_clean_in_c_and_in_cxx() {
    let dir = scratch();
    let alone = dir.path().join("alone.c");
    fs::write(&alone, "#include <lode.h>\n#include <lode.h>\ntypedef int nothing_else;\n").unwrap();
    let include = format!("-I{}", installed().join("include").display());
    for (compiler, language, standard) in
        [("cc", "c", "c99"), ("cc", "c", "c17"), ("c++", "c++", "c++11"), ("c++", "c++", "c++20")]
    {
        let mut command = Command::new(compiler);
        command.args(STRICT).args(["-fsyntax-only", "-x", language, &include]);
        run(command.arg(format!("-std={standard}")).arg(&alone));
    }
    let program = dir.path().join("cxx");
    let mut command = Command::new("c++");
    command.args(STRICT).arg("-std=c++11").arg(here("tests/c/cxx.cc")).arg("-o").arg(&program);
    run(command.args(pkg_config(&["--cflags", "--libs"])));
    ends_well(&program);
}

/// Names of functions that the header declares.
fn declared() -> Vec<String> {
    let header = fs::read_to_string(installed().join("include/lode.h")).unwrap();
    let code = header.lines().filter(|line| !line.starts_with(['/', ' ', '#', '*']));
    let names = code.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    });
    names.collect()
}

/// Names that the shared library gives to those who are linked with it.
fn exported() -> Vec<String> {
    let listed = run(Command::new("nm").args(["-D", "--defined-only", "-j"]).arg(library()));
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let (mut declared, mut exported) = (declared(), exported());
    declared.sort();
    exported.sort();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(declared, exported);
    assert!(exported.iter().all(|name| name.starts_with("lode_")));
}

#[test]
fn each_function_is_called_by_a_test() {
    let sources = PROGRAMS.map(|name| fs::read_to_string(here(&format!("tests/c/{name}.c"))));
    let all = sources.map(Result::unwrap).concat();
    let words: Vec<_> = all.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for name in declared() {
        assert!(words.contains(&name.as_str()), "{name} is called by no program of tests/c");
    }
}

#[test]
fn the_shared_library_has_the_name_that_programs_ask_for() {
    let dynamic = run(Command::new("readelf").arg("-d").arg(library()));
    assert!(dynamic.contains("Library soname: [liblode.so.0]"), "{dynamic}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(pkg_config(&["--modversion"]), [version]);
    let at = library().canonicalize().unwrap();
    assert_eq!(at.file_name().unwrap().to_str().unwrap(), format!("liblode.so.{version}"));
    assert_eq!(installed().join("lib/liblode.so.0").canonicalize().unwrap(), at);
}

#[test]
fn packages_are_made_below_another_directory() {
    let dir = scratch();
    let mut command = installer(Path::new("/usr"));
    command.env("LIBDIR", "/usr/lib64").env("DESTDIR", dir.path());
    run(&mut command);
    // Again over what is there, as an update does.
    let before = fs::metadata(dir.path().join("usr/lib64/liblode.so")).unwrap().ino();
    run(&mut command);
    let after = fs::metadata(dir.path().join("usr/lib64/liblode.so")).unwrap().ino();
    assert_ne!(before, after, "programs that run keep the old one");

    let listed = run(Command::new("find").arg(".").args(["-not", "-type", "d"]).current_dir(&dir));
    let mut files: Vec<_> = listed.lines().collect();
    files.sort_unstable();
    let version = format!("./usr/lib64/liblode.so.{}", env!("CARGO_PKG_VERSION"));
    let expected = [
        "./usr/include/lode.h",
        "./usr/lib64/liblode.a",
        "./usr/lib64/liblode.so",
        "./usr/lib64/liblode.so.0",
        &version,
        "./usr/lib64/liblode_malloc.so",
        "./usr/lib64/pkgconfig/lode.pc",
    ];
    assert_eq!(files, expected);
    let pc = fs::read_to_string(dir.path().join("usr/lib64/pkgconfig/lode.pc")).unwrap();
    assert!(pc.contains("prefix=/usr\nlibdir=/usr/lib64\n"), "{pc}");
    assert!(!pc.contains('@') && !pc.contains(dir.path().to_str().unwrap()), "{pc}");
}
