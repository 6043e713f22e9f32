//! Looks at a running thread many thousand times a second: what it is marked as doing, or else where
//! its instruction pointer is.
//!
//! What this file guarantees: the handler of the signal does nothing but load and store atomic
//! words; it stays for good, so that a late signal never finds the default action, which would end
//! the process.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::Duration;

/// Instruction pointers that there is room for.
const ROOM: usize = 1 << 17;
/// Marks that there are, 0 being none.
pub const MARKS: usize = 10;

/// Samples count.
static ON: AtomicBool = AtomicBool::new(false);
static MARK: AtomicU8 = AtomicU8::new(0);
static COUNTS: [AtomicU64; MARKS] = [const { AtomicU64::new(0) }; MARKS];
static POINTERS: [AtomicUsize; ROOM] = [const { AtomicUsize::new(0) }; ROOM];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Marks what the thread does while `work` runs.
#[inline(always)]
pub fn marked<R>(mark: u8, work: impl FnOnce() -> R) -> R {
    MARK.store(mark, Relaxed);
    compiler_fence(SeqCst);
    let done = work();
    compiler_fence(SeqCst);
    MARK.store(0, Relaxed);
    done
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Of each mark, how often.
    pub marks: [u64; MARKS],
    /// Where the thread was when it had none.
    pub pointers: Vec<usize>,
}

/// A timer that looks at the thread that made it.
pub struct Sampler {
    timer: libc::timer_t,
}

impl Sampler {
    /// Looks so often from now on; what it sees counts between [`Sampler::count`] and
    /// [`Sampler::pause`].
    ///
    /// # Errors
    /// Where the system has no such timer.
    pub fn start(every: Duration) -> io::Result<Self> {
        static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
        if let Some(number) = INSTALLED.get_or_init(install) {
            return Err(io::Error::from_raw_os_error(*number));
        }
        // SAFETY: all zeros is a value of it; what counts is set below.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both live as long as the call.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        let this = Self { timer };
        let ns = every.subsec_nanos().max(1);
        let step = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(ns as i32) };
        let times = libc::itimerspec { it_interval: step, it_value: step };
        // SAFETY: the timer is there until `this` is dropped.
        if unsafe { libc::timer_settime(this.timer, 0, &raw const times, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(this)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        count(false);
        // SAFETY: it was created, and nobody else deletes it.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// What is seen from now on counts, or no longer does.
#[inline]
pub fn count(on: bool) {
    ON.store(on, Relaxed);
    compiler_fence(SeqCst);
}

/// Takes away what was seen.
pub fn take() -> Seen {
    let mut seen = Seen::default();
    for (count, taken) in COUNTS.iter().zip(&mut seen.marks) {
        *taken = count.swap(0, Relaxed);
    }
    let there = NEXT.swap(0, Relaxed).min(ROOM);
    seen.pointers = POINTERS.iter().take(there).map(|pointer| pointer.load(Relaxed)).collect();
    seen
}

/// Installs the handler; returns the number of the error, if that fails.
fn install() -> Option<i32> {
    // SAFETY: all zeros is a value of it; what counts is set below.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = look as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler does what one may.
    let done = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) };
    (done != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

extern "C" fn look(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !ON.load(Relaxed) {
        return;
    }
    let mark = MARK.load(Relaxed);
    if mark > 0 {
        if let Some(count) = COUNTS.get(usize::from(mark)) {
            count.fetch_add(1, Relaxed);
        }
        return;
    }
    // SAFETY: the kernel gives the handler the context of what it interrupted.
    let pointer = unsafe { pointer_of(context.cast()) };
    if let Some(place) = POINTERS.get(NEXT.fetch_add(1, Relaxed)) {
        place.store(pointer, Relaxed);
    }
}

/// The instruction pointer in a context.
///
/// # Safety
/// `context` points to one.
#[cfg(target_arch = "x86_64")]
unsafe fn pointer_of(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller has said so.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    registers.get(libc::REG_RIP as usize).map_or(0, |pointer| pointer.cast_unsigned() as usize)
}

/// The same: not known on this kind of processor.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn pointer_of(_context: *const libc::ucontext_t) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works for as long as so many parts take, whoever else wants the processor.
    fn spin(parts: u32) {
        for number in 0..parts * 1_000_000 {
            std::hint::black_box(number);
        }
    }

    #[test]
    fn what_is_seen_is_in_proportion_to_what_was_done() {
        let _alone = super::super::ONE_AT_A_TIME.lock();
        let sampler = Sampler::start(Duration::from_micros(100)).unwrap();
        take();
        // (Nothing is seen while it does not count.)
        marked(3, || spin(20));
        count(true);
        for _ in 0..60 {
            marked(1, || spin(3));
            marked(2, || spin(1));
            spin(2);
        }
        count(false);
        drop(sampler);
        let seen = take();
        let [_, first, second, third, ..] = seen.marks.map(|count| count as f64);
        let all = first + second + seen.pointers.len() as f64;
        assert!(all > 500.0 && third == 0.0, "{all} {third}");
        for (found, part) in [(first, 0.5), (second, 1.0 / 6.0)] {
            assert!((found / all - part).abs() < 0.06, "{found} of {all}, not {part}");
        }
        assert!(seen.pointers.iter().all(|pointer| *pointer != 0));
        assert_eq!(take(), Seen::default());
    }
}
