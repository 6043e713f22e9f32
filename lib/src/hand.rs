//! What keeps a pool open: a count for each processor.
//!
//! Guarantees: a pool is open while anything has a hand on it. Who opens and closes files on one processor counts in lines of
//! memory that nobody on another one needs.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use crate::inner::Inner;

/// So many hands at most: processors that are more share them.
const HANDS_MAX: usize = 64;

/// A hand on an open pool, its count in lines of its own. (A processor brings two at a time.)
#[repr(align(128))]
pub(crate) struct Hand(Arc<Inner>);

impl Hand {
    /// Whether both are on one pool.
    pub(crate) fn is_on_that_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Hand {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// What all clones of a pool share: a hand for each processor.
pub(crate) struct Hands {
    inner: Arc<Inner>,
    of_processors: Vec<Arc<Hand>>,
}

impl Hands {
    pub(crate) fn new(inner: Inner) -> Self {
        let inner = Arc::new(inner);
        let count = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(HANDS_MAX);
        let of_processors = (0..count).map(|_| Arc::new(Hand(Arc::clone(&inner)))).collect();
        Self { inner, of_processors }
    }

    /// The hand of the processor that this thread runs on.
    #[inline]
    pub(crate) fn here(&self) -> Arc<Hand> {
        let processor = lode_pmem::cpu().unwrap_or_default();
        match self.of_processors.get(processor % self.of_processors.len().max(1)) {
            Some(hand) => Arc::clone(hand),
            None => Arc::new(Hand(Arc::clone(&self.inner))),
        }
    }

    /// The pool itself, if nobody else has a hand on it.
    pub(crate) fn let_go(self) -> Option<Inner> {
        drop(self.of_processors);
        Arc::try_unwrap(self.inner).ok()
    }
}

impl Deref for Hands {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolOptions;

    /// Files that are opened on different processors have different counts.
    #[test]
    fn hands_are_apart_and_each_keeps_the_pool_open() {
        let pool = PoolOptions::new().in_memory(16 << 20).unwrap();
        let places: Vec<_> =
            pool.inner.of_processors.iter().map(|it| Arc::as_ptr(it).addr()).collect();
        assert!(places.windows(2).all(|two| two[0].abs_diff(two[1]) >= 256), "{places:?}");
        let here = pool.inner.here();
        assert!(pool.inner.of_processors.iter().all(|hand| hand.is_on_that_of(&here)));
        drop(here);
        let hand = pool.inner.here();
        let (device, root) = (hand.device, hand.enter().unwrap().root());
        assert_eq!(pool.close().unwrap_err().errno(), libc::EBUSY);
        assert_eq!(hand.device, device);
        assert!(hand.enter().unwrap().getattr(root).is_ok(), "it was closed with a hand on it");
    }
}
