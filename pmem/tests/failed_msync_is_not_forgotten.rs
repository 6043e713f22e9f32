//! The kernel tells a failure to write to one caller alone, and once: who asks again hears of nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::thread;

use common::{PAGE, shm};
use lode_pmem::{
    Counters, Door, FlushStrategy, Mapped, MediaError, RegionOptions, View, ViewOptions,
};

/// From here on `msync` fails for this thread.
fn fail_msync() {
    let line = |code: u32, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_msync as u32, 1),
        line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EIO as u32, 0),
        line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    let (one, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: it takes numbers alone.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, none, none, none) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    // SAFETY: the program and its lines live as long as the call, which copies them.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &program) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// What `work` returns in a thread whose `msync` fails.
fn failing<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let work = || {
            fail_msync();
            work()
        };
        scope.spawn(work).join().unwrap()
    })
}

fn region(directory: &tempfile::TempDir) -> (Door<Mapped>, [View; 2]) {
    let options = RegionOptions { flush: Some(FlushStrategy::Msync), ..RegionOptions::new() };
    let region = Mapped::create(directory.path().join("pool"), 16 * PAGE, &options, false).unwrap();
    let how = ViewOptions { writable: true, align: PAGE, phase: 0 };
    let views = [0, 8].map(|page| {
        let view = region.view(&[(page * PAGE, 4 * PAGE)], &how, None).unwrap();
        view.allow(0, 4 * PAGE).unwrap();
        view
    });
    (Door::new(region), views)
}

/// All that makes stores durable, each after a store.
fn fence_all(door: &Door<Mapped>, views: &[View; 2]) -> Vec<Result<(), MediaError>> {
    let counters = Counters::new();
    door.window(8, &counters).store_word(15 * PAGE, 1);
    let mut done = vec![door.fence(&counters)];
    for view in views {
        view.store(8, &[1; 8]).unwrap();
        done.extend([view.persist(8, 8), view.fence(8, 8), view.settle(0, PAGE)]);
    }
    done
}

#[test]
fn once_a_view_could_not_be_written_neither_the_region_nor_its_views_say_that_they_were() {
    let directory = shm();
    let (door, views) = region(&directory);
    assert_eq!(fence_all(&door, &views), [Ok(()); 7]);
    assert_eq!(failing(|| views[0].persist(0, 8)), Err(MediaError::Unwritten));
    assert_eq!(fence_all(&door, &views), [Err(MediaError::Unwritten); 7]);
    // One that is made later is of the same file.
    let how = ViewOptions { writable: true, align: PAGE, phase: 0 };
    let later = door.medium().view(&[(0, PAGE)], &how, None).unwrap();
    later.allow(0, PAGE).unwrap();
    assert_eq!(later.persist(0, 8), Err(MediaError::Unwritten));
}

#[test]
fn once_the_region_could_not_be_written_no_view_says_that_it_was() {
    let directory = shm();
    let (door, views) = region(&directory);
    let failed = failing(|| {
        let counters = Counters::new();
        door.window(8, &counters).store_word(0, 1);
        door.fence(&counters)
    });
    assert_eq!(failed, Err(MediaError::Unwritten));
    assert_eq!(fence_all(&door, &views), [Err(MediaError::Unwritten); 7]);
}
