//! A store outside a window kills the process, in each mode as far as it promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use common::{End, PAGE, guarded, in_other_process, stray_store};
use lode_pmem::{Counters, Door, Mapped, WindowMode};

const SEGV: End = End::Signal(libc::SIGSEGV);

/// The region, or the end of this other process.
fn door(mode: WindowMode) -> Option<Door<Mapped>> {
    Some(Door::new(guarded(mode, 4)?))
}

fn dies(name: &str, mode: WindowMode, body: impl FnOnce(Door<Mapped>)) {
    let end = in_other_process(name, || door(mode).map(body).is_some());
    assert!(end == SEGV || end == End::Skipped, "{end:?}");
}

fn lives(name: &str, mode: WindowMode, body: impl FnOnce(Door<Mapped>)) {
    let end = in_other_process(name, || door(mode).map(body).is_some());
    assert!(end == End::Code(0) || end == End::Skipped, "{end:?}");
}

fn after_a_window(door: Door<Mapped>) {
    let counters = Counters::new();
    door.window(8, &counters).store_word(0, 1);
    stray_store(door.medium(), 0);
}

#[test]
fn key_same_thread() {
    dies("key_same_thread", WindowMode::Key, after_a_window);
}

#[test]
fn mprotect_same_thread() {
    dies("mprotect_same_thread", WindowMode::Mprotect, after_a_window);
}

#[test]
fn key_same_thread_before_any_window() {
    dies("key_same_thread_before_any_window", WindowMode::Key, |door| {
        stray_store(door.medium(), 0);
    });
}

/// Another thread stores at `at` while this one has a window open on page 0.
fn from_other_thread(door: &Door<Mapped>, at: u64) {
    let counters = Counters::new();
    let mut window = door.window(8, &counters);
    window.store_word(0, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| stray_store(door.medium(), at));
    });
    drop(window);
}

#[test]
fn mprotect_other_thread_other_page() {
    dies("mprotect_other_thread_other_page", WindowMode::Mprotect, |door| {
        from_other_thread(&door, PAGE);
    });
}

#[test]
fn mprotect_does_not_catch_another_thread_in_an_open_page() {
    let name = "mprotect_does_not_catch_another_thread_in_an_open_page";
    lives(name, WindowMode::Mprotect, |door| from_other_thread(&door, 8));
}

type Task = Box<dyn FnOnce() + Send>;

/// A thread that is there before the region is, and runs what it is sent.
fn elder() -> (Sender<Task>, JoinHandle<()>) {
    let (send, receive) = channel::<Task>();
    let thread = std::thread::spawn(move || receive.into_iter().for_each(|task| task()));
    (send, thread)
}

#[test]
fn key_other_thread_in_an_open_window() {
    let name = "key_other_thread_in_an_open_window";
    let end = in_other_process(name, || {
        let (elder, thread) = elder();
        let Some(door) = door(WindowMode::Key) else {
            return false;
        };
        let door: &'static Door<Mapped> = Box::leak(Box::new(door));
        let counters = Counters::new();
        let mut window = door.window(8, &counters);
        window.store_word(0, 1);
        elder.send(Box::new(|| stray_store(door.medium(), 0))).unwrap();
        drop(elder);
        thread.join().unwrap();
        true
    });
    assert!(end == SEGV || end == End::Skipped, "{end:?}");
}

#[test]
fn key_older_threads_that_have_loaded_can_not_store() {
    let name = "key_older_threads_that_have_loaded_can_not_store";
    let end = in_other_process(name, || {
        let (elder, thread) = elder();
        let Some(door) = door(WindowMode::Key) else {
            return false;
        };
        let door: &'static Door<Mapped> = Box::leak(Box::new(door));
        // (That the load does not die is the next test's.)
        let task = || {
            assert_eq!(door.load_word(0), Ok(0));
            stray_store(door.medium(), 0);
        };
        elder.send(Box::new(task)).unwrap();
        drop(elder);
        thread.join().unwrap();
        true
    });
    assert!(end == SEGV || end == End::Skipped, "{end:?}");
}

#[test]
fn key_older_threads_load_and_open_windows() {
    let name = "key_older_threads_load_and_open_windows";
    let end = in_other_process(name, || {
        let (elder, thread) = elder();
        let Some(door) = door(WindowMode::Key) else {
            return false;
        };
        let door: &'static Door<Mapped> = Box::leak(Box::new(door));
        let counters = Counters::new();
        door.window(8, &counters).store_word(0, 77);
        let task = || {
            assert_eq!(door.load_word(0), Ok(77));
            assert!(door.load_line(64).is_ok());
            assert!(door.load(3, &mut [0; 5000]).is_ok());
            let counters = Counters::new();
            door.window(8, &counters).store_word(8, 78);
            assert_eq!(door.load_word(8), Ok(78));
        };
        elder.send(Box::new(task)).unwrap();
        drop(elder);
        thread.join().unwrap();
        true
    });
    assert!(end == End::Code(0) || end == End::Skipped, "{end:?}");
}

#[test]
fn key_windows_of_a_thread_nest() {
    lives("key_windows_of_a_thread_nest", WindowMode::Key, nested);
}

#[test]
fn key_windows_of_a_thread_nest_and_end() {
    dies("key_windows_of_a_thread_nest_and_end", WindowMode::Key, |door| {
        let counters = Counters::new();
        let outer = door.window(8, &counters);
        let inner = door.window(8, &counters);
        drop(inner);
        drop(outer);
        stray_store(door.medium(), 0);
    });
}

fn nested(door: Door<Mapped>) {
    let counters = Counters::new();
    let mut outer = door.window(16, &counters);
    outer.store_word(0, 1);
    let mut inner = door.window(8, &counters);
    inner.store_word(8, 2);
    drop(inner);
    outer.store_word(16, 3);
    drop(outer);
    assert_eq!(door.load_word(16), Ok(3));
}

#[test]
fn mprotect_windows_of_two_threads_share_a_page() {
    let Some(door) = door(WindowMode::Mprotect) else {
        return;
    };
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let door = &door;
            scope.spawn(move || {
                let counters = Counters::new();
                for round in 0..500u64 {
                    let mut window = door.window(24, &counters);
                    window.store_word(thread * 8, round);
                    window.store_word(PAGE + thread * 8, round);
                    std::thread::yield_now();
                    window.store_word(thread * 8 + 64, round);
                }
            });
        }
    });
    for thread in 0..2 {
        assert_eq!(door.load_word(thread * 8 + 64), Ok(499));
    }
}

static TARGET: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn store_in_handler(_: libc::c_int) {
    let target = TARGET.load(std::sync::atomic::Ordering::SeqCst) as *mut u8;
    // SAFETY: not safe: the test is about that.
    unsafe { std::arch::asm!("mov byte ptr [{target}], 1", target = in(reg) target) };
}

extern "C" fn load_in_handler(_: libc::c_int) {
    let target = TARGET.load(std::sync::atomic::Ordering::SeqCst) as *const u8;
    // SAFETY: a load from a mapping.
    unsafe { target.read_volatile() };
}

fn signal_with(door: &Door<Mapped>, at: usize, handler: extern "C" fn(libc::c_int)) {
    let target = door.medium().as_ptr() as usize + at;
    TARGET.store(target, std::sync::atomic::Ordering::SeqCst);
    // SAFETY: installs a handler and sends this thread the signal.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as usize);
        libc::raise(libc::SIGUSR1);
    }
}

fn open_and_signal(door: Door<Mapped>, at: usize) {
    let counters = Counters::new();
    let mut window = door.window(8, &counters);
    window.store_word(0, 1);
    signal_with(&door, at, store_in_handler);
}

#[test]
fn key_signal_handler_in_an_open_window() {
    dies("key_signal_handler_in_an_open_window", WindowMode::Key, |door| {
        open_and_signal(door, 0);
    });
}

#[test]
fn mprotect_signal_handler_in_another_page() {
    dies("mprotect_signal_handler_in_another_page", WindowMode::Mprotect, |door| {
        open_and_signal(door, PAGE as usize);
    });
}

#[test]
fn key_signal_handlers_load_and_the_window_goes_on() {
    lives("key_signal_handlers_load_and_the_window_goes_on", WindowMode::Key, |door| {
        let counters = Counters::new();
        let mut window = door.window(16, &counters);
        window.store_word(0, 1);
        signal_with(&door, 0, load_in_handler);
        window.store_word(8, 2);
    });
}

fn forked_child(door: Door<Mapped>) {
    // SAFETY: the child only stores and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            stray_store(door.medium(), 0);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert!(libc::WIFSIGNALED(status), "the child lives");
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    }
    // The parent's mapping is as it was.
    let counters = Counters::new();
    door.window(8, &counters).store_word(0, 5);
    assert_eq!(door.load_word(0), Ok(5));
}

#[test]
fn none_forked_child() {
    lives("none_forked_child", WindowMode::None, forked_child);
}

#[test]
fn mprotect_forked_child() {
    lives("mprotect_forked_child", WindowMode::Mprotect, forked_child);
}

#[test]
fn key_forked_child() {
    lives("key_forked_child", WindowMode::Key, forked_child);
}

fn read_into(door: &Door<Mapped>) -> std::io::Result<usize> {
    let file = std::fs::File::open("/dev/zero").unwrap();
    let to = door.medium().as_ptr().cast_mut().cast();
    // SAFETY: not safe where nothing guards the region: the test is about that.
    let outcome = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&file), to, 8) };
    usize::try_from(outcome).map_err(|_| std::io::Error::last_os_error())
}

fn is_refused(door: Door<Mapped>) {
    let counters = Counters::new();
    door.window(8, &counters).store_word(0, 5);
    let error = read_into(&door).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    assert_eq!(door.load_word(0), Ok(5));
}

#[test]
fn key_system_call_is_refused() {
    lives("key_system_call_is_refused", WindowMode::Key, is_refused);
}

#[test]
fn mprotect_system_call_is_refused() {
    lives("mprotect_system_call_is_refused", WindowMode::Mprotect, is_refused);
}

#[test]
fn keys_run_out_with_an_error_and_come_back() {
    let name = "keys_run_out_with_an_error_and_come_back";
    lives(name, WindowMode::Key, |first| {
        use lode_pmem::{RegionError, RegionOptions};
        let by_key = RegionOptions::new().windows(WindowMode::Key);
        let mut regions = vec![first.medium().window_mode()];
        let mut held = Vec::new();
        let error = loop {
            match Mapped::anonymous(PAGE, &by_key) {
                Ok(region) => {
                    regions.push(region.window_mode());
                    held.push(region);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, RegionError::NoWindows { .. }), "{error}");
        assert!(regions.len() > 1 && regions.len() < 16);
        let chosen = Mapped::anonymous(PAGE, &RegionOptions::new()).unwrap();
        assert_eq!(chosen.window_mode(), WindowMode::None);
        held.clear();
        let again = Mapped::anonymous(PAGE, &by_key).unwrap();
        assert_eq!(again.window_mode(), WindowMode::Key);
    });
}
