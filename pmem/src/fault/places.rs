//! Where regions are mapped, for signal handlers to look up.
//!
//! What this file guarantees: to look up takes no lock and no memory; a place is forgotten before the region is unmapped.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use super::bad::BadBytes;

/// Regions that are remembered; of more nothing is said.
const REGIONS_MAX: usize = 64;

/// Where a region is mapped. A free place has the length 0.
struct Place {
    base: AtomicUsize,
    len: AtomicUsize,
    bad: AtomicPtr<BadBytes>,
}

static PLACES: [Place; REGIONS_MAX] = [const {
    Place { base: AtomicUsize::new(0), len: AtomicUsize::new(0), bad: AtomicPtr::new(null_mut()) }
}; REGIONS_MAX];

/// Remembers that a region lies at `base`.
pub(crate) fn mapped(base: usize, len: usize) {
    for place in &PLACES {
        // Taken first, by a length that no address is in while the base is not right.
        if place.base.compare_exchange(0, base, SeqCst, SeqCst).is_ok() {
            place.len.store(len, SeqCst);
            return;
        }
    }
}

/// Remembers where its bad bytes are noted, which stay there until it is unmapped.
pub(super) fn attach(base: usize, bad: *mut BadBytes) {
    let mut places = PLACES.iter().filter(|_| base != 0);
    if let Some(place) = places.find(|place| place.base.load(SeqCst) == base) {
        place.bad.store(bad, SeqCst);
    }
}

/// Forgets the region at `base`, before it is unmapped.
pub(crate) fn unmapped(base: usize) {
    for place in &PLACES {
        if place.base.load(SeqCst) == base {
            place.bad.store(null_mut(), SeqCst);
            place.len.store(0, SeqCst);
            place.base.store(0, SeqCst);
            return;
        }
    }
}

/// In which region an address lies: its offset there, in bytes, and where the region's bad bytes are noted, or null.
pub(super) fn find(address: usize) -> Option<(usize, *mut BadBytes)> {
    PLACES.iter().find_map(|place| {
        let (base, len) = (place.base.load(SeqCst), place.len.load(SeqCst));
        let offset = address.checked_sub(base).filter(|offset| *offset < len)?;
        let bad = place.bad.load(SeqCst);
        // (It may have become another region's meanwhile.)
        (place.base.load(SeqCst) == base).then_some((offset, bad))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_while_they_are_mapped() {
        let offset_of = |address| find(address).map(|(offset, _)| offset);
        let base = usize::MAX / 2;
        mapped(base, 100);
        assert_eq!((offset_of(base), offset_of(base + 99)), (Some(0), Some(99)));
        assert_eq!((offset_of(base - 1), offset_of(base + 100)), (None, None));
        unmapped(base);
        assert_eq!(offset_of(base), None);
    }
}
