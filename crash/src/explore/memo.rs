//! Images that were judged already, and how: an image that comes up again, where the same may be
//! found, is not judged again.
//!
//! Most do come up again: what is durable after a fence is what the next one begins with, all profiles
//! have the states in which everything or nothing was kept, and recoveries that are cut off end where others did.

use std::collections::HashMap;

use lode_testkit::rng::mix;

use crate::judge::{Allowed, Health, health_of};
use crate::region::{Own, Pages, Profile, Watch};

/// Lines that are remembered, over all images; about 64 MiB.
const LINES_MAX: usize = 16 << 20;
/// The same of openings.
const OPENING_LINES_MAX: usize = 8 << 20;

/// What is asked of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Question {
    /// [`crate::region::Pages::fingerprint`].
    image: u64,
    /// What else there is to it.
    kind: Kind,
    /// What is looked at depends on what may be found only in large files, where data may be mixed, and where memory has
    /// lost something.
    hint: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// Whether it is right.
    State,
    /// Whether it is right, being what a recovery left that was cut off: less is asked then.
    Again,
    /// Whether its own recovery can be cut off.
    Inside(Profile),
    /// Whether it opens as it should.
    Opening(Opening),
}

/// Openings of what a state has become: many states become the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Opening {
    /// Of a pool that was recovered.
    Again,
    /// Of one that was used up and closed.
    UsedUp,
}

impl Question {
    /// Whether an image is one of those allowed.
    pub(super) fn of(image: &Pages, allowed: &[Allowed<'_>], relaxed: bool) -> Self {
        let all = allowed.iter().map(|allowed| allowed.expected);
        let hinted = relaxed || all.clone().any(|expected| expected.large);
        let hint = if hinted { all.fold(1, |all, expected| mix(all ^ expected.hash)) } else { 0 };
        let hint = at_health(hint, health_of(allowed));
        Self { image: image.fingerprint(), kind: Kind::State, hint }
    }

    /// Whether the recovery of the image, which is one of those allowed, can be cut off.
    pub(super) fn inside(self, profile: Profile) -> Self {
        Self { kind: Kind::Inside(profile), ..self }
    }

    /// Whether an image that a recovery left shows the tree with this hash, which has `large` files
    /// or not.
    pub(super) fn again(image: &Pages, hash: u64, large: bool, health: Health) -> Self {
        let hint = at_health(if large { hash } else { 0 }, health);
        Self { image: image.fingerprint(), kind: Kind::Again, hint }
    }

    /// Whether the image with this fingerprint opens as it should; `hint` is what else that depends on.
    pub(crate) fn opening(image: u64, opening: Opening, hint: u64) -> Self {
        Self { image, kind: Kind::Opening(opening), hint }
    }
}

/// More or less is asked where memory has lost something.
fn at_health(hint: u64, health: Health) -> u64 {
    match health {
        Health::Sound => hint,
        health => mix(hint ^ health as u64),
    }
}

/// An image that is right.
#[derive(Debug)]
struct Known {
    /// The hash of the tree that was found.
    tree: u64,
    /// The lines that were looked at, in their order.
    lines: Box<[u32]>,
}

/// The judged images of a case. It holds for one pool and one engine: not for another mutant.
#[derive(Debug, Default)]
pub struct Memo {
    known: HashMap<Question, Known>,
    lines: usize,
    /// What was looked at in openings that went well.
    openings: HashMap<Question, Box<[u32]>>,
    opening_lines: usize,
}

impl Memo {
    /// Which of these trees an image showed; tells `watches` what was looked at. `None` if it was
    /// not judged, or showed another one.
    pub(super) fn recall(
        &self,
        question: &Question,
        allowed: impl IntoIterator<Item = u64>,
        watches: &mut [Watch],
    ) -> Option<usize> {
        let known = self.known.get(question)?;
        let which = allowed.into_iter().position(|tree| tree == known.tree)?;
        for watch in watches {
            watch.replay(&known.lines, &Own::default());
        }
        Some(which)
    }

    /// The lines that were looked at in this opening, in their order, if it went well before.
    pub(crate) fn opening(&self, question: &Question) -> Option<&[u32]> {
        self.openings.get(question).map(|lines| &**lines)
    }

    /// Remembers that an opening went well.
    pub(crate) fn note_opening(&mut self, question: Question, lines: &[u32]) {
        if self.opening_lines + lines.len() <= OPENING_LINES_MAX {
            self.opening_lines += lines.len();
            self.openings.insert(question, lines.into());
        }
    }

    /// Remembers which tree an image showed, and what was looked at: all its lines were watched.
    pub(super) fn note(&mut self, question: Question, tree: u64, watch: &Watch) {
        let lines: Box<[u32]> = watch.lines().collect();
        if self.lines + lines.len() <= LINES_MAX {
            self.lines += lines.len();
            self.known.insert(question, Known { tree, lines });
        }
    }
}
