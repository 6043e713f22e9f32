//! What is called most allocates nothing, but for the one thing that a handle is, and makes no
//! system call: a thread that is not allowed any does it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{forbid, pool};
use lode::{OpenOptions, Pool};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts each thread's allocations.
struct Counting;

// SAFETY: every call goes on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise for `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, by this allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of `work`, done so often.
fn allocations(times: u64, mut work: impl FnMut()) -> u64 {
    work();
    let before = COUNT.with(Cell::get);
    (0..times).for_each(|_| work());
    COUNT.with(Cell::get) - before
}

/// From here on a system call ends this thread, and nothing else.
fn forbid_system_calls() {
    forbid::install(&mut [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_KILL_THREAD,
    }]);
}

fn prepared() -> Pool {
    let pool = pool(64);
    pool.create_dir_all("some/way").unwrap();
    pool.write("some/way/f", vec![1; 100_000]).unwrap();
    pool
}

#[test]
fn what_is_called_most_does_not_allocate() {
    let pool = prepared();
    let file = pool.open_with("some/way/f", OpenOptions::new().read(true).write(true)).unwrap();
    let mut bytes = [0; 4096];
    let read = allocations(1000, || file.read_exact_at(&mut bytes, 5000).unwrap());
    let small = allocations(1000, || file.write_all_at(&bytes[..500], 9000).unwrap());
    let page = allocations(1000, || file.write_all_at(&bytes, 8192).unwrap());
    let look = allocations(1000, || assert!(pool.metadata("some/way/f").unwrap().is_file()));
    let dots = allocations(1000, || assert!(pool.exists("/some/./way/../way//f")));
    let fstat = allocations(1000, || assert!(file.metadata().unwrap().is_file()));
    assert_eq!([read, look, dots, fstat], [0; 4]);
    let opened = allocations(1000, || drop(pool.open_file("some/way/f").unwrap()));
    assert_eq!(opened, 1000, "one for each handle");
    // Logs grow, and are collected: the engine takes lists for that, now and then.
    let append = allocations(1000, || assert!(file.append(&bytes[..100]).unwrap() > 0));
    let most = [small, page, append];
    assert!(most.iter().all(|count| *count < 300), "{most:?}");
}

#[test]
fn what_is_called_most_makes_no_system_call() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    let pool = prepared();
    let work = move || {
        let options = OpenOptions::new().read(true).write(true).clone();
        let mut bytes = [0; 4096];
        // Once before, so that what is made at the first time is there.
        for round in 0..1000 {
            if round == 1 {
                forbid_system_calls();
            }
            let file = pool.open_with("some/way/f", &options).unwrap();
            file.read_exact_at(&mut bytes, 5000).unwrap();
            file.write_all_at(&bytes[..500], 9000).unwrap();
            file.write_all_at(&bytes, 8192).unwrap();
            file.append(&bytes[..100]).unwrap();
            file.sync_all().unwrap();
            pool.metadata("some/way/f").unwrap();
            pool.create_new("some/way/new").unwrap().write_all_at(&bytes, 0).unwrap();
            pool.rename("some/way/new", "some/way/other").unwrap();
            pool.remove_file("some/way/other").unwrap();
        }
        ENDED.store(true, SeqCst);
        // To end takes system calls, too.
        loop {
            std::hint::spin_loop();
        }
    };
    let begun = Instant::now();
    let _never = std::thread::spawn(work);
    while !ENDED.load(SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(30), "it made a system call");
        std::thread::sleep(Duration::from_millis(5));
    }
}
