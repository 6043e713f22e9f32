//! Programs with a kept heap, and owners, that end or are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lode::{Content, KeptHeap, Pool, ROOT};
use lode_testkit::rng::Rng;
use lode_testkit::until;
use rustix::process::Signal;

use super::program::{Program, judge};
use super::{EBUSY, MIB, Serving, WORDS, errno, served};
use crate::common::program::socket;
use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};

/// A file in which programs note what they have done.
struct Notes(PathBuf);

impl Notes {
    fn new(scratch: &Scratch) -> Self {
        let path = scratch.path("notes");
        fs::write(&path, "").unwrap();
        Self(path)
    }

    fn noted(&self) -> u64 {
        fs::metadata(&self.0).unwrap().len()
    }

    /// A program that goes on behind `done` steps, once it has noted so many more.
    fn works(&self, pool: &Path, done: u64, more: u64) -> Program {
        let before = self.noted();
        let program = Program::start("works", &socket(pool), &self.0, done);
        until(|| self.noted() >= before + more);
        program
    }
}

/// A program stores on whose owner has ended: nothing of it comes to who has the pool now. Whether the pool was closed.
fn stores_nothing_more(pool: &Path, mut program: Program) -> bool {
    let library = Pool::open(pool).unwrap();
    let was_closed = library.opening().unwrap().clean;
    let heap = KeptHeap::open(&library, "heap").unwrap();
    let place = heap.root().unwrap() + 24;
    let found = heap.word(place).unwrap();
    assert_ne!(found, 0);
    program.hear("told");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(heap.word(place).unwrap(), found, "a store of before came later");
    heap.change(&[(place, 0)]).unwrap();
    heap.close().unwrap();
    library.close().unwrap();
    fsck(pool).expect(0);
    was_closed
}

#[test]
fn a_heap_is_whole_after_its_program_was_killed() {
    const KILLS: u64 = 8;
    let scratch = Scratch::new();
    let (pool, mut serving) = served(&scratch);
    let notes = Notes::new(&scratch);
    let (mut done, mut bits) = (0, Rng::new(3));
    for _ in 0..KILLS {
        let before = notes.noted();
        let program = notes.works(&pool, done, 3);
        std::thread::sleep(Duration::from_micros(bits.below(30_000)));
        drop(program);
        let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
        done = judge(&heap, done + notes.noted() - before);
    }
    assert!(done > 3 * KILLS);
    assert_eq!(serving.signal(Signal::TERM), Some(0));
    fsck(&pool).expect(0);
    let library = Pool::open(&pool).unwrap();
    assert_eq!(judge(&KeptHeap::open(&library, "heap").unwrap(), done), done);
}

#[test]
fn nothing_that_is_stored_after_the_owners_end_reaches_the_pool() {
    let scratch = Scratch::new();
    let (pool, mut serving) = served(&scratch);
    for kill in 0..4 {
        let notes = scratch.path("notes");
        let mut program = Program::start("scribbles", &socket(&pool), &notes, 0);
        program.hear("stores");
        if kill == 1 {
            // It can't see it, and may store as soon as it can again.
            program.stop();
        }
        // By a signal, too: the owner waits until the program has let go.
        let signal = if kill == 2 { Signal::TERM } else { Signal::KILL };
        let ended = serving.signal(signal);
        assert_eq!(ended, (signal == Signal::TERM).then_some(0));
        if kill == 1 {
            assert_eq!(errno(Pool::open(&pool)), EBUSY);
            assert_ne!(lode(&["fsck", text(&pool)]).code, 0);
            program.signal(Signal::CONT);
        }
        assert_eq!(stores_nothing_more(&pool, program), signal == Signal::TERM);
        serving = Serving::start(&pool, "heap_ready=0");
    }
}

#[test]
fn a_heap_of_a_pool_with_checksums_is_whole_whoever_is_killed() {
    let scratch = Scratch::new();
    let pool = scratch.path("pool");
    lode(&["mkfs", text(&pool), "--size", "64M", "--protect", "full"]).expect(0);
    let mut serving = Serving::start(&pool, "heap_ready=0");
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    heap.alloc_into(ROOT, 8 * WORDS, Content::Zeros).unwrap();
    heap.close().unwrap();
    let notes = Notes::new(&scratch);
    // A program is killed; then its owner, under it; then the owner is told to end.
    let mut done = 0;
    for how in ["program", "owner", "end"] {
        let before = notes.noted();
        let mut program = notes.works(&pool, done, 40);
        match how {
            "program" => {}
            "owner" => assert_eq!(serving.signal(Signal::KILL), None),
            _ => assert_eq!(serving.signal(Signal::TERM), Some(0)),
        }
        if how != "program" {
            // (Its next step is refused.)
            program.ends();
        }
        drop(program);
        if how != "program" {
            // The scrub compares each byte with its checksum: whoever stored it.
            let library = Pool::open(&pool).unwrap();
            assert_eq!(library.opening().unwrap().clean, how == "end");
            let heap = KeptHeap::open(&library, "heap").unwrap();
            done = judge(&heap, done + notes.noted() - before);
            heap.close().unwrap();
            assert!(library.read("heap").unwrap().len() as u64 > MIB);
            library.close().unwrap();
            fsck(&pool).expect(0);
            let scrubbed = lode(&["scrub", text(&pool), "--json"]).expect(0).json();
            assert_eq!(scrubbed["exempt_pages"], 0, "{scrubbed}");
            serving = Serving::start(&pool, "heap_ready=0");
        } else {
            let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
            done = judge(&heap, done + notes.noted() - before);
        }
    }
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    assert_eq!(judge(&heap, done), done);
    assert!(done >= 120);
}

#[test]
fn an_owner_that_is_to_end_waits_two_seconds_for_a_program_that_is_stopped() {
    let scratch = Scratch::new();
    let (pool, mut serving) = served(&scratch);
    let (dir, log) = (scratch.dir("mnt"), scratch.path("log"));
    for is_mount in [false, true] {
        let server = is_mount.then(|| {
            serving.signal(Signal::TERM);
            Server::mount(&pool, &dir, &log)
        });
        let at = socket(if is_mount { &dir } else { &pool });
        let mut program = Program::start("scribbles", &at, &scratch.path("notes"), 0);
        program.hear("stores");
        program.stop();
        let began = Instant::now();
        match server {
            None => {
                let code = serving.signal(Signal::TERM);
                assert!(code.is_some_and(|code| code != 0), "it says nothing: {code:?}");
            }
            Some(server) => {
                rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
                let (code, said) = server.ends();
                assert_ne!(code, Some(0), "{said}");
                assert!(said.contains("does not let go of a kept heap"), "{said}");
            }
        }
        let took = began.elapsed();
        assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(15), "{took:?}");
        // It may store as soon as it runs again: nobody comes in its way.
        assert_eq!(errno(Pool::open(&pool)), EBUSY);
        program.signal(Signal::CONT);
        assert!(!stores_nothing_more(&pool, program), "as after a crash");
        serving = Serving::start(&pool, "heap_ready=0");
    }
}
