//! The keeper: a thread that listens to the owner, and gives back what the program doesn't use while it sleeps.
//!
//! It begins when a program has memory of the pool, from a place where the allocator's locks are not held, with all
//! signals blocked; a child of a fork begins one of its own.
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::bell::Bell;
use crate::memory::{self, Memory};
use crate::sys;

/// Milliseconds between looks at what is idle; and while nothing has changed for some of them.
const TICK: u64 = 1_000;
const SLOW_TICK: u64 = 5_000;
const QUIET: u32 = 10;

const NONE: u32 = 0;
const WANTED: u32 = 1;
const RUNS: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NONE);

/// What the allocator does on wish: give up all that it keeps, and what it has kept for long. Zeros where none has said.
static PURGE: AtomicUsize = AtomicUsize::new(0);
static DECAY: AtomicUsize = AtomicUsize::new(0);

/// Says how the allocator above gives up what it keeps unused: all of it, and what it has kept for long.
pub fn set_allocator(purge: fn(), decay: fn()) {
    PURGE.store(purge as usize, Ordering::Release);
    DECAY.store(decay as usize, Ordering::Release);
}

fn have(done: &AtomicUsize) {
    let what = done.load(Ordering::Acquire);
    if what != 0 {
        // SAFETY: what is there was a function of this type.
        let what = unsafe { core::mem::transmute::<usize, fn()>(what) };
        what();
    }
}

/// Has the allocator give up what it keeps. Not to be called below its locks.
pub(crate) fn purge_allocator() {
    have(&PURGE);
}

/// There is to be a keeper.
pub(crate) fn want() {
    let _ = STATE.compare_exchange(NONE, WANTED, Ordering::Relaxed, Ordering::Relaxed);
}

/// In a new child there is none.
pub(crate) fn forget() {
    STATE.store(NONE, Ordering::Relaxed);
}

/// Starts the keeper where one is wanted; called by the allocator outside of its locks.
#[inline]
pub fn tend() {
    if STATE.load(Ordering::Relaxed) == WANTED {
        start();
    }
}

#[cold]
fn start() {
    let _errno = sys::KeepErrno::new();
    if STATE.compare_exchange(WANTED, RUNS, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: zeros are values of these; the calls fill them in. The thread has nothing of this one's.
    let started = unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = 0;
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, 256 << 10);
        let none = core::ptr::null_mut();
        let started = libc::pthread_create(&raw mut thread, &raw const attributes, keep, none);
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        started
    };
    if started != 0 {
        STATE.store(NONE, Ordering::Relaxed);
    }
}

/// Has the keeper look for wishes; whether there is one.
pub(crate) fn wake(memory: &Memory) -> bool {
    STATE.load(Ordering::Relaxed) == RUNS && memory.bell.ring()
}

/// Wishes came while something else was waited for: the keeper sees to them, or who has come across them.
pub(crate) fn poke(memory: &mut Memory) {
    if wake(memory) {
        return;
    }
    loop {
        memory.session.drain();
        let Some(wish) = memory.session.next_wish() else { return };
        let given = memory.trim(wish.chunks as usize, false);
        memory.session.spared(wish, given as u32);
    }
}

extern "C" fn keep(_: *mut libc::c_void) -> *mut libc::c_void {
    sys::name_thread(c"lode-heap");
    memory::lock().bell = Bell::new();
    // (What the allocator sets up for this thread is had now, and not when files are short.)
    have(&DECAY);
    let (mut quiet, mut last, mut next) = (0, memory::lock().stats(), sys::now() + TICK);
    loop {
        // (First: others may have come across one, or a new owner have asked.)
        grant_wishes();
        let ends = {
            let memory = memory::lock();
            [memory.session.socket(), memory.bell.heard()]
        };
        let [_, rung] = sys::poll(ends, false, next.saturating_sub(sys::now()));
        if rung {
            memory::lock().bell.hush();
        }
        if sys::now() >= next {
            have(&DECAY);
            let now = tick();
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            next = sys::now() + if quiet > QUIET { SLOW_TICK } else { TICK };
        }
    }
}

fn grant_wishes() {
    loop {
        let wish = {
            let mut memory = memory::lock();
            memory.session.drain();
            memory.session.next_wish()
        };
        let Some(wish) = wish else {
            return;
        };
        purge_allocator();
        let mut memory = memory::lock();
        let given = memory.trim(wish.chunks as usize, false);
        memory.session.spared(wish, given as u32);
    }
}

/// Gives back what was idle at the last tick, too; looks for a new owner of what is held.
fn tick() -> memory::Stats {
    let mut memory = memory::lock();
    memory.trim(usize::MAX, true);
    if !memory.bell.is_whole() {
        // The program has closed it.
        memory.bell.close();
        memory.bell = Bell::new();
    }
    if memory.stats.held > 0 && !memory.session.is_open() {
        let _ = memory.meet();
    }
    memory.stats()
}
