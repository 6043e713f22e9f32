//! Memory that programs map themselves: from the pool, and as anonymous memory is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{limited_place as place, run, with_memory};

/// The program of `maps.c`, which does `what`.
fn program(what: &str) -> Command {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, made) = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("maps");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/maps.c");
        let mut command = Command::new("cc");
        command.args(["-O1", "-g", "-Wall", "-fno-builtin", "-pthread", "-o"]);
        let done = command.arg(&made).arg(source).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        (dir, made)
    });
    let mut command = Command::new(made);
    command.arg(what);
    command
}

/// What it prints with memory of the pool is what it prints without, and so it is with DRAM, where there is no owner.
fn is_as_anonymous_memory(what: &str) {
    let mut plain = program(what);
    plain.env("NONE_TAKEN", "1");
    let plain = run(plain);
    let place = place(600, usize::MAX);
    for from in ["64K", "1"] {
        let mut command = program(what);
        command.env("LODE_HEAP_MAP_FROM", from);
        let ours = place.runs(command);
        assert_eq!(plain, ours, "{what} from {from} on");
    }
    let mut command = program(what);
    command.env("LODE_HEAP_MAP_FROM", "none").env("NONE_TAKEN", "1");
    assert_eq!(plain, run(with_memory(command, &place.socket())), "{what}: not taken");
    let without = with_memory(program(what), Path::new("/nonexistent/socket"));
    assert_eq!(plain, run(without), "{what}: without an owner");
}

#[test]
fn mappings_are_zeros_whatever_was_there_before() {
    is_as_anonymous_memory("zeros");
}

#[test]
fn calls_that_make_no_sense_fail_as_the_systems_do() {
    is_as_anonymous_memory("errors");
}

#[test]
fn parts_of_mappings_go_and_are_mapped_over() {
    is_as_anonymous_memory("parts");
}

#[test]
fn mappings_grow_shrink_and_move() {
    is_as_anonymous_memory("moves");
}

#[test]
fn what_may_be_done_with_pages_is_kept() {
    is_as_anonymous_memory("rights");
}

#[test]
fn advice_is_taken_as_for_anonymous_memory() {
    is_as_anonymous_memory("advice");
}

#[test]
fn a_child_has_its_parents_mappings_for_itself() {
    is_as_anonymous_memory("forks");
}

#[test]
fn a_program_forks_on_a_stack_that_it_has_mapped() {
    is_as_anonymous_memory("stacks");
}

#[test]
fn a_handler_of_signals_maps_memory() {
    is_as_anonymous_memory("handlers");
}

#[test]
fn threads_map_and_unmap_at_random() {
    is_as_anonymous_memory("threads");
}

#[test]
fn children_have_dram_where_the_owner_lends_no_more() {
    let place = place(200, 24);
    let plain = run(program("copies"));
    assert_eq!(plain, place.runs(program("copies")));
    assert!(place.owner.books(|books| books.most) <= 24);
}

#[test]
fn heap_alone_is_taken() {
    let place = place(200, usize::MAX);
    place.runs(program("places"));
    let mut command = program("places");
    command.env("LODE_HEAP_MAP_FROM", "none").env("NONE_TAKEN", "1");
    run(with_memory(command, &place.socket()));
}

#[test]
fn mappings_outlive_descriptors() {
    let place = place(200, usize::MAX);
    place.runs(program("closes"));
}

/// `name`'s number in a line of the ledger.
fn figure(line: &str, name: &str) -> u64 {
    let rest = line.split(&format!("\"{name}\":")).nth(1).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn what_compilers_and_languages_map_is_the_pools() {
    let place = place(1500, usize::MAX);
    let dir = place.dir.path();
    let source: String = (0..400)
        .map(|i| format!("int f{i}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i * {i} % (x + 1); return s; }}\n"))
        .collect();
    std::fs::write(dir.join("a.c"), source).unwrap();
    let source = "#include <map>\n#include <iostream>\n#include <string>\nint main(int c, char **v) { std::map<std::string, int> m; m[v[0]] = c; std::cout << m.size(); }\n";
    std::fs::write(dir.join("b.cc"), source).unwrap();
    let python = "d = {i: str(i) * 3 for i in range(200000)}; import json; print(len(json.dumps(d)), sum(map(len, d.values())))";
    let commands = [
        (vec!["python3", "-c", python], "python3"),
        (vec!["gcc", "-O2", "-S", "-o", "-", "a.c"], "cc1"),
        (vec!["g++", "-O2", "-S", "-o", "-", "b.cc"], "cc1plus"),
    ];
    for (words, name) in commands {
        let command = || {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).current_dir(dir).env("LODE_HEAP_LEDGER", dir);
            command
        };
        let _ = std::fs::remove_file(dir.join("ledger"));
        assert_eq!(run(command()), place.runs(command()), "{name}");
        let ledger = std::fs::read_to_string(dir.join("ledger")).unwrap();
        let line = ledger.lines().find(|line| line.contains(&format!("\"{name}\""))).unwrap();
        let (pool, dram) = (figure(line, "pool_touched"), figure(line, "dram_peak"));
        // Not taken, it is counted as DRAM.
        let mut plain = command();
        plain.env("LODE_HEAP_MAP_FROM", "none").env("LODE_HEAP_LEDGER", dir);
        std::fs::remove_file(dir.join("ledger")).unwrap();
        place.runs(plain);
        let ledger = std::fs::read_to_string(dir.join("ledger")).unwrap();
        let plain = ledger.lines().find(|line| line.contains(&format!("\"{name}\""))).unwrap();
        assert!(figure(plain, "dram_peak") > 3 * dram, "{plain} {line}");
        println!("{name}: {pool} of the pool, {dram} of DRAM");
        assert!(pool > 10 << 20 && pool * 100 >= (pool + dram) * 90, "{line}");
    }
}
