//! The inodes the kernel knows, kept alive until it forgets them.
//!
//! Each answer that names an inode counts as one lookup of it; the kernel gives all
//! of them back when it drops the inode. While it knows an inode (an open file, a
//! working directory, a cached name) the engine keeps the inode's contents and does
//! not give its number to another file. This is also what keeps files that were
//! unlinked while open.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use lode_engine::Ino;
use parking_lot::Mutex;

const SHARDS: usize = 64;

/// Lookups per inode.
#[derive(Debug)]
pub struct Pins {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<HashMap<Ino, Pin>>);

#[derive(Clone, Copy, Debug)]
struct Pin {
    lookups: u64,
    /// It was mapped while it was open for writing.
    mapped: bool,
}

impl Pins {
    /// None yet.
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Shard::default()) }
    }

    /// Counts a lookup of `ino`; at the first one `acquire` has to succeed.
    pub fn add<E>(&self, ino: Ino, acquire: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut shard = self.shard(ino).lock();
        match shard.entry(ino) {
            Entry::Occupied(mut known) => known.get_mut().lookups += 1,
            Entry::Vacant(unknown) => {
                // Under the lock: nobody may count on a pin that does not hold yet.
                acquire()?;
                unknown.insert(Pin { lookups: 1, mapped: false });
            }
        }
        Ok(())
    }

    /// Takes back `lookups` of `ino`; true if it is to be released now.
    #[must_use]
    pub fn forget(&self, ino: Ino, lookups: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Entry::Occupied(mut known) = shard.entry(ino) else {
            return false;
        };
        let left = known.get().lookups.saturating_sub(lookups);
        if left > 0 {
            known.get_mut().lookups = left;
            return false;
        }
        known.remove();
        true
    }

    /// Whether `ino` has lookups.
    pub fn has(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    /// Notes that `ino` is mapped by somebody who may write to it, if it is pinned: until all of it is forgotten.
    pub fn note_map(&self, ino: Ino) {
        if let Some(pin) = self.shard(ino).lock().get_mut(&ino) {
            pin.mapped = true;
        }
    }

    /// Whether that was noted of `ino`.
    pub fn was_mapped(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|pin| pin.mapped)
    }

    /// Calls `each` with each inode that is pinned.
    pub fn for_each(&self, mut each: impl FnMut(Ino)) {
        for shard in &self.shards {
            shard.0.lock().keys().for_each(|ino| each(*ino));
        }
    }

    /// Forgets everything; calls `release` with each inode that was pinned.
    pub fn clear(&self, mut release: impl FnMut(Ino)) {
        for shard in &self.shards {
            let known = std::mem::take(&mut *shard.0.lock());
            known.into_keys().for_each(&mut release);
        }
    }

    // The remainder is always in the array.
    #[allow(clippy::indexing_slicing)]
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Pin>> {
        // Inodes lie side by side in their tables: neighbours go to different shards.
        &self.shards[(ino % SHARDS as u64) as usize].0
    }
}

#[cfg(test)]
mod tests {
    use super::Pins;

    #[test]
    fn the_first_lookup_acquires_and_the_last_forget_releases() {
        let (pins, mut acquired) = (Pins::new(), 0);
        for _ in 0..3 {
            pins.add(7, || {
                acquired += 1;
                Ok::<(), ()>(())
            })
            .unwrap();
        }
        assert_eq!(acquired, 1);
        assert!(!pins.forget(7, 2));
        assert!(pins.forget(7, 1));
        assert!(!pins.forget(7, 1), "nothing is left to forget");
    }

    #[test]
    fn a_failed_acquire_leaves_no_pin() {
        let pins = Pins::new();
        assert_eq!(pins.add(7, || Err("gone")), Err("gone"));
        assert!(!pins.forget(7, 1));
    }

    #[test]
    fn more_forgets_than_lookups_release_once() {
        let pins = Pins::new();
        pins.add(7, || Ok::<(), ()>(())).unwrap();
        assert!(pins.forget(7, u64::MAX));
        assert!(!pins.forget(7, u64::MAX));
    }

    #[test]
    fn a_map_is_known_as_long_as_its_inode() {
        let pins = Pins::new();
        pins.note_map(7);
        assert!(!pins.was_mapped(7), "of what the kernel does not know");
        pins.add(7, || Ok::<(), ()>(())).unwrap();
        assert!(!pins.was_mapped(7));
        pins.note_map(7);
        pins.add(7, || Ok::<(), ()>(())).unwrap();
        assert!(!pins.forget(7, 1));
        assert!(pins.was_mapped(7));
        assert!(pins.forget(7, 1));
        pins.add(7, || Ok::<(), ()>(())).unwrap();
        assert!(!pins.was_mapped(7), "another life of that number");
    }

    #[test]
    fn clear_names_every_pinned_inode() {
        let pins = Pins::new();
        for ino in 0..1000 {
            pins.add(ino, || Ok::<(), ()>(())).unwrap();
        }
        let mut all = Vec::new();
        pins.clear(|ino| all.push(ino));
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        pins.clear(|_| panic!("cleared twice"));
    }
}
