//! Files whose log has lately got its first page.
//!
//! Most files are written once, in some pieces, and never again: what these pieces say goes on in few
//! records, which need no page. Whether a file is such a one shows a while later: so the last few of each
//! lane are noted, and who notes another one looks at the oldest again.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::{Ino, Result};

/// Files of a lane that are noted.
const NOTED: usize = 4;

/// Those of a lane.
#[derive(Default)]
struct Noted {
    /// 0 for none.
    inos: [AtomicU64; NOTED],
    next: AtomicUsize,
}

/// Those of all lanes. Nobody needs to know of all: one that is forgotten keeps its page.
pub(crate) struct Grown {
    lanes: Box<[Noted]>,
    /// How many are noted, at most [`NOTED`].
    places: usize,
}

impl Grown {
    /// For so many lanes. (In pools of short log pages, as many as make a difference there.)
    pub(crate) fn new(lanes: usize, short_pages: bool) -> Result<Self> {
        let mut noted = Vec::new();
        noted.try_reserve_exact(lanes)?;
        noted.resize_with(lanes, Noted::default);
        let places = if short_pages { 1 } else { NOTED };
        Ok(Self { lanes: noted.into_boxed_slice(), places })
    }

    /// Notes a file, unless it is noted. Returns the one in whose place it is.
    pub(crate) fn note(&self, lane: usize, ino: Ino) -> Option<Ino> {
        let noted = self.lanes.get(lane % self.lanes.len().max(1))?;
        let places = noted.inos.get(..self.places)?;
        if places.iter().any(|place| place.load(Relaxed) == ino) {
            return None;
        }
        let at = noted.next.fetch_add(1, Relaxed) % self.places;
        let before = places.get(at)?.swap(ino, Relaxed);
        (before != 0).then_some(before)
    }
}
