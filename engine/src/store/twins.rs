//! The two copies of metadata (PROTOCOL I19; replicas after NOVA-Fortis 4.2).
//!
//! What this file guarantees: a line counts if either of its copies is valid, and then it is the first
//! that counts where both are; so is a link word. A copy that is damaged, or differs where nothing is
//! known of a crash, is stored again from the one that counts: at once in a pool that is open for
//! writes, in recovery once it is certain what happened (its step 7), never in a read-only opening.
//!
//! Without twins a load here is a load.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lock_api::Mutex;
use lode_pmem::{Line, MediaError, Medium};

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

/// What of a line is sealed by its own seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// All of it.
    Record,
    /// All but the two words that change.
    Anchor,
}

/// A line or word whose copies are to be made the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mend {
    Line { at: u64, line: Line, shape: Shape },
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
        let (line, differs) = self.load_both(at, shape, first, valid, &is_valid)?;
        if differs && owner == Owner::Alive {
            self.mend(Mend::Line { at, line, shape })?;
        }
        Ok(line)
    }

    /// The copy that counts, and whether one does and the other differs.
    #[inline(never)]
    fn load_both(
        &self,
        at: u64,
        shape: Shape,
        first: core::result::Result<Line, MediaError>,
        first_valid: bool,
        is_valid: &dyn Fn(&Line) -> bool,
    ) -> Result<(Line, bool)> {
        let second = match self.door.twin_of(at) {
            Some(twin) => self.door.load_line(twin),
            None => first,
        };
        Ok(match (first, second) {
            (Ok(first), second) if first_valid => {
                (first, second.map_or(true, |second| !same(&first, &second, shape)))
            }
            (_, Ok(second)) if is_valid(&second) => (second, true),
            // Of two bad copies one may be none because it can't be loaded.
            (Err(_), Ok(second)) => (second, false),
            (first, _) => (first?, false),
        })
    }

    /// Loads the link word at `at`, as [`Store::load_line`] does a line.
    #[inline]
    pub(crate) fn load_link(&self, at: u64) -> Result<LinkFound> {
        self.load_link_of(Owner::Alive, at)
    }

    /// As [`Store::load_link`], of this owner.
    #[inline]
    pub(crate) fn load_link_of(&self, owner: Owner, at: u64) -> Result<LinkFound> {
        let first = self.door.load_word(at);
        if self.geometry.twin_pages == 0 {
            return Ok(self.parse_link(first?, at));
        }
        let found = first.ok().map(|word| self.parse_link(word, at));
        if let Some(Ok(link)) = found
            && (owner == Owner::Dead || !self.mends.comparing.load(Relaxed))
        {
            return Ok(Ok(link));
        }
        let (found, mend) = self.load_both_words(at, first)?;
        if let Some(value) = mend.filter(|_| owner == Owner::Alive) {
            self.mend(Mend::Word { at, value })?;
        }
        Ok(found)
    }

    /// The link that counts, and its word if the other copy has another one.
    #[inline(never)]
    fn load_both_words(
        &self,
        at: u64,
        first: core::result::Result<u64, MediaError>,
    ) -> Result<(LinkFound, Option<u64>)> {
        let second = match self.door.twin_of(at) {
            Some(twin) => self.door.load_word(twin),
            None => first,
        };
        let read = |word: core::result::Result<u64, MediaError>| {
            word.map(|word| (word, self.parse_link(word, at)))
        };
        Ok(match (read(first), read(second)) {
            (Ok((word, Ok(link))), second) => {
                let differs = second.map_or(true, |(other, _)| other != word);
                (Ok(link), differs.then_some(word))
            }
            (_, Ok((word, Ok(link)))) => (Ok(link), Some(word)),
            (Err(_), Ok((_, found))) => (found, None),
            (first, _) => (first?.1, None),
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

    /// Whether the word at `at` is `word`, in both copies.
    pub(crate) fn is_word(&self, at: u64, word: u64) -> Result<bool> {
        let first = self.door.load_word(at);
        let Some(twin) = self.door.twin_of(at) else { return Ok(first? == word) };
        Ok(first == Ok(word) && self.door.load_word(twin) == Ok(word))
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
        let mut window = self.door.window(LINE, self.counters());
        match mend {
            Mend::Line { at, line, shape } => {
                for (word, bytes) in (0..).zip(line.0.as_chunks::<8>().0) {
                    if *shape == Shape::Record || !is_loose(word) {
                        window.store_word(at + word * WORD, u64::from_le_bytes(*bytes));
                    }
                }
            }
            Mend::Word { at, value } => window.store_word(*at, *value),
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
