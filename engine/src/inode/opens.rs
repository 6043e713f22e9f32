//! How often an inode is open, and whether it has ended or may: one word, so that who opens and who closes take no lock.
//!
//! Guarantees: who has opened an inode keeps it from ending; who closes it last learns that something may be to be
//! done, if it was said before that the inode is to end. An inode that has ended is not opened any more.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// It has ended: its number may be another's.
const GONE: u32 = 1 << 31;
/// Something may be to be done when it is closed: it is dead, or has no name.
const ENDS: u32 = 1 << 30;
/// The rest is how often it is open.
const COUNT: u32 = ENDS - 1;

/// How often an inode is open.
pub(crate) struct Opens(AtomicU32);

impl Opens {
    /// Open so often.
    pub(super) fn new(count: u32) -> Self {
        Self(AtomicU32::new(count.min(COUNT)))
    }

    /// How often it is open.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Acquire) & COUNT
    }

    /// Opens it once more; says whether it was there to be opened.
    #[inline]
    pub(crate) fn open(&self) -> bool {
        let is_there = self.0.fetch_add(1, AcqRel) & GONE == 0;
        if !is_there {
            self.0.fetch_sub(1, AcqRel);
        }
        is_there
    }

    /// Closes it once, if it is open; says whether that was the last time and something may be to be done.
    #[inline]
    pub(crate) fn close(&self) -> bool {
        let less = |word: u32| (word & COUNT > 0).then(|| word - 1);
        self.0.fetch_update(AcqRel, Relaxed, less).is_ok_and(|before| before & !GONE == ENDS | 1)
    }

    /// As if nobody ever had it open.
    pub(crate) fn forget(&self) {
        self.0.fetch_and(!COUNT, AcqRel);
    }

    /// Who closes it last is to look at it.
    pub(crate) fn note_end(&self) {
        self.0.fetch_or(ENDS, AcqRel);
    }

    /// Ends it, if nobody has it open; says so.
    pub(super) fn end(&self) -> bool {
        let gone = |word: u32| (word & COUNT == 0).then_some(word | GONE);
        self.0.fetch_update(AcqRel, Relaxed, gone).is_ok()
    }

    /// Whether it has ended.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.0.load(Acquire) & GONE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_does_not_end() {
        let opens = Opens::new(1);
        assert!(opens.open() && opens.count() == 2 && !opens.end());
        assert!(!opens.close() && !opens.close() && !opens.close(), "nothing was to be done");
        assert!(opens.count() == 0 && !opens.is_gone());
        assert!(opens.end() && opens.is_gone());
        assert!(!opens.open() && opens.count() == 0, "what has ended was opened");
    }

    #[test]
    fn who_closes_last_learns_of_an_end() {
        let opens = Opens::new(2);
        opens.note_end();
        assert!(!opens.close() && opens.close() && !opens.close());
        assert!(opens.open() && opens.close(), "it has not ended yet");
        opens.forget();
        assert!(opens.end() && !opens.close());
    }
}
