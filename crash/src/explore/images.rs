//! The images that were judged, by their fingerprints: how many different ones.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::region::Pages;

/// Fingerprints of judged images.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Images {
    /// Of each, that of what is not file data in it: the lowest one, where equal bytes were file
    /// data in one and not in another.
    all: HashMap<u64, u64>,
}

impl Images {
    /// Notes one.
    pub(super) fn note(&mut self, image: &Pages) {
        self.insert(image.fingerprint(), image.metadata_fingerprint());
    }

    fn insert(&mut self, whole: u64, metadata: u64) {
        match self.all.entry(whole) {
            Entry::Occupied(mut known) => {
                let lowest = metadata.min(*known.get());
                known.insert(lowest);
            }
            Entry::Vacant(new) => {
                new.insert(metadata);
            }
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Images) {
        self.all.reserve(other.all.len());
        for (whole, metadata) in &other.all {
            self.insert(*whole, *metadata);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// How many there are that differ in more than file data.
    pub fn metadata(&self) -> usize {
        self.all.values().collect::<HashSet<_>>().len()
    }
}
