//! What a fork's parent and its child tell each other while the child copies what it has inherited.
//!
//! What this guarantees: either the child goes on with what it has copied while its parent waited, or the parent goes on
//! before it, and then the child ends: it may not go on with pages that the parent stores to. One word in a page that
//! both have decides it. Until it has, a child only reads what is its parent's. A parent waits as long as its
//! child gets on, or until it is no more, as the end of a pipe says that the child alone can write to.
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Milliseconds between looks at whether the child lives and gets on.
const SLICE: u64 = 10;

const COPIES: u32 = 0;
const DONE: u32 = 1;
const GIVEN_UP: u32 = 2;

#[repr(C)]
struct Words {
    state: AtomicU32,
    /// Slots that the child has copied.
    copied: AtomicU32,
}

/// Such a page; or none, while `address` is zero.
pub(crate) struct ForkPage {
    address: usize,
    read: i32,
    write: i32,
}

impl ForkPage {
    pub(crate) const NONE: Self = Self { address: 0, read: sys::NONE, write: sys::NONE };

    /// For a fork that comes; none where the system has none. Without a descriptor left for its pipe the parent
    /// doesn't see that its child is no more, and waits for as long as for one that does nothing.
    pub(crate) fn new() -> Self {
        let Ok(address) = sys::shared_page() else {
            return Self::NONE;
        };
        let (read, write) = sys::pipe().unwrap_or((sys::NONE, sys::NONE));
        Self { address, read, write }
    }

    pub(crate) const fn is_there(&self) -> bool {
        self.address != 0
    }

    fn words(&self) -> Option<&Words> {
        // SAFETY: where it is not null it is the address of a page that was made for these, of zeros, and is there as long as this.
        unsafe { (self.address as *const Words).as_ref() }
    }

    /// In the parent: waits until the child has copied, or is no more, or has got no further for so long. Both pages are
    /// the parent's alone then.
    pub(crate) fn await_child(mut self, seconds: u32) {
        close(&mut self.write);
        let Some(words) = self.words() else {
            return;
        };
        let (mut quiet, mut copied, mut last) = (0, 0, sys::now());
        while quiet < u64::from(seconds) * 1000
            && words.state.load(Ordering::Acquire) == COPIES
            && !self.child_is_gone()
        {
            sys::futex_wait_shared(&words.state, COPIES, SLICE);
            let now = sys::now();
            // (While this process was stopped, so was its child, perhaps.)
            let passed = now.saturating_sub(core::mem::replace(&mut last, now)).min(10 * SLICE);
            let before = core::mem::replace(&mut copied, words.copied.load(Ordering::Relaxed));
            quiet = if before == copied { quiet + passed } else { 0 };
        }
        decide(words, GIVEN_UP);
    }

    fn child_is_gone(&self) -> bool {
        self.read != sys::NONE && sys::poll([self.read], false, 0) == [true]
    }

    /// In the child.
    pub(crate) fn of_child(mut self) -> Self {
        close(&mut self.read);
        self
    }

    /// In the child: one more slot is copied.
    pub(crate) fn has_copied(&self) {
        if let Some(words) = self.words() {
            words.copied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// In the child: it has copied all. False if the parent does not wait any more.
    pub(crate) fn finish(self) -> bool {
        self.words().is_some_and(|words| {
            let in_time = decide(words, DONE);
            sys::futex_wake_shared(&words.state);
            in_time
        })
    }
}

/// Whether it is this that was decided.
fn decide(words: &Words, state: u32) -> bool {
    words.state.compare_exchange(COPIES, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

fn close(descriptor: &mut i32) {
    if *descriptor != sys::NONE {
        sys::close(core::mem::replace(descriptor, sys::NONE));
    }
}

impl Drop for ForkPage {
    fn drop(&mut self) {
        close(&mut self.read);
        close(&mut self.write);
        if self.is_there() {
            let _ = sys::unmap(self.address, 4096);
        }
    }
}
