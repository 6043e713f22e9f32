//! The two copies of metadata (PROTOCOL I19; replicas after NOVA-Fortis 4.2).
//!
//! What this file guarantees: a line counts if either of its copies is valid, and then it is the first
//! that counts where both are (of link words: `links`). A copy that is damaged, or differs where nothing is
//! known of a crash, is stored again from the one that counts: at once in a pool that is open for
//! writes, in recovery once it is certain what happened (its step 7), never in a read-only opening.
//!
//! A copy that can't be loaded is stored whole from the other, loose words too: a line that is streamed
//! makes bad memory good, where anything does, and a part of one may kill who stores it. So no word is
//! stored to a line of which nobody knows that it can be loaded ([`Store::store_word`]).
//!
//! Recovery loads some lines several times, and memory can go bad between: what it took for what counts, of two copies
//! that differed, is what it takes again where the first copy is lost by then.
//!
//! Without twins a load here is a load.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use lock_api::Mutex;
use lode_pmem::{Line, MediaError, Medium, Window};

use super::Store;
use crate::inode::Mix;
use crate::layout::{HEAD_AT, Header, IDENTITY_ATIME_AT, LINE, get_u64, put_u64};
use crate::space::Run;
use crate::{Host, Result};

const WORD: u64 = 8;
/// Differences that are remembered for who scrubs.
const FOUND_MAX: usize = 1000;

/// Whose metadata is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Somebody's: what is damaged of it is mended.
    Alive,
    /// The same, and both copies are compared: for who scrubs.
    Compared,
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

/// How two copies of a line are that both can be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    /// Both valid, but different.
    Differ,
    /// One is not valid.
    OneLost,
}

/// A line or word whose copies are to be made the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mend {
    /// One that both can be loaded of.
    Line {
        at: u64,
        line: Line,
        shape: Shape,
        was: Copies,
    },
    Word {
        at: u64,
        value: u64,
    },
    /// One whose copy in `place` can't be loaded: that is to be this line.
    Bad {
        at: u64,
        place: u64,
        line: Line,
    },
}

impl Mend {
    /// Offset of the first copy.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Line { at, .. } | Self::Word { at, .. } | Self::Bad { at, .. } => *at,
        }
    }
}

/// What is to be mended when it is certain what happened.
#[derive(Default)]
struct Noted {
    all: Vec<Mend>,
    /// By places, what was taken for what counts there.
    first: HashMap<u64, usize, Mix>,
}

impl Noted {
    fn push(&mut self, mend: Mend) -> Result<()> {
        self.all.try_reserve(1)?;
        self.first.try_reserve(1)?;
        // (A copy in bad memory may be nothing yet: one that is valid counts.)
        match mend {
            Mend::Line { .. } => _ = self.first.insert(mend.at(), self.all.len()),
            _ => _ = self.first.entry(mend.at()).or_insert(self.all.len()),
        }
        self.all.push(mend);
        Ok(())
    }
}

/// What is to be mended, and how much has been.
pub(super) struct Mends<H: Host> {
    /// Whether each load compares both copies, and notes what differs.
    comparing: AtomicBool,
    noted: Mutex<H::Mutex, Noted>,
    /// What was found while nothing was noted: where, and whether it is mended.
    found: Mutex<H::Mutex, Vec<(u64, bool)>>,
    mended: AtomicU64,
}

impl<H: Host> Default for Mends<H> {
    fn default() -> Self {
        let (noted, found) = (Mutex::new(Noted::default()), Mutex::new(Vec::new()));
        Self { comparing: AtomicBool::new(false), noted, found, mended: AtomicU64::new(0) }
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
        if valid && !self.compares(owner) {
            return Ok(first?);
        }
        self.load_mended(owner, at, shape, (first, valid), &is_valid)
    }

    /// Whether both copies are looked at where the first is good.
    #[inline]
    pub(super) fn compares(&self, owner: Owner) -> bool {
        match owner {
            Owner::Alive => self.mends.comparing.load(Relaxed),
            Owner::Compared => true,
            Owner::Dead => false,
        }
    }

    /// The copy that counts, after what is to be done to the other one.
    #[inline(never)]
    fn load_mended(
        &self,
        owner: Owner,
        at: u64,
        shape: Shape,
        (first, valid): (core::result::Result<Line, MediaError>, bool),
        is_valid: &dyn Fn(&Line) -> bool,
    ) -> Result<Line> {
        let (line, mend) = self.load_both(at, shape, first, valid, is_valid)?;
        if let Some(mend) = mend {
            self.mend(owner, mend)?;
        }
        Ok(line)
    }

    /// The copy that counts, and what is to be done to the other one.
    #[inline(never)]
    fn load_both(
        &self,
        at: u64,
        shape: Shape,
        first: core::result::Result<Line, MediaError>,
        first_valid: bool,
        is_valid: &dyn Fn(&Line) -> bool,
    ) -> Result<(Line, Option<Mend>)> {
        let Some(twin) = self.door.twin_of(at) else { return Ok((first?, None)) };
        if !first_valid && let Some(line) = self.line_before(at, is_valid) {
            return Ok((line, None));
        }
        let second = self.door.load_line(twin);
        let mend = |line, was| Some(Mend::Line { at, line, shape, was });
        Ok(match (first, second) {
            (Ok(first), Ok(second)) if first_valid => match is_valid(&second) {
                _ if same(&first, &second, shape) => (first, None),
                true => (first, mend(first, Copies::Differ)),
                false => (first, mend(first, Copies::OneLost)),
            },
            (Ok(_), Ok(second)) if is_valid(&second) => (second, mend(second, Copies::OneLost)),
            (Ok(first), Ok(_)) => (first, None),
            // Of two copies one may not be valid, as nothing was stored there yet, and one may be bad.
            (Ok(first), Err(_)) => (first, Some(Mend::Bad { at, place: twin, line: first })),
            (Err(_), Ok(second)) => (second, Some(Mend::Bad { at, place: at, line: second })),
            (Err(error), Err(_)) => return Err(error.into()),
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

    /// The same of a link word: where another one was noted for it, that is yet to be stored.
    pub(crate) fn is_link(&self, at: u64, word: u64) -> Result<bool> {
        let noted = self.word_before(at);
        Ok(noted.is_none_or(|noted| noted == word) && self.is_word(at, word)?)
    }

    /// Stores a word of metadata to both copies: with the rest of its line where that can't be loaded. (To
    /// memory that is bad, less than a line may kill who stores it.)
    #[inline(never)]
    #[track_caller]
    pub(crate) fn store_word(&self, window: &mut Window<'_, M>, at: u64, value: u64) {
        match self.door.twin_of(at) {
            Some(twin) => self.store_words(window, at, twin, value),
            None => window.store_word(at, value),
        }
    }

    #[inline(never)]
    #[track_caller]
    fn store_words(&self, window: &mut Window<'_, M>, at: u64, twin: u64, value: u64) {
        let loaded = [at, twin].map(|place| self.door.load_word(place));
        if loaded.iter().all(|word| word.is_ok()) {
            return window.store_word(at, value);
        }
        for (place, other) in [(at, twin), (twin, at)] {
            self.store_word_of_one(window, place, other, value);
        }
    }

    /// Stores a word to one copy, whose other one is at `other`. Nothing where neither can be loaded.
    fn store_word_of_one(&self, window: &mut Window<'_, M>, at: u64, other: u64, value: u64) {
        if self.door.load_word(at).is_ok() {
            return window.store_one_copy(at, value);
        }
        if let Ok(mut line) = self.door.load_line(other - other % LINE) {
            put_u64(&mut line.0, (at % LINE) as usize, value);
            window.renew_line(at - at % LINE, &line);
        }
    }

    /// Stores an access time to both copies of an identity, unless one of them can't be loaded.
    pub(crate) fn store_atime(&self, at: u64, atime_ns: i64) {
        let places = [Some(at), self.door.twin_of(at)];
        if places.iter().flatten().all(|place| self.door.load_word(*place).is_ok()) {
            self.door.window(WORD, self.counters()).store_word_lazily(at, atime_ns as u64);
        }
    }

    /// Stores a line to both copies, neither of which is any more what was loaded before.
    pub(crate) fn mend_lost(&self, owner: Owner, at: u64, line: &Line) -> Result<()> {
        let (line, shape, was) = (*line, Shape::Record, Copies::OneLost);
        self.mend(owner, Mend::Line { at, line, shape, was })
    }

    /// Makes the copies of something the same, now or when recovery knows what happened.
    #[inline(never)]
    pub(super) fn mend(&self, owner: Owner, mend: Mend) -> Result<()> {
        if owner == Owner::Dead {
            return Ok(());
        }
        if self.mends.comparing.load(Relaxed) {
            return self.mends.noted.lock().push(mend);
        }
        // (No fence: until the next one the other copy counts, as it did before.)
        let mended = self.writable().is_ok() && self.store_mend(&mend);
        let mut found = self.mends.found.lock();
        if found.len() < FOUND_MAX {
            found.try_reserve(1)?;
            found.push((mend.at(), mended));
        }
        Ok(())
    }

    /// What has been found to differ since this was asked last: where, and whether it is mended.
    pub(crate) fn take_differing(&self) -> Vec<(u64, bool)> {
        core::mem::take(&mut *self.mends.found.lock())
    }

    /// Stores the copy that counts to both places, in words: that which is good keeps saying what it
    /// says at each moment, and the words of an anchor that change are left to those who change them. To
    /// one that can't be loaded, in one line. Says whether it is good then.
    #[inline(never)]
    fn store_mend(&self, mend: &Mend) -> bool {
        let mut window = self.door.window(2 * LINE, self.counters());
        match mend {
            Mend::Line { at, line, shape, was } => {
                for (word, bytes) in (0..).zip(line.0.as_chunks::<8>().0) {
                    // A lost access time comes from the copy that is left.
                    let is_lost = *was == Copies::OneLost && word * WORD == IDENTITY_ATIME_AT;
                    if *shape == Shape::Record || is_lost || !is_loose(word) {
                        let value = u64::from_le_bytes(*bytes);
                        self.mend_word(&mut window, at + word * WORD, value);
                    }
                }
            }
            Mend::Word { at, value } => self.mend_word(&mut window, *at, *value),
            Mend::Bad { place, line, .. } => window.renew_line(*place, line),
        }
        drop(window);
        let is_good = match mend {
            Mend::Bad { place, .. } => self.door.load_line(*place).is_ok(),
            Mend::Line { .. } | Mend::Word { .. } => true,
        };
        self.mends.mended.fetch_add(u64::from(is_good), Relaxed);
        if let Mend::Bad { place, .. } = mend
            && is_good
        {
            self.bad.renewed(*place);
        }
        is_good
    }

    /// Stores a word to both copies: streamed, as nobody loads it before a fence that is yet to come.
    fn mend_word(&self, window: &mut Window<'_, M>, at: u64, value: u64) {
        match self.door.twin_of(at) {
            Some(twin) if [at, twin].iter().all(|place| self.door.load_word(*place).is_ok()) => {
                window.stream_word(at, value);
            }
            Some(twin) => {
                self.store_word_of_one(window, at, twin, value);
                self.store_word_of_one(window, twin, at, value);
            }
            None => window.stream_word(at, value),
        }
    }

    /// From now on each load compares both copies, and what differs is noted: for recovery.
    pub(crate) fn compare_twins(&self) {
        self.mends.comparing.store(self.geometry.twin_pages != 0, Relaxed);
    }

    /// The line at `at` that was taken before, if its copies differed. (What was noted is stored yet.)
    #[cold]
    #[inline(never)]
    fn line_before(&self, at: u64, is_valid: &dyn Fn(&Line) -> bool) -> Option<Line> {
        match self.noted_at(at)? {
            Mend::Line { line, .. } | Mend::Bad { line, .. } if is_valid(&line) => Some(line),
            _ => None,
        }
    }

    /// The same of a link word.
    pub(super) fn word_before(&self, at: u64) -> Option<u64> {
        match self.noted_at(at)? {
            Mend::Word { value, .. } => Some(value),
            _ => None,
        }
    }

    fn noted_at(&self, at: u64) -> Option<Mend> {
        if !self.mends.comparing.load(Relaxed) {
            return None;
        }
        let noted = self.mends.noted.lock();
        noted.first.get(&at).and_then(|index| noted.all.get(*index)).copied()
    }

    /// Ends the comparing: with `write` what was noted is stored, and the caller fences. Returns where
    /// copies differ.
    pub(crate) fn end_comparing(&self, write: bool) -> Vec<Mend> {
        self.mends.comparing.store(false, Relaxed);
        let noted = core::mem::take(&mut *self.mends.noted.lock()).all;
        if write {
            // (A copy that is stored whole may have come from one with an older word.)
            let whole = |mend: &&Mend| matches!(mend, Mend::Bad { .. });
            let words = noted.iter().filter(|mend| !whole(mend));
            for mend in noted.iter().filter(whole).chain(words) {
                if !self.is_aborted(mend) {
                    self.store_mend(mend);
                }
            }
        }
        noted
    }

    /// Whether it is a line that did not happen: it may be gone from both copies by now, and nobody would erase it.
    fn is_aborted(&self, mend: &Mend) -> bool {
        match mend {
            Mend::Line { line, shape: Shape::Record, .. } | Mend::Bad { line, .. } => {
                self.aborted.contains(&Header::peek(line).txid)
            }
            _ => false,
        }
    }

    /// Lines and words of metadata that were mended from their twins since the pool was opened.
    pub(crate) fn mended(&self) -> u64 {
        self.mends.mended.load(Relaxed)
    }
}
