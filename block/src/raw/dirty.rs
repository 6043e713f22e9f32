//! Which pages have stores that may still be in the caches.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use super::settings::PAGE;

/// A bit for each page.
pub(super) struct Dirty(Box<[AtomicU64]>);

const BITS: u64 = 64;

impl Dirty {
    /// None of a region of so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let words = bytes.div_ceil(PAGE).div_ceil(BITS) as usize;
        Self(std::iter::repeat_with(AtomicU64::default).take(words).collect())
    }

    /// These bytes have been stored.
    pub(super) fn mark(&self, at: u64, len: u64) {
        for page in at / PAGE..(at + len).div_ceil(PAGE) {
            let (word, bit) = (page / BITS, 1 << (page % BITS));
            if let Some(word) = self.0.get(word as usize)
                && word.load(Relaxed) & bit == 0
            {
                word.fetch_or(bit, AcqRel);
            }
        }
    }

    /// Forgets all, and tells each run of pages, in bytes.
    ///
    /// # Errors
    /// What `each` gives; then what was not told yet is still there.
    pub(super) fn take<E>(&self, mut each: impl FnMut(u64, u64) -> Result<(), E>) -> Result<(), E> {
        for (number, word) in self.0.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                let first = bits.trailing_zeros();
                let count = (bits >> first).trailing_ones();
                let run = u64::MAX >> (u64::BITS - count) << first;
                let page = number as u64 * BITS + u64::from(first);
                if let Err(error) = each(page * PAGE, u64::from(count) * PAGE) {
                    word.fetch_or(bits, AcqRel);
                    return Err(error);
                }
                bits &= !run;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_told_once() {
        let dirty = Dirty::new(200 * PAGE);
        dirty.mark(PAGE - 1, 2);
        dirty.mark(60 * PAGE, 10 * PAGE);
        dirty.mark(199 * PAGE, PAGE);
        let mut runs = Vec::new();
        let mut take = |fails: bool| {
            dirty.take(|at, len| {
                if fails && at > 0 {
                    return Err(());
                }
                runs.push((at / PAGE, len / PAGE));
                Ok(())
            })
        };
        take(true).unwrap_err();
        take(false).unwrap();
        take(false).unwrap();
        assert_eq!(runs, [(0, 2), (60, 4), (64, 6), (199, 1)]);
    }
}
