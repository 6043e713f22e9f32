//! The images that were judged, by their fingerprints: how many different ones.

use std::collections::HashSet;

use crate::region::Pages;

/// Fingerprints of judged images.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Images {
    all: HashSet<u64>,
    /// Without the file data in them.
    metadata: HashSet<u64>,
}

impl Images {
    /// Notes one.
    pub(super) fn note(&mut self, image: &Pages) {
        self.all.insert(image.fingerprint());
        self.metadata.insert(image.metadata_fingerprint());
    }

    /// Adds others.
    pub fn add(&mut self, other: &Images) {
        self.all.extend(&other.all);
        self.metadata.extend(&other.metadata);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// How many there are that differ in more than file data.
    pub fn metadata(&self) -> usize {
        self.metadata.len()
    }
}
