//! A child by `fork` has no part of a pool: it may drop it, and dies if it touches it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::PoolFile;

/// Does `work` in a child; returns how that ended, as `wait` says it.
fn in_a_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child only does `work`, which is what is tested, and ends without running
    // anything of the test's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process.
        std::panic::set_hook(Box::new(|_| unsafe { libc::_exit(101) }));
        work();
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status is where it is said to be.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

#[test]
fn a_child_has_no_part_of_the_pool() {
    let file = PoolFile::new(16);
    let mut pool = Some(file.open());
    pool.as_ref().unwrap().write("f", "contents").unwrap();
    let ended = in_a_child(|| drop(pool.take()));
    assert!(libc::WIFEXITED(ended) && libc::WEXITSTATUS(ended) == 0, "{ended:#x}");
    let pool = pool.unwrap();
    assert_eq!(pool.read_to_string("f").unwrap(), "contents");
    let open = pool.open_file("f").unwrap();
    let ended = in_a_child(|| {
        let _ = open.read_at(&mut [0; 8], 0);
    });
    assert!(libc::WIFSIGNALED(ended) && libc::WTERMSIG(ended) == libc::SIGSEGV, "{ended:#x}");
    drop(open);
    // Programs may be started.
    assert!(std::process::Command::new("true").status().unwrap().success());
    pool.write("g", "more").unwrap();
    pool.close().unwrap();
    assert!(file.open().opening().unwrap().clean);
}
