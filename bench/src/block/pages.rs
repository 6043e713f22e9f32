//! What keeps sectors whole beside other threads: who stores to a page has it alone, and who reads looks whether somebody stored to it
//! meanwhile. No more than that: it is a part of what bare volumes do.

use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

const PAGE: u64 = 4096;
/// As many as a volume has at most.
const PAGES: usize = 1 << 15;

/// A page, or several that are far apart: a quarter of a line of the cache, as a volume's.
#[derive(Default)]
#[repr(align(16))]
struct Page {
    is_taken: AtomicBool,
    /// Odd while it is stored to.
    version: AtomicU32,
}

/// All of them.
pub(super) struct Pages(Box<[Page]>);

impl Pages {
    pub(super) fn new() -> Self {
        Self((0..PAGES).map(|_| Page::default()).collect())
    }

    /// Those of so many bytes.
    #[inline]
    fn of(&self, at: u64, len: u64) -> impl Iterator<Item = &Page> {
        let numbers = at / PAGE..(at + len).div_ceil(PAGE);
        numbers.filter_map(|number| self.0.get(number as usize % PAGES))
    }

    /// Loads them, which nobody may store to meanwhile.
    #[inline]
    pub(super) fn whole(
        &self,
        (at, len): (u64, u64),
        load: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let sum = |versions: u64, page: &Page| versions + u64::from(page.version.load(Acquire));
        let before = self.of(at, len).fold(0, sum);
        load()?;
        fence(Acquire);
        match self.of(at, len).fold(0, sum) == before {
            true => Ok(()),
            false => Err(io::Error::other("a limit's memory is stored to while it is read")),
        }
    }

    /// Stores to them while nobody else does.
    pub(super) fn alone(
        &self,
        (at, len): (u64, u64),
        store: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        for page in self.of(at, len) {
            while page.is_taken.swap(true, Acquire) {
                std::thread::yield_now();
            }
            page.version.store(page.version.load(Relaxed).wrapping_add(1), Relaxed);
        }
        fence(Release);
        let stored = store();
        for page in self.of(at, len) {
            page.version.store(page.version.load(Relaxed).wrapping_add(1), Release);
            page.is_taken.store(false, Release);
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_to_meanwhile_is_not_whole() {
        let pages = Pages::new();
        assert!(pages.whole((0, 8192), || Ok(())).is_ok());
        let stored = || pages.alone((4096, 512), || Ok(()));
        assert!(pages.whole((0, 8192), stored).is_err());
        assert!(pages.whole((0, 4096), stored).is_ok());
        assert!(pages.whole((0, 8192), || Ok(())).is_ok());
    }

    #[test]
    fn one_at_a_time_stores_to_a_page() {
        let (pages, inside) = (Pages::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (pages, inside) = (&pages, &inside);
                scope.spawn(move || {
                    for turn in 0..2000 {
                        let store = || {
                            assert_eq!(inside.fetch_add(1, Relaxed), 0);
                            inside.fetch_sub(1, Relaxed);
                            Ok(())
                        };
                        pages.alone((turn % 2 * 2048, 4096), store).unwrap();
                    }
                });
            }
        });
    }
}
