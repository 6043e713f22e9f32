//! The two copies of a link word.
//!
//! What this file guarantees: the check of a word is short, so that of some thousand scribbles one leaves a word that looks
//! right. Of two copies that differ that one counts which leads to what it names; else one that says that there is no link;
//! the first where both do. (A crash may have left either: whichever is taken, it could have left in both.)

use lode_pmem::{Line, MediaError, Medium};

use super::twins::{Mend, Owner};
use super::{LinkFound, Store};
use crate::layout::{LINE, Link, put_u64};
use crate::{Host, PAGE_BYTES, Result};

/// Which link word of an anchor it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkWord {
    /// The head of an identity.
    Head,
    /// One that leads on.
    Next,
}

/// How much a copy of a word is believed beside another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Belief {
    /// It is no link word.
    Wrong,
    /// Its check is right, but it does not lead to what it names.
    Astray,
    /// It says that there is no link.
    Ends,
    /// It leads to what it names.
    Leads,
}

/// Whether a link leads to what it names.
type Follows<'f> = &'f dyn Fn(&Link) -> bool;

impl<M: Medium, H: Host> Store<M, H> {
    /// Loads the link word at `at`: the copy that counts. `follows` says whether a link leads to what it names.
    #[inline]
    pub(crate) fn load_link_to(
        &self,
        owner: Owner,
        at: u64,
        which: LinkWord,
        follows: Follows<'_>,
    ) -> Result<LinkFound> {
        let first = self.door.load_word(at);
        if self.geometry.twin_pages == 0 {
            return Ok(self.parse_link(first?, at));
        }
        if let Ok(word) = first
            && !self.compares(owner)
            && self.belief(word, at, which, follows) == Belief::Leads
        {
            return Ok(self.parse_link(word, at));
        }
        self.load_link_mended(owner, at, which, first, follows)
    }

    /// The word that counts, after what is to be done to the other one.
    #[inline(never)]
    fn load_link_mended(
        &self,
        owner: Owner,
        at: u64,
        which: LinkWord,
        first: core::result::Result<u64, MediaError>,
        follows: Follows<'_>,
    ) -> Result<LinkFound> {
        let (word, mend) = self.load_both_words(at, which, first, follows)?;
        if let Some(mend) = mend {
            self.mend(owner, mend)?;
        }
        Ok(self.parse_link(word, at))
    }

    /// How much a word at `at` is believed.
    fn belief(&self, word: u64, at: u64, which: LinkWord, follows: Follows<'_>) -> Belief {
        match self.parse_link(word, at) {
            Err(_) => Belief::Wrong,
            Ok(None) => Belief::Ends,
            Ok(Some(link)) if link.inline_dead && which != LinkWord::Head => Belief::Wrong,
            Ok(Some(link)) if !self.geometry.holds_metadata(link.page, 1) => Belief::Wrong,
            Ok(Some(link)) if !follows(&link) => Belief::Astray,
            Ok(Some(_)) => Belief::Leads,
        }
    }

    /// The word that counts, and what is to be done to the other copy. (That of an anchor that can't be
    /// loaded is stored with its line.)
    #[inline(never)]
    fn load_both_words(
        &self,
        at: u64,
        which: LinkWord,
        first: core::result::Result<u64, MediaError>,
        follows: Follows<'_>,
    ) -> Result<(u64, Option<Mend>)> {
        let Some(twin) = self.door.twin_of(at) else { return Ok((first?, None)) };
        let belief = |word| self.belief(word, at, which, follows);
        let believed = first.map_or(Belief::Wrong, belief);
        if believed != Belief::Leads
            && let Some(word) = self.word_before(at)
            && belief(word) > believed
        {
            return Ok((word, None));
        }
        let second = self.door.load_word(twin);
        let mend = |value| Some(Mend::Word { at, value });
        Ok(match (first, second) {
            (Ok(first), Ok(second)) if first == second => (first, None),
            (Ok(_), Ok(second)) if belief(second) > believed => (second, mend(second)),
            (Ok(first), Ok(_)) if believed <= Belief::Astray => (first, None),
            (Ok(first), Ok(_)) => (first, mend(first)),
            (Ok(first), Err(_)) => (first, self.bad_chain_link(at, twin, first)),
            (Err(_), Ok(second)) => (second, self.bad_chain_link(at, at, second)),
            (Err(error), Err(_)) => return Err(error.into()),
        })
    }

    /// What is to be done to the copy in `place` of a link of the lane table: it has a line for itself.
    fn bad_chain_link(&self, at: u64, place: u64, word: u64) -> Option<Mend> {
        let is_chain = at / PAGE_BYTES < self.geometry.first_page();
        let mut line = Line::ZERO;
        put_u64(&mut line.0, 0, word);
        (is_chain && at.is_multiple_of(LINE)).then_some(Mend::Bad { at, place, line })
    }
}
