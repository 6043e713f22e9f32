//! Directories that paths led to lately: who goes the same way again only looks whether it is still there.
//!
//! Guarantees: a way is taken again only while no directory on it has changed since it was gone, so that
//! it leads to what a walk would lead to; ways through symbolic links and `..` are not kept. Nothing
//! is allocated. Threads keep theirs apart, as far as there are places. What is kept holds no inode
//! open; it is in memory until [`Ways::forget`].

use std::sync::Arc;

use lode_engine::Seen;
use lode_host::StdHost;
use parking_lot::Mutex;

use crate::walk::Found;

/// Ways that are kept: a power of two.
const PLACES: usize = 64;
/// The longest path that is kept, and the deepest.
const PATH_MAX: usize = 192;
pub(crate) const DEPTH_MAX: usize = 8;

/// The directories on a way, as they were before the next name was looked up in each.
pub(crate) type Passed = [Option<Seen<StdHost>>; DEPTH_MAX];

struct Way {
    path: [u8; PATH_MAX],
    len: usize,
    passed: Passed,
    to: Arc<Found>,
}

impl Way {
    fn path(&self) -> &[u8] {
        self.path.get(..self.len).unwrap_or_default()
    }
}

/// Each on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Place(Mutex<Option<Way>>);

/// Ways from the root.
pub(crate) struct Ways(Vec<Place>);

impl Ways {
    pub(crate) fn new() -> Self {
        Self((0..PLACES).map(|_| Place::default()).collect())
    }

    fn place(&self, path: &[u8]) -> Option<&Mutex<Option<Way>>> {
        let number = (hash(path) ^ this_thread()) >> (u64::BITS - PLACES.ilog2());
        self.0.get(number as usize).map(|place| &place.0)
    }

    /// The directory that a path leads to, as it was when the way was gone.
    pub(crate) fn get(&self, path: &[u8]) -> Option<Arc<Found>> {
        let place = self.place(path)?.lock();
        let way = place.as_ref().filter(|way| way.path() == path)?;
        // (Those behind the last are none.)
        let mut passed = way.passed.iter().map_while(Option::as_ref);
        passed.all(Seen::holds).then(|| Arc::clone(&way.to))
    }

    /// Keeps a way.
    pub(crate) fn put(&self, path: &[u8], passed: Passed, to: &Arc<Found>) {
        let mut way = Way { path: [0; PATH_MAX], len: path.len(), passed, to: Arc::clone(to) };
        let (Some(place), Some(text)) = (self.place(path), way.path.get_mut(..path.len())) else {
            return;
        };
        text.copy_from_slice(path);
        // (What was there goes without the lock.)
        let before = place.lock().replace(way);
        drop(before);
    }

    /// Forgets all ways, so that the inodes on them do not have to stay in memory.
    pub(crate) fn forget(&self) {
        for place in &self.0 {
            let before = place.0.lock().take();
            drop(before);
        }
    }
}

/// Spreads paths; who finds two that collide has a slower way.
fn hash(path: &[u8]) -> u64 {
    let (words, rest) = path.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    words
        .iter()
        .chain([&last])
        .fold(path.len() as u64, |hash, word| spread(hash, u64::from_le_bytes(*word)))
}

/// A number of this thread's.
fn this_thread() -> u64 {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| spread(0, std::ptr::from_ref(here).addr() as u64))
}

fn spread(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
