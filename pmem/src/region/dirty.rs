//! What `msync` has to write for an ordinary file.
//!
//! What this file guarantees: when [`Dirty::sync`] returns, everything that its
//! thread has stored and marked before is on the disk, even if another thread's
//! call took it along. Once a call has failed, of the region or of a view of it,
//! no later one says that anything is on the disk.
//!
//! Kept is the span from the first dirty page to the last, not each page. The
//! kernel writes no clean page of a span anyway, and one call costs one commit and
//! one cache flush of the disk below, where one call for each run of pages would
//! cost as many.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// No page: the first is after the last.
const CLEAN: u64 = pack(u32::MAX, 0);

const fn pack(first: u32, last: u32) -> u64 {
    (first as u64) << 32 | last as u64
}

const fn unpack(span: u64) -> (u32, u32) {
    ((span >> 32) as u32, span as u32)
}

/// Whoever calls `msync`, or `fdatasync`, for one open file, the region and its views: one at a time, and nobody after
/// a call that has failed. The kernel tells a failure once, to whichever of them asks first, and
/// may have dropped what it could not write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Syncing(Arc<Mutex<bool>>);

impl Syncing {
    /// Lets `msync` be called, if no call has failed yet. The lock is held meanwhile: who would
    /// come in between could not know of the failure yet.
    pub(crate) fn call(&self, msync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(io::Error::other("an earlier call has failed"));
        }
        let outcome = msync();
        *failed = outcome.is_err();
        outcome
    }
}

/// The dirty pages of a region under `msync`.
#[derive(Debug)]
pub(crate) struct Dirty {
    page_bytes: u64,
    span: AtomicU64,
    calls: AtomicU64,
    syncing: Syncing,
}

impl Dirty {
    /// Nothing dirty; fails for more pages than can be counted.
    pub(crate) fn new(region_bytes: u64, page_bytes: u64) -> Option<Self> {
        u32::try_from(region_bytes / page_bytes).ok()?;
        Some(Self {
            page_bytes,
            span: AtomicU64::new(CLEAN),
            calls: AtomicU64::new(0),
            syncing: Syncing::default(),
        })
    }

    /// Marks the page of `at`. Called after the store: a mark before it could be
    /// taken and synced by another thread without the store.
    pub(crate) fn mark(&self, at: u64) {
        let page = (at / self.page_bytes) as u32;
        let mut span = self.span.load(Ordering::Relaxed);
        // The exchange is made even when it changes nothing: it is what orders the
        // store before the mark.
        loop {
            let (first, last) = unpack(span);
            let wider = pack(first.min(page), last.max(page));
            match self.span.compare_exchange_weak(span, wider, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => span = now,
            }
        }
    }

    /// Writes what is dirty with `msync(offset, bytes)`. A thread whose pages are in
    /// another's call waits for that call to end.
    pub(crate) fn sync(&self, msync: impl FnOnce(u64, u64) -> io::Result<()>) -> io::Result<()> {
        self.syncing.call(|| {
            let (first, last) = unpack(self.span.swap(CLEAN, Ordering::SeqCst));
            if first > last {
                return Ok(());
            }
            self.calls.fetch_add(1, Ordering::Relaxed);
            let pages = u64::from(last) - u64::from(first) + 1;
            msync(u64::from(first) * self.page_bytes, pages * self.page_bytes)
        })
    }

    /// Whom views of the region call `msync` by.
    pub(crate) fn syncing(&self) -> &Syncing {
        &self.syncing
    }

    /// Calls of `msync` so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn dirty() -> Dirty {
        Dirty::new(100 * PAGE, PAGE).unwrap()
    }

    #[test]
    fn syncs_once_what_was_marked_and_nothing_when_clean() {
        let dirty = dirty();
        dirty.sync(|_, _| panic!("clean")).unwrap();
        dirty.mark(7 * PAGE + 5);
        dirty.mark(3 * PAGE + 4095);
        dirty.mark(9 * PAGE);
        let mut seen = None;
        let note = |at, len| {
            seen = Some((at, len));
            Ok(())
        };
        dirty.sync(note).unwrap();
        assert_eq!(seen, Some((3 * PAGE, 7 * PAGE)));
        dirty.sync(|_, _| panic!("clean again")).unwrap();
        dirty.mark(0);
        let check = |at, len| {
            assert_eq!((at, len), (0, PAGE));
            Ok(())
        };
        dirty.sync(check).unwrap();
        assert_eq!(dirty.calls(), 2);
    }

    #[test]
    fn a_failed_sync_fails_all_later_ones() {
        let dirty = dirty();
        dirty.mark(0);
        dirty.sync(|_, _| Err(io::Error::other("disk"))).unwrap_err();
        dirty.sync(|_, _| Ok(())).unwrap_err();
    }

    #[test]
    fn a_thread_waits_for_the_call_that_took_its_page() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::Duration;
        let dirty = dirty();
        let synced = AtomicBool::new(false);
        let (taken, wait) = std::sync::mpsc::channel();
        dirty.mark(PAGE);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                dirty.sync(|_, _| {
                    taken.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                    synced.store(true, Ordering::SeqCst);
                    Ok(())
                })
            });
            wait.recv().unwrap();
            dirty.sync(|_, _| panic!("nothing is left to sync")).unwrap();
            assert!(synced.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn more_pages_than_can_be_counted_are_refused() {
        assert!(Dirty::new(1 << 46, PAGE).is_none());
    }
}
