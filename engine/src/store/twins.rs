//! The two copies of metadata (PROTOCOL I19; replicas after NOVA-Fortis 4.2).
//!
//! What this file guarantees: a line counts if either of its copies is valid, and then it is the first
//! that counts where both are; so is a link word. A copy that is damaged, or differs where nothing is
//! known of a crash, is stored again from the one that counts: at once in a pool that is open for
//! writes, in recovery once it is certain what happened (its step 7), never in a read-only opening.
//!
//! A copy that can't be loaded is left alone: who stores to memory that is bad may be killed.
//!
//! Without twins a load here is a load.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lock_api::Mutex;
use lode_pmem::{Line, MediaError, Medium, Window};

use super::{LinkFound, Store};
use crate::layout::{HEAD_AT, IDENTITY_ATIME_AT, LINE, get_u64};
use crate::space::Run;
use crate::{Host, Result};

const WORD: u64 = 8;

/// Whose metadata is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Somebody's: what is damaged of it is mended.
    Alive,
    /// Nobody's any more: it may be in use for something else by now.
    Dead,
}

/// Which link word of an anchor it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkWord {
    /// The head of an identity.
    Head,
    /// One that leads on.
    Next,
}

/// What of a line is sealed by its own seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// All of it.
    Record,
    /// All but the two words that change.
    Anchor,
}

/// How the two copies of a line are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    /// As they should be, or not to be mended.
    Same,
    /// Both valid, but different.
    Differ,
    /// One is not valid.
    OneLost,
}

/// A line or word whose copies are to be made the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mend {
    Line { at: u64, line: Line, shape: Shape, was: Copies },
    Word { at: u64, value: u64 },
}

impl Mend {
    /// Offset of the first copy.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Line { at, .. } | Self::Word { at, .. } => *at,
        }
    }
}

/// What is to be mended, and how much has been.
pub(super) struct Mends<H: Host> {
    /// Whether each load compares both copies, and notes what differs.
    comparing: AtomicBool,
    noted: Mutex<H::Mutex, Vec<Mend>>,
    mended: AtomicU64,
}

impl<H: Host> Default for Mends<H> {
    fn default() -> Self {
        let noted = Mutex::new(Vec::new());
        Self { comparing: AtomicBool::new(false), noted, mended: AtomicU64::new(0) }
    }
}

/// The words of an anchor line that are not sealed.
fn is_loose(word: u64) -> bool {
    word * WORD == HEAD_AT || word * WORD == IDENTITY_ATIME_AT
}

/// Whether two copies of a line say the same.
fn same(one: &Line, other: &Line, shape: Shape) -> bool {
    let (ones, others) = (one.0.as_chunks::<8>().0, other.0.as_chunks::<8>().0);
    let mut words = (0..).zip(ones.iter().zip(others));
    words.all(|(word, (a, b))| a == b || shape == Shape::Anchor && is_loose(word))
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Loads the line at `at`: its first copy, or the second where that is not valid, or can't be
    /// loaded, and the second is. So what comes back is valid if either copy is.
    #[inline]
    pub(crate) fn load_line(
        &self,
        at: u64,
        shape: Shape,
        is_valid: impl Fn(&Line) -> bool,
    ) -> Result<Line> {
        self.load_line_of(Owner::Alive, at, shape, is_valid)
    }

    /// As [`Store::load_line`], of this owner.
    #[inline]
    pub(crate) fn load_line_of(
        &self,
        owner: Owner,
        at: u64,
        shape: Shape,
        is_valid: impl Fn(&Line) -> bool,
    ) -> Result<Line> {
        let first = self.door.load_line(at);
        if self.geometry.twin_pages == 0 {
            return Ok(first?);
        }
        let valid = first.as_ref().is_ok_and(&is_valid);
        if valid && (owner == Owner::Dead || !self.mends.comparing.load(Relaxed)) {
            return Ok(first?);
        }
        let (line, was) = self.load_both(at, shape, first, valid, &is_valid)?;
        if was != Copies::Same && owner == Owner::Alive {
            self.mend(Mend::Line { at, line, shape, was })?;
        }
        Ok(line)
    }

    /// The copy that counts, and how the other one is, where one does.
    #[inline(never)]
    fn load_both(
        &self,
        at: u64,
        shape: Shape,
        first: core::result::Result<Line, MediaError>,
        first_valid: bool,
        is_valid: &dyn Fn(&Line) -> bool,
    ) -> Result<(Line, Copies)> {
        let second = match self.door.twin_of(at) {
            Some(twin) => self.door.load_line(twin),
            None => first,
        };
        Ok(match (first, second) {
            (Ok(first), Ok(second)) if first_valid => {
                let was = match (same(&first, &second, shape), is_valid(&second)) {
                    (true, _) => Copies::Same,
                    (false, true) => Copies::Differ,
                    (false, false) => Copies::OneLost,
                };
                (first, was)
            }
            (Ok(first), Err(_)) if first_valid => (first, Copies::Same),
            (first, Ok(second)) if is_valid(&second) => {
                (second, if first.is_ok() { Copies::OneLost } else { Copies::Same })
            }
            // Of two bad copies one may be none because it can't be loaded.
            (Err(_), Ok(second)) => (second, Copies::Same),
            (first, _) => (first?, Copies::Same),
        })
    }

    /// Loads the link word at `at`, as [`Store::load_line`] does a line. (Its check is short: a word that
    /// leads nowhere does not count beside one that is right.)
    #[inline]
    pub(crate) fn load_link(&self, at: u64, which: LinkWord) -> Result<LinkFound> {
        self.load_link_of(Owner::Alive, at, which)
    }

    /// As [`Store::load_link`], of this owner.
    #[inline]
    pub(crate) fn load_link_of(&self, owner: Owner, at: u64, which: LinkWord) -> Result<LinkFound> {
        let first = self.door.load_word(at);
        if self.geometry.twin_pages == 0 {
            return Ok(self.parse_link(first?, at));
        }
        if let Ok(word) = first
            && self.leads(word, at, which)
            && (owner == Owner::Dead || !self.mends.comparing.load(Relaxed))
        {
            return Ok(self.parse_link(word, at));
        }
        let (word, mend) = self.load_both_words(at, which, first)?;
        if mend && owner == Owner::Alive {
            self.mend(Mend::Word { at, value: word })?;
        }
        Ok(self.parse_link(word, at))
    }

    /// Whether a word at `at` can be a link, or says that there is none.
    fn leads(&self, word: u64, at: u64, which: LinkWord) -> bool {
        let found = self.parse_link(word, at);
        found.is_ok_and(|link| {
            link.is_none_or(|link| {
                let place = which == LinkWord::Head || !link.inline_dead;
                place && self.geometry.holds_metadata(link.page, 1)
            })
        })
    }

    /// The word that counts, and whether the other copy is to be mended.
    #[inline(never)]
    fn load_both_words(
        &self,
        at: u64,
        which: LinkWord,
        first: core::result::Result<u64, MediaError>,
    ) -> Result<(u64, bool)> {
        let second = match self.door.twin_of(at) {
            Some(twin) => self.door.load_word(twin),
            None => first,
        };
        Ok(match (first, second) {
            (Ok(word), second) if self.leads(word, at, which) => {
                (word, second.is_ok_and(|other| other != word))
            }
            (first, Ok(word)) if self.leads(word, at, which) => (word, first.is_ok()),
            (Err(_), Ok(word)) => (word, false),
            (first, _) => (first?, false),
        })
    }

    /// The access time word of the identity at `at`, of which `line` is the copy that counts. No seal is
    /// over that word: so it counts where the line around it is whole, and of two the earlier one.
    pub(crate) fn load_atime(
        &self,
        at: u64,
        line: &Line,
        is_valid: &dyn Fn(&Line) -> bool,
    ) -> Result<u64> {
        let word = |line: &Line, word_at| get_u64(&line.0, word_at as usize);
        let Some(twin) = self.door.twin_of(at) else { return Ok(word(line, IDENTITY_ATIME_AT)) };
        let whole = |copy: core::result::Result<Line, MediaError>| {
            let is_whole = |line: &Line| {
                is_valid(line) && self.parse_link(word(line, HEAD_AT), at + HEAD_AT).is_ok()
            };
            copy.ok().filter(is_whole).map(|line| word(&line, IDENTITY_ATIME_AT) as i64)
        };
        let copies = [whole(self.door.load_line(at)), whole(self.door.load_line(twin))];
        Ok(copies.into_iter().flatten().min().unwrap_or(0) as u64)
    }

    /// The twin of pages of metadata, if they have one.
    pub(crate) fn twin_run(&self, run: Run) -> Option<Run> {
        let apart = self.geometry.twin_pages;
        (apart != 0).then_some(Run { page: run.page ^ apart, ..run })
    }

    /// Whether the word at `at` is `word`, in both copies, as far as they can be loaded.
    pub(crate) fn is_word(&self, at: u64, word: u64) -> Result<bool> {
        let first = self.door.load_word(at);
        let Some(twin) = self.door.twin_of(at) else { return Ok(first? == word) };
        match (first, self.door.load_word(twin)) {
            (Ok(first), Ok(second)) => Ok(first == word && second == word),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one == word),
            (Err(error), Err(_)) => Err(error.into()),
        }
    }

    /// Stores a word to both copies, as far as they can be loaded.
    pub(crate) fn store_word(&self, window: &mut Window<'_, M>, at: u64, value: u64) {
        let Some(twin) = self.door.twin_of(at) else { return window.store_word(at, value) };
        for place in [at, twin] {
            if self.door.load_word(place).is_ok() {
                window.store_one_copy(place, value);
            }
        }
    }

    /// Makes the copies of something the same, now or when recovery knows what happened.
    fn mend(&self, mend: Mend) -> Result<()> {
        if self.mends.comparing.load(Relaxed) {
            let mut noted = self.mends.noted.lock();
            noted.try_reserve(1)?;
            noted.push(mend);
        } else if self.writable().is_ok() {
            // (No fence: until the next one the other copy counts, as it did before.)
            self.store_mend(&mend);
            self.mends.mended.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Stores the copy that counts to both places, in words: that which is good keeps saying what it
    /// says at each moment, and the words of an anchor that change are left to those who change them.
    fn store_mend(&self, mend: &Mend) {
        let mut window = self.door.window(2 * LINE, self.counters());
        match mend {
            Mend::Line { at, line, shape, was } => {
                for (word, bytes) in (0..).zip(line.0.as_chunks::<8>().0) {
                    // A lost access time comes from the copy that is left.
                    let is_lost = *was == Copies::OneLost && word * WORD == IDENTITY_ATIME_AT;
                    if *shape == Shape::Record || is_lost || !is_loose(word) {
                        let value = u64::from_le_bytes(*bytes);
                        self.store_word(&mut window, at + word * WORD, value);
                    }
                }
            }
            Mend::Word { at, value } => self.store_word(&mut window, *at, *value),
        }
    }

    /// From now on each load compares both copies, and what differs is noted: for recovery.
    pub(crate) fn compare_twins(&self) {
        self.mends.comparing.store(self.geometry.twin_pages != 0, Relaxed);
    }

    /// Ends the comparing: with `write` what was noted is stored, and the caller fences. Returns where
    /// copies differ.
    pub(crate) fn end_comparing(&self, write: bool) -> Vec<Mend> {
        self.mends.comparing.store(false, Relaxed);
        let noted = core::mem::take(&mut *self.mends.noted.lock());
        if write {
            noted.iter().for_each(|mend| self.store_mend(mend));
            self.mends.mended.fetch_add(noted.len() as u64, Relaxed);
        }
        noted
    }

    /// Lines and words of metadata that were mended from their twins since the pool was opened.
    pub(crate) fn mended(&self) -> u64 {
        self.mends.mended.load(Relaxed)
    }
}
