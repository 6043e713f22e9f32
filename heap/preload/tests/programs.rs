//! Programs that know nothing of it, with memory that an owner lends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::process::Command;
use std::sync::Arc;

use common::owner::Owner;
use common::{Place, Talking, library, limited_place, program, run, with_memory};

/// An owner of so many chunks.
fn place(chunks: u64) -> Place {
    limited_place(chunks, usize::MAX)
}

impl Place {
    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(what);
        with_memory(command, &self.socket())
    }

    /// Starts it; it has memory then.
    fn talks(&self, what: &str, says: &str) -> Talking {
        let mut program = Talking::new(self.command(what));
        program.says(says);
        program
    }

    /// The owner ends, as if it were killed, and another one comes.
    fn changes_owners(mut self) -> Self {
        let file = self.owner.kill();
        self.owner = Owner::new(&self.dir.path().join("socket"), file, usize::MAX);
        self
    }
}

#[test]
fn threads_free_what_others_have_allocated() {
    let place = place(600);
    place.runs(place.command("threads"));
}

#[test]
fn a_child_sees_its_parents_memory_and_writes_to_its_own() {
    let place = place(200);
    place.runs(place.command("forks"));
    assert!(place.owner.books(|books| books.sessions) >= 3);
}

#[test]
fn children_get_dram_where_the_owner_lends_no_more() {
    let place = limited_place(200, 14);
    place.runs(place.command("copies"));
    assert!(place.owner.books(|books| books.most) <= 14);
}

#[test]
fn a_fork_is_whole_while_other_threads_allocate() {
    let place = place(600);
    place.runs(place.command("fork_storm"));
}

/// A program that has memory, whose owner will not answer the child that it forks next.
fn with_a_silent_owner(what: &str, place: &Place, fork_seconds: &str) -> Talking {
    let mut command = place.command(what);
    command.env("LODE_HEAP_FORK_SECONDS", fork_seconds);
    let mut program = Talking::new(command);
    program.says("has");
    place.owner.books(|books| books.silent_from = 0);
    program
}

/// The child, once it waits for an answer.
fn unanswered(place: &Place) -> libc::pid_t {
    place.owner.until("its child asks", |owner| owner.books(|books| !books.unanswered.is_empty()));
    place.owner.books(|books| books.unanswered[0]).cast_signed()
}

/// A child of a program of this test's. It is stopped; killed where the test fails.
struct Stopped(libc::pid_t);

impl Stopped {
    fn new(pid: libc::pid_t) -> Self {
        signal(pid, libc::SIGSTOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, if std::thread::panicking() { libc::SIGKILL } else { libc::SIGCONT });
    }
}

fn signal(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: a child of a program of this test's, which has not waited for it yet.
    unsafe { libc::kill(pid, signal) };
}

#[test]
fn a_child_that_hangs_in_its_fork_is_not_waited_for_and_ends() {
    let place = place(200);
    let mut program = with_a_silent_owner("late_child", &place, "3");
    program.go_on();
    let child = unanswered(&place);
    let stopped = Stopped::new(child);
    program.says(&format!("goes on without {child}"));
    drop(stopped);
    program.go_on();
    program.says("alone");
    place.owner.books(|books| books.silent_from = usize::MAX);
    program.go_on();
    program.says("end");
    place.ends(program);
}

#[test]
fn a_child_that_dies_in_its_fork_is_not_waited_for() {
    let place = place(200);
    let mut program = with_a_silent_owner("killed_child", &place, "60");
    program.go_on();
    signal(unanswered(&place), libc::SIGKILL);
    program.says("end");
    place.ends(program);
}

#[test]
fn a_fork_needs_no_descriptor() {
    let place = place(200);
    place.runs(place.command("no_pipe"));
}

#[test]
fn a_process_does_not_wait_for_itself_to_lend() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.arg("own_socket");
    run(with_memory(command, &dir.path().join("socket")));
}

#[test]
fn handlers_of_forks_may_allocate_whenever_they_were_registered() {
    let place = place(200);
    place.runs(place.command("handlers"));
}

#[test]
fn a_small_program_asks_nobody_and_says_so_in_the_ledger() {
    let place = place(200);
    let mut command = place.command("small");
    command.env("LODE_HEAP_LEDGER", place.dir.path());
    run(command);
    assert_eq!(place.owner.books(|books| books.sessions), 0);
    let ledger = std::fs::read_to_string(place.dir.path().join("ledger")).unwrap();
    assert_eq!(ledger.lines().count(), 2, "{ledger}");
    for line in ledger.lines() {
        let figure = |key: &str| {
            let rest = line.split(&format!("\"{key}\":")).nth(1).unwrap();
            rest.split(',').next().unwrap().parse::<u64>().unwrap()
        };
        assert!((200_000..300_000).contains(&figure("dram_peak")), "{line}");
        assert_eq!((figure("pool_peak"), figure("pool_touched")), (0, 0), "{line}");
    }
}

#[test]
fn a_programs_start_loads_no_other_library() {
    let mut command = Command::new(program());
    command.env("LD_TRACE_LOADED_OBJECTS", "1");
    let names = |text: String| text.lines().count();
    let alone = names(run(command));
    let mut command = Command::new(program());
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_PRELOAD", library());
    assert_eq!(names(run(command)), alone + 1);
}

#[test]
fn programs_are_begun_in_all_ways() {
    let place = place(200);
    place.runs(place.command("spawns"));
}

#[test]
fn large_blocks_grow_by_their_pages() {
    let place = place(600);
    let mut command = place.command("grows");
    command.env("LODE_HEAP_LEDGER", place.dir.path());
    place.runs(command);
    let ledger = std::fs::read_to_string(place.dir.path().join("ledger")).unwrap();
    let moved = ledger.split("\"moved\":").nth(1).unwrap().split(',').next().unwrap();
    let moved: u64 = moved.parse().unwrap();
    assert!(moved >= 64 << 20, "{ledger}");
}

#[test]
fn what_may_not_be_had_is_not_had() {
    let place = limited_place(200, 30);
    place.runs(place.command("limited"));
    assert!(place.owner.books(|books| books.most) <= 30);
}

/// What is right with libc's memory is so with the pool's.
fn runs_as_without(what: &str) -> Place {
    let mut plain = Command::new(program());
    plain.arg(what);
    run(plain);
    let place = place(200);
    place.runs(place.command(what));
    place
}

#[test]
fn what_is_said_of_blocks_is_heeded_and_forks_bear_it() {
    runs_as_without("advises");
}

#[test]
fn a_child_that_is_forked_on_a_block_has_a_stack_of_its_own() {
    let place = runs_as_without("block_stack");
    let mut command = place.command("block_stack");
    command.env("LODE_HEAP_DRAM_BELOW", "1M");
    place.runs(command);
}

/// Libc's own forks are not the library's.
#[test]
fn a_daemon_that_begins_on_a_block_ends_and_says_why() {
    let place = place(200);
    let mut command = place.command("block_daemon");
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > end {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(127) && said.contains("stack"), "{}: {said}", done.status);
}

#[test]
fn programs_with_little_address_space_do_as_well_as_without() {
    for limit in ["-v 300000", "-v 400000", "-v 1060000", "-v 2100000", "-d 40000"] {
        // Nobody says how much of it is the pool's, nor that any is.
        let place = place(300);
        let shell = |program: &std::path::Path| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit {limit} && exec \"$0\" narrow")]).arg(program);
            command
        };
        run(shell(&program()));
        run(with_memory(shell(&program()), &place.socket()));
        place.all_is_back();
    }
}

#[test]
fn alignments_are_as_libc_has_them() {
    runs_as_without("alignments");
}

#[test]
fn small_blocks_are_drams_where_it_is_said_so() {
    for below in [0, 100, 4096, 20000, 6 << 20, 10 << 20] {
        let place = place(200);
        let mut command = place.command("sources");
        command.arg(below.to_string()).env("LODE_HEAP_DRAM_BELOW", below.to_string());
        place.runs(command);
    }
}

#[test]
fn a_programs_memory_outlives_its_owner() {
    let mut place = place(200);
    let mut program = place.talks("orphaned", "owner");
    let before = place.owner.out();
    assert!(before >= 10, "{before}");
    let file = place.owner.kill();
    program.go_on();
    program.says("orphan");
    place.owner = Owner::new(&place.dir.path().join("socket"), Arc::clone(&file), usize::MAX);
    assert_eq!(place.owner.out(), before);
    // (The program looks for an owner five times a second, when it wants memory.)
    std::thread::sleep(std::time::Duration::from_millis(300));
    program.go_on();
    program.says("again");
    let after = place.owner.out();
    assert!(after >= before + 20, "{after}");
    assert_eq!(place.owner.books(|books| books.held), before);
    program.go_on();
    program.says("freed");
    place.owner.until("all but a little is back", |owner| owner.out() <= 2);
    place.ends(program);
}

#[test]
fn a_program_may_have_memory_of_any_number_of_owners() {
    let mut place = place(200);
    let mut program = Talking::new(place.command("many_owners"));
    for number in 1..12 {
        program.says("more");
        let (has, granted) = (place.owner.out(), place.owner.books(|books| books.granted));
        assert!(granted >= 4 && has >= 5 * number, "{number}: {granted} of {has}");
        place = place.changes_owners();
        place.owner.until("it says what it has", |owner| owner.books(|books| books.held) == has);
        program.go_on();
    }
    program.says("more");
    place.ends(program);
}

#[test]
fn what_is_granted_when_the_owner_ends_is_the_programs_or_nobodys() {
    // All of the frame comes, or not all.
    for less in [0, 4] {
        let place = place(200);
        let (socket, away) = (place.socket(), place.dir.path().join("away"));
        let mut program = Talking::new(place.command("orphaned"));
        program.says("owner");
        let (before, granted) = (place.owner.out(), place.owner.books(|books| books.granted));
        place.owner.books(|books| books.ends_granting = Some(less));
        // (It finds nobody after that.)
        std::fs::rename(&socket, &away).unwrap();
        program.go_on();
        program.says("orphan");
        let more = place.owner.books(|books| books.granted) - granted;
        assert!(more > 0);
        let its = if less == 0 { before + more } else { before };
        place.owner.until("what it has is locked, and no more", |owner| owner.out() == its);
        std::fs::rename(&away, &socket).unwrap();
        place.owner.until("it says what it has", |owner| owner.books(|books| books.held) == its);
        program.go_on();
        program.says("again");
        program.go_on();
        program.says("freed");
        place.owner.until("all but a little is back", |owner| owner.out() <= 2);
        place.ends(program);
    }
}

#[test]
fn what_a_sleeping_program_does_not_use_goes_back_by_itself() {
    let place = place(200);
    let mut program = place.talks("idles", "has");
    let before = place.owner.out();
    assert!(before >= 28, "{before}");
    program.go_on();
    program.says("freed");
    place.owner.until("most is back", |owner| owner.out() <= 4);
    place.ends(program);
}

#[test]
fn what_a_sleeping_program_does_not_use_goes_back_on_wish() {
    let place = place(200);
    let mut program = place.talks("idles", "has");
    program.go_on();
    program.says("freed");
    place.owner.wish(1000);
    place.owner.until("it has answered", |owner| owner.books(|books| books.spared >= 20));
    assert!(place.owner.out() <= 6, "{}", place.owner.out());
    program.go_on();
    program.ends_well();
}

#[test]
fn what_small_programs_have_freed_goes_back_on_wish() {
    const PROGRAMS: usize = 8;
    let place = place(200);
    let mut programs: Vec<Talking> =
        (0..PROGRAMS).map(|_| Talking::new(place.command("little"))).collect();
    programs.iter_mut().for_each(|program| program.says("freed"));
    let had = place.owner.books(|books| books.granted);
    assert!((3 * PROGRAMS..4 * PROGRAMS).contains(&had), "{had}");
    // (Whoever has no thread yet that listens takes it in when it has.)
    place.owner.wish(1000);
    place.owner.until("one is left to each at most", |owner| owner.out() <= PROGRAMS);
    for mut program in programs {
        program.go_on();
        program.ends_well();
    }
    place.all_is_back();
}

#[test]
fn the_one_chunk_that_a_program_has_freed_goes_back_on_wish() {
    let place = place(200);
    // (What the allocator has for itself would be in it otherwise.)
    let mut command = place.command("least");
    command.env("LODE_HEAP_DRAM_BELOW", "64K");
    let mut program = Talking::new(command);
    program.says("freed");
    assert_eq!(place.owner.books(|books| books.granted), 1);
    place.owner.wish(1000);
    place.owner.until("it is back", |owner| owner.out() == 0);
    program.go_on();
    program.ends_well();
}

#[test]
fn programs_that_close_all_descriptors_go_on() {
    let place = place(200);
    place.runs(place.command("closes"));
}

#[test]
fn descriptors_of_a_program_are_its_own_at_whatever_numbers() {
    let place = place(200);
    place.runs(place.command("takes_numbers"));
}

#[test]
fn without_an_owner_memory_is_dram() {
    let dir = tempfile::tempdir().unwrap();
    for what in ["threads", "forks", "grows", "closes", "takes_numbers", "spawns"] {
        let mut command = Command::new(program());
        command.arg(what);
        run(with_memory(command, &dir.path().join("none")));
    }
}

#[test]
fn real_programs_give_the_same_results() {
    let place = place(800);
    let text: String =
        (0..200_000_u32).map(|i| format!("{}\n", i.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(place.dir.path().join("numbers"), text).unwrap();
    std::fs::write(place.dir.path().join("a.c"), "int f(int x) { return x * 3; }\n").unwrap();
    let commands = [
        "for i in 1 2 3; do echo $(echo $i | sed s/2/x/); done",
        "sort -n numbers | md5sum; sort -rn -S 1M --parallel=2 numbers | md5sum",
        "python3 -c 'import subprocess, json; d = {i: str(i) * 20 for i in range(200000)}; print(len(json.dumps(d)), subprocess.run([\"echo\", \"a\"], capture_output=True).stdout)'",
        "python3 -c 'import multiprocessing as m; print(m.get_context(\"fork\").Pool(3).map(abs, range(-50, 0)))'",
        "sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000) select count(*), sum(length(t)) from (select hex(i * 7) as t from n order by t)'",
        "gcc -O2 -S -o - a.c",
    ];
    for text in commands {
        let shell = || {
            let mut command = Command::new("sh");
            command.args(["-c", text]).current_dir(place.dir.path());
            command
        };
        let plain = run(shell());
        let ours = run(with_memory(shell(), &place.socket()));
        assert_eq!(plain, ours, "{text}");
        assert!(!plain.is_empty());
    }
    assert!(place.owner.books(|books| books.granted) > 20);
    place.all_is_back();
    assert!(library().exists());
}
