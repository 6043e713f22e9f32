//! DRAM that a program has mapped for itself, for the ledger: what the pool didn't give it.
use core::sync::atomic::{AtomicBool, Ordering};

use crate::memory::{self, Backing, Memory};
use crate::sys;

static ANY: AtomicBool = AtomicBool::new(false);

const PLACES: usize = 8192;
/// Places that are looked at for a mapping.
const NEAR: usize = 64;

/// Mappings by their start. Those that find no place are not counted.
pub(crate) struct Counted {
    places: usize,
    count: usize,
}

impl Counted {
    pub(crate) const NONE: Self = Self { places: 0, count: 0 };

    fn near(&mut self, at: usize) -> Option<impl Iterator<Item = &mut (usize, usize)>> {
        if self.places == 0 {
            self.places = sys::anonymous(PLACES * size_of::<(usize, usize)>()).ok()?;
        }
        // SAFETY: so many pairs of numbers are there, reached through `self` alone.
        let all = unsafe { core::slice::from_raw_parts_mut(self.places as *mut _, PLACES) };
        let first = (at >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        all.get_mut(first % (PLACES - NEAR)..).map(|all| all.iter_mut().take(NEAR))
    }

    /// Bytes that are counted anew.
    fn add(&mut self, at: usize, bytes: usize) -> usize {
        let Some(place) = self.near(at).and_then(|mut near| near.find(|place| place.0 == 0)) else {
            return 0;
        };
        *place = (at, bytes);
        self.count += 1;
        ANY.store(true, Ordering::Relaxed);
        bytes
    }

    /// Bytes that are counted no more: those of a mapping that begins there.
    fn remove(&mut self, at: usize, bytes: usize) -> usize {
        if self.count == 0 {
            return 0;
        }
        let Some(place) = self.near(at).and_then(|mut near| near.find(|place| place.0 == at))
        else {
            return 0;
        };
        let (_, all) = core::mem::take(place);
        self.count -= 1;
        ANY.store(self.count > 0, Ordering::Relaxed);
        let gone = bytes.min(all);
        if gone < all { all - self.add(at + gone, all - gone) } else { all }
    }
}

impl Memory {
    /// The program has mapped DRAM.
    pub(crate) fn count_foreign(&mut self, at: usize, bytes: usize) {
        let more = self.counted.add(at, bytes);
        self.count_used(Backing::Dram, more as i64);
    }

    /// It has unmapped something.
    pub(crate) fn uncount_foreign(&mut self, at: usize, bytes: usize) {
        let less = self.counted.remove(at, bytes);
        self.count_used(Backing::Dram, -(less as i64));
    }
}

impl Memory {
    /// Whether a mapping that begins there is counted.
    pub(super) fn is_counted(&mut self, at: usize) -> bool {
        let counted = &mut self.counted;
        counted.count > 0
            && counted.near(at).is_some_and(|mut near| near.any(|place| place.0 == at))
    }
}

/// Whether any mappings are counted.
pub(super) fn are_any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Counts DRAM that the program has mapped.
pub(super) fn count(at: usize, bytes: usize) {
    memory::lock().count_foreign(at, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_counted_until_they_go() {
        let mut counted = Counted::NONE;
        assert_eq!(counted.remove(4096, 4096), 0);
        for at in 1..1000 {
            assert_eq!(counted.add(at * 8192, 8192), 8192);
        }
        assert_eq!(counted.remove(8192, 4096), 4096);
        assert_eq!(counted.remove(8192, 4096), 0);
        assert_eq!(counted.remove(8192 + 4096, 4096), 4096);
        assert_eq!(counted.remove(2 * 8192, 1 << 20), 8192);
        assert_eq!(counted.count, 997);
    }
}
