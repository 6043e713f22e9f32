//! A load from memory that can't be read gives an error and kills nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::fs::OpenOptions;

use common::{
    End, PAGE, disk, guarded, in_other_process, shm, stray_store, words_of_other_process,
};
use lode_pmem::{Counters, Door, Line, Mapped, MediaError, RegionError, RegionOptions, WindowMode};

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
            for (from, piece) in [(0, 512), (end - 512, 1024), (512, 2048), (end - 512, 64)] {
                let outcome = door.load_compared(from, &mut vec![0; 12288], piece, 0, 0);
                assert_eq!(outcome, Err(MediaError::Poisoned { at: end }), "{piece} at {from}");
            }
            // What is kept of zeros; and that it can't be loaded, which is no error of what is.
            let crc = lode_pmem::crc32c(0, &[0; 512]).to_le_bytes();
            if !read_only {
                door.window(PAGE, &Counters::new()).store(end - 96, &crc.repeat(24));
            }
            for strips in 1..=8usize {
                let into = &mut vec![0; 512 * strips];
                let kept = end - 4 * strips as u64;
                assert_eq!(door.load_compared(0, into, 512, kept, 0), Ok(!read_only), "{strips}");
                for at in [kept + 4, end, 4 * PAGE + 32] {
                    assert_eq!(
                        door.load_compared(0, into, 512, at, 0),
                        Ok(false),
                        "{strips} by {at}"
                    );
                }
            }
            for (from, strips) in [(end - 512, 2), (end, 1), (end - 3584, 8)] {
                let into = &mut vec![0; 512 * strips];
                let outcome = door.load_compared(from, into, 512, end, strips as u64);
                assert_eq!(outcome, Err(MediaError::Poisoned { at: end }), "{strips} at {from}");
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
    if door.medium().inject_poison(PAGE).is_err() {
        eprintln!("skipped: this kernel makes no poison");
        return;
    }
    assert_eq!(door.load_word(0), Ok(1));
    assert_eq!(door.load_word(PAGE + 8), Err(MediaError::Poisoned { at: PAGE + 8 }));
    let outcome = door.load(PAGE - 64, &mut [0; 128]);
    assert_eq!(outcome, Err(MediaError::Poisoned { at: PAGE }));
    let outcome = door.load(0, &mut [0; 2 * PAGE as usize]);
    assert_eq!(outcome, Err(MediaError::Poisoned { at: PAGE }));
    let outcome = door.load_compared(PAGE - 1024, &mut [0; 2048], 512, 0, 0);
    assert_eq!(outcome, Err(MediaError::Poisoned { at: PAGE }));
    let at = PAGE + 1000;
    let outcome = door.load(at, &mut [0; 1000]);
    assert_eq!(outcome, Err(MediaError::Poisoned { at }));
}

/// A region of a file, in each mode of windows that there is here.
fn regions(directory: &tempfile::TempDir) -> Vec<Door<Mapped>> {
    let modes = WindowMode::ALL.into_iter().enumerate();
    let made = modes.filter_map(|(number, mode)| {
        let path = directory.path().join(number.to_string());
        let options = RegionOptions::new().windows(mode);
        match Mapped::create(path, 8 * PAGE, &options, false) {
            Ok(region) => Some(Door::new(region)),
            Err(RegionError::NoWindows { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    });
    made.collect()
}

#[test]
fn a_store_to_a_poisoned_page_is_done_and_just_the_rest_of_the_page_stays_bad() {
    let directory = shm();
    for door in regions(&directory) {
        let counters = Counters::new();
        door.window(4 * PAGE, &counters).copy_nt(0, &[1; 4 * PAGE as usize]);
        let bad = |at| MediaError::Poisoned { at };
        for (page, part) in [(1, false), (2, true)] {
            let at = page * PAGE;
            if door.medium().inject_poison(at).is_err() {
                eprintln!("skipped: this kernel makes no poison");
                return;
            }
            assert_eq!(door.load_word(at), Err(bad(at)));
            let mut window = door.window(PAGE, &counters);
            if part {
                window.store_word(at + 128, 7);
            } else {
                window.store_line(at + 128, &Line([7; 64]));
            }
            drop(window);
            door.fence(&counters).unwrap();
            let stored = if part { 7 } else { u64::from_le_bytes([7; 8]) };
            assert_eq!(door.load_word(at + 128), Ok(stored));
            let first = at + 128 + if part { 8 } else { 64 };
            assert_eq!(door.load(at + 128, &mut [0; 200]), Err(bad(first)));
            assert_eq!(door.load(at - 64, &mut [0; 200]), Err(bad(at)));
            assert_eq!(door.load_line(at + 192), Err(bad(at + 192)));
            // All of it, in parts that share lines and words.
            let mut window = door.window(PAGE, &counters);
            window.copy_nt(at, &[9; 1221]);
            window.zero_nt(at + 1221, PAGE - 1221);
            drop(window);
            assert_eq!(door.load(at, &mut [0; PAGE as usize]), Ok(()));
            assert_eq!(door.load_word(0), Ok(u64::from_le_bytes([1; 8])));
        }
        assert!(door.medium().inject_poison(8 * PAGE).is_err());
    }
}

#[test]
fn what_others_load_while_a_poisoned_page_is_stored_to_is_never_taken_for_good() {
    let directory = shm();
    let options = RegionOptions::new();
    let region = Mapped::create(directory.path().join("pool"), 64 * PAGE, &options, false);
    let (door, counters) = (Door::new(region.unwrap()), Counters::new());
    let file = OpenOptions::new().write(true).open(directory.path().join("pool")).unwrap();
    for page in 0..64 {
        let at = page * PAGE;
        if door.medium().inject_poison(at).is_err() {
            eprintln!("skipped: this kernel makes no poison");
            return;
        }
        // What is lost is not what was there.
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; PAGE as usize], at).unwrap();
    }
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| {
            for at in (0..20_000).map(|step| step % 64 * PAGE + 64) {
                let mut found = [0; 200];
                assert_eq!(door.load(at, &mut found), Err(MediaError::Poisoned { at }));
            }
        });
        for page in 0..64 {
            door.window(64, &counters).store_line(page * PAGE, &Line([7; 64]));
        }
        loads.join().unwrap();
    });
}

#[test]
fn lines_can_be_made_bad() {
    let directory = shm();
    for door in regions(&directory) {
        let region = door.medium();
        region.inject_bad_lines(100, 1).unwrap();
        region.inject_bad_lines(PAGE - 512, 512).unwrap();
        assert!(region.inject_bad_lines(8 * PAGE - 64, 65).is_err());
        assert_eq!(door.load(0, &mut [0; 64]), Ok(()));
        assert_eq!(door.load_word(120), Err(MediaError::Poisoned { at: 120 }));
        let at = PAGE - 512;
        assert_eq!(door.load(128, &mut [0; 4096]), Err(MediaError::Poisoned { at }));
        let loaded = door.load_compared(128, &mut [0; 4096], 512, 4 * PAGE, 0);
        assert_eq!(loaded, Err(MediaError::Poisoned { at }));
        let counters = Counters::new();
        door.window(PAGE, &counters).copy_nt(0, &[0; 2000]);
        assert_eq!(door.load(0, &mut [0; 2000]), Ok(()));
        // What is kept of good bytes, and then is not to be believed.
        let crc = lode_pmem::crc32c(0, &[0; 512]).to_le_bytes();
        door.window(PAGE, &counters).store(2 * PAGE, &crc.repeat(8));
        let compared = || door.load_compared(4 * PAGE, &mut [0; 4096], 512, 2 * PAGE, 0);
        assert_eq!(compared(), Ok(true));
        region.inject_bad_lines(2 * PAGE, 1).unwrap();
        assert_eq!(compared(), Ok(false));
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
    let told = format!("region at offset {} can't be written: its file was made shorter", 3 * PAGE);
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

#[test]
fn word_of_bad_memory_that_nobody_uses_ends_nothing() {
    /// `BUS_MCEERR_AO`.
    const TOLD_EARLY: i32 = 5;
    /// Where a SIGBUS has its address.
    const ADDRESS_AT: usize = 16;
    let name = "word_of_bad_memory_that_nobody_uses_ends_nothing";
    let end = in_other_process(name, || {
        // SAFETY: takes numbers.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        let directory = shm();
        let door = cut_short(&directory, false);
        drop(directory);
        let address = door.medium().as_ptr() as usize + PAGE as usize;
        // SAFETY: a zeroed siginfo is one; its address lies inside; a process may send itself any signal.
        let sent = unsafe {
            let mut info: libc::siginfo_t = core::mem::zeroed();
            (info.si_signo, info.si_code) = (libc::SIGBUS, TOLD_EARLY);
            (&raw mut info).cast::<u8>().add(ADDRESS_AT).cast::<usize>().write(address);
            let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            let call = libc::SYS_rt_tgsigqueueinfo;
            libc::syscall(call, process, thread, libc::SIGBUS, &raw const info)
        };
        // Who uses bad memory later has an error, as before.
        sent == 0
            && door.load_word(8).is_ok()
            && door.load_word(2 * PAGE) == Err(MediaError::Poisoned { at: 2 * PAGE })
    });
    assert_eq!(end, End::Code(0));
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
