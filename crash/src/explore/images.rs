//! The images that were judged, by their fingerprints: how many different ones.

use std::collections::HashSet;

use lode_testkit::op::{Attrs, Op};

use crate::case::Case;

/// Fingerprints of judged images.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Images {
    /// Of pools in which no operation has stored file data.
    bare: HashSet<u64>,
    /// Of others.
    with_data: HashSet<u64>,
}

impl Images {
    /// Notes one.
    pub(super) fn note(&mut self, fingerprint: u64, bare: bool) {
        if bare { &mut self.bare } else { &mut self.with_data }.insert(fingerprint);
    }

    /// Adds others.
    pub fn add(&mut self, other: &Images) {
        self.bare.extend(&other.bare);
        self.with_data.extend(&other.with_data);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.with_data.len() + self.bare.iter().filter(|one| !self.with_data.contains(one)).count()
    }

    /// How many there are that differ in metadata, for they have nothing else.
    pub fn metadata(&self) -> usize {
        self.bare.len()
    }
}

/// Whether a case stores no file data. (One without operations is about a pool with a file.)
pub(super) fn is_bare(case: &Case) -> bool {
    let mut ops = case.before.iter().chain(&case.ops).chain(&case.beside).peekable();
    ops.peek().is_some()
        && ops.all(|op| {
            !matches!(
                op,
                Op::Write { .. }
                    | Op::Append { .. }
                    | Op::Fallocate { .. }
                    | Op::SetAttr { attrs: Attrs { size: Some(_), .. }, .. }
            )
        })
}
