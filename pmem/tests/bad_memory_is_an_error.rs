//! A load from memory that can't be read gives an error and kills nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::fs::OpenOptions;

use common::{
    End, PAGE, disk, guarded, in_other_process, shm, stray_store, words_of_other_process,
};
use lode_pmem::{Counters, Door, Mapped, MediaError, RegionOptions, WindowMode};

fn cut_short(directory: &tempfile::TempDir, read_only: bool) -> Door<Mapped> {
    let path = directory.path().join("pool");
    drop(Mapped::create(&path, 8 * PAGE, &RegionOptions::new(), false).unwrap());
    let options = RegionOptions::new().read_only(read_only);
    let region = Mapped::open(&path, &options).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(2 * PAGE).unwrap();
    Door::new(region)
}

#[test]
fn of_a_file_cut_short_behind_the_mapping() {
    for directory in [shm(), disk()] {
        for read_only in [false, true] {
            let door = cut_short(&directory, read_only);
            let end = 2 * PAGE;
            assert_eq!(door.load_word(end - 8), Ok(0));
            assert_eq!(door.load_word(end), Err(MediaError::Poisoned { at: end }));
            let at = end + 64;
            assert_eq!(door.load_line(at), Err(MediaError::Poisoned { at }));
            for (from, len) in [(0, 3 * PAGE), (end - 3, 100), (end - 64, 128), (end - 1, 600)] {
                let outcome = door.load(from, &mut vec![0; len as usize]);
                assert_eq!(outcome, Err(MediaError::Poisoned { at: end }), "{len} at {from}");
            }
            for (from, len) in [(end + 1, 3), (5 * PAGE + 3, 2000)] {
                let outcome = door.load(from, &mut vec![0; len]);
                assert_eq!(outcome, Err(MediaError::Poisoned { at: from }));
            }
            drop(door);
            std::fs::remove_file(directory.path().join("pool")).unwrap();
        }
    }
}

#[test]
fn in_many_threads_at_once() {
    let directory = shm();
    let door = cut_short(&directory, false);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let door = &door;
            scope.spawn(move || {
                for round in 0..2000u64 {
                    let at = 2 * PAGE + (thread * 8 + round * 64) % PAGE;
                    assert_eq!(door.load_word(at), Err(MediaError::Poisoned { at }));
                    assert_eq!(door.load_word(round % 512 * 8), Ok(0));
                }
            });
        }
    });
}

#[test]
fn of_a_poisoned_page() {
    let Some(door) = guarded(WindowMode::None, 4).map(Door::new) else {
        return;
    };
    let counters = Counters::new();
    door.window(8, &counters).store_word(0, 1);
    if !poison(&door, PAGE) {
        eprintln!("skipped: this kernel makes no poison");
        return;
    }
    assert_eq!(door.load_word(0), Ok(1));
    assert_eq!(door.load_word(PAGE + 8), Err(MediaError::Poisoned { at: PAGE + 8 }));
    let outcome = door.load(PAGE - 64, &mut [0; 128]);
    assert_eq!(outcome, Err(MediaError::Poisoned { at: PAGE }));
    let outcome = door.load(0, &mut [0; 2 * PAGE as usize]);
    assert_eq!(outcome, Err(MediaError::Poisoned { at: PAGE }));
    let at = PAGE + 1000;
    let outcome = door.load(at, &mut [0; 1000]);
    assert_eq!(outcome, Err(MediaError::Poisoned { at }));
}

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioPoison {
    start: u64,
    len: u64,
    mode: u64,
    updated: i64,
}

/// Poisons one page that has not been touched, through userfaultfd.
fn poison(door: &Door<Mapped>, at: u64) -> bool {
    const UFFD_API: u64 = 0xaa;
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    const UFFDIO_POISON: libc::c_ulong = 0xc020_aa08;
    const FEATURE_POISON: u64 = 1 << 14;
    const REGISTER_MISSING: u64 = 1;
    let start = door.medium().as_ptr() as u64 + at;
    // SAFETY: the structs are those that the calls take. The descriptor stays open, as
    // the poison goes with it.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as libc::c_int;
        let mut api = UffdioApi { api: UFFD_API, features: FEATURE_POISON, ioctls: 0 };
        let mut register = UffdioRegister { start, len: PAGE, mode: REGISTER_MISSING, ioctls: 0 };
        let mut poison = UffdioPoison { start, len: PAGE, mode: 0, updated: 0 };
        fd >= 0
            && libc::ioctl(fd, UFFDIO_API, &mut api) == 0
            && libc::ioctl(fd, UFFDIO_REGISTER, &mut register) == 0
            && libc::ioctl(fd, UFFDIO_POISON, &mut poison) == 0
    }
}

#[test]
fn a_store_to_it_dies() {
    let (end, words) = words_of_other_process("a_store_to_it_dies", || {
        let directory = shm();
        let door = cut_short(&directory, false);
        drop(directory);
        let counters = Counters::new();
        door.window(8, &counters).store_word(3 * PAGE, 1);
        true
    });
    assert_eq!(end, End::Signal(libc::SIGBUS));
    let told =
        format!("pool memory at offset {} can't be written: the file was truncated", 3 * PAGE);
    assert_eq!(words.matches(&told).count(), 1, "{words}");
}

#[test]
fn a_load_past_the_door_dies() {
    let end = in_other_process("a_load_past_the_door_dies", || {
        let directory = shm();
        let door = cut_short(&directory, false);
        drop(directory);
        // SAFETY: not safe: the test is about that.
        unsafe { door.medium().as_ptr().add(3 * PAGE as usize).read_volatile() };
        true
    });
    assert_eq!(end, End::Signal(libc::SIGBUS));
}

#[test]
fn a_signal_that_somebody_sends_still_kills() {
    let end = in_other_process("a_signal_that_somebody_sends_still_kills", || {
        // SAFETY: takes numbers. (The handler of Rust's runtime would take the signal for a fault.)
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        let _region = guarded(WindowMode::None, 1);
        // SAFETY: takes a number.
        unsafe { libc::raise(libc::SIGBUS) };
        true
    });
    assert_eq!(end, End::Signal(libc::SIGBUS));
}

extern "C" fn earlier_handler(_: libc::c_int) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(42) };
}

#[test]
fn other_faults_go_to_the_handler_that_was_there_before() {
    let name = "other_faults_go_to_the_handler_that_was_there_before";
    let end = in_other_process(name, || {
        // SAFETY: installs a handler.
        unsafe { libc::signal(libc::SIGBUS, earlier_handler as *const () as usize) };
        let directory = shm();
        let door = cut_short(&directory, false);
        assert!(door.load_word(2 * PAGE).is_err());
        drop(directory);
        stray_store(door.medium(), 3 * PAGE);
        true
    });
    let by_key = common::guarded(WindowMode::Key, 1).is_some();
    assert!(end == End::Code(42) || by_key && end == End::Signal(libc::SIGSEGV), "{end:?}");
}
