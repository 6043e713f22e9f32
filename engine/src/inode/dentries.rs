//! Names that were looked up lately, and what they led to (what a kernel calls its dentry cache).
//!
//! Guarantees: what is found here, the directory says; to find it takes no lock and waits for nobody. That holds
//! because a name is noted by who has its directory locked for looking, and forgotten by who removes its
//! entry, while the directory is locked for that. Long names and those in snapshots are not noted, and a name may be
//! forgotten at any time: who finds none asks the directory.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

use super::state::State;
use crate::index::Entry;
use crate::layout::{Body, Parsed, tag_of};
use crate::{Ino, Result};

/// The longest name that is noted, in words.
const NAME_WORDS: usize = 4;
/// Places that a name may be noted in.
const WAYS: usize = 2;
/// Places for names, at least and at most, and pages of the pool for each.
const PLACES_MIN: u64 = 64;
const PLACES_MAX: u64 = 32 * 1024;
const PAGES_EACH: u64 = 16;

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    dir: Ino,
    len: u8,
    words: [u64; NAME_WORDS],
}

impl Name {
    /// `None` for one that is not noted.
    #[inline]
    pub(crate) fn of(dir: Ino, name: &[u8]) -> Option<Self> {
        let mut text = [0; NAME_WORDS * 8];
        text.get_mut(..name.len()).filter(|text| !text.is_empty())?.copy_from_slice(name);
        let mut words = [0; NAME_WORDS];
        for (word, bytes) in words.iter_mut().zip(text.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(Self { dir, len: name.len() as u8, words })
    }

    /// Spreads names; who chooses some that collide makes himself a slower look-up.
    #[inline]
    fn hash(&self) -> u64 {
        self.words.iter().fold(spread(0, self.dir), |hash, word| spread(hash, *word))
    }
}

#[inline]
fn spread(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

/// What a name leads to: an inode in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// Its number.
    pub(crate) ino: Ino,
    /// Tag of the life's nonce.
    pub(crate) tag: u32,
    /// Its mode, shifted right by 12.
    pub(crate) kind: u8,
}

impl Target {
    /// Whether this state is the life that is meant, and has not ended.
    #[inline]
    pub(crate) fn means(&self, state: &State) -> bool {
        let same =
            self.tag == tag_of(state.log.nonce) && u32::from(self.kind) == state.kind() >> 12;
        same && !state.is_dead()
    }
}

/// What an entry leads to that this record made.
pub(crate) fn target_of(entry: &Entry, add: &Parsed) -> Option<Target> {
    let Body::Add { tag, .. } = add.body else { return None };
    Some(Target { ino: entry.ino, tag, kind: entry.kind })
}

/// A place for a name: a line of the cache.
#[derive(Default)]
#[repr(align(64))]
struct Place {
    /// Odd while somebody writes to it, and another number afterwards.
    turn: AtomicU64,
    dir: AtomicU64,
    ino: AtomicU64,
    /// The tag, above it the kind, above it the length of the name: 0 where there is none.
    rest: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
}

const _: () = assert!(size_of::<Place>() == 64);

impl Place {
    /// What this name led to when it was noted here, and the turn then.
    #[inline]
    fn look(&self, name: &Name) -> Option<(Target, u64)> {
        let turn = self.turn.load(Acquire);
        let rest = self.rest.load(Relaxed);
        let same = turn.is_multiple_of(2)
            && rest >> 40 == u64::from(name.len)
            && self.dir.load(Relaxed) == name.dir
            && self.name.iter().zip(&name.words).all(|(word, is)| word.load(Relaxed) == *is);
        if !same {
            return None;
        }
        let target =
            Target { ino: self.ino.load(Relaxed), tag: rest as u32, kind: (rest >> 32) as u8 };
        fence(Acquire);
        (self.turn.load(Relaxed) == turn).then_some((target, turn))
    }

    /// Writes to it, unless somebody else does or has since this turn.
    fn write(&self, turn: u64, write: impl FnOnce(&Self)) {
        if !turn.is_multiple_of(2)
            || self.turn.compare_exchange(turn, turn + 1, Relaxed, Relaxed).is_err()
        {
            return;
        }
        fence(Release);
        write(self);
        self.turn.store(turn + 2, Release);
    }
}

/// The names that are noted.
pub(crate) struct Dentries(Box<[[Place; WAYS]]>);

impl Dentries {
    /// None yet, with places for some of a pool of so many pages.
    pub(crate) fn new(pages: u64) -> Result<Self> {
        let places = (pages / PAGES_EACH).clamp(PLACES_MIN, PLACES_MAX).next_power_of_two();
        let sets = places as usize / WAYS;
        let mut list = Vec::new();
        list.try_reserve_exact(sets)?;
        list.resize_with(sets, Default::default);
        Ok(Self(list.into_boxed_slice()))
    }

    #[inline]
    fn places(&self, name: &Name) -> &[Place] {
        let set = name.hash() as usize & (self.0.len() - 1);
        self.0.get(set).map_or(&[], |places| places)
    }

    /// What a name leads to.
    #[inline]
    pub(crate) fn get(&self, name: &Name) -> Option<Target> {
        self.places(name).iter().find_map(|place| place.look(name)).map(|(target, _)| target)
    }

    /// Notes what a name leads to. Its directory is locked.
    pub(crate) fn note(&self, name: &Name, target: &Target) {
        // That of the two that was written to less often so far.
        let turns = self.places(name).iter().map(|place| (place.turn.load(Acquire), place));
        let Some((turn, place)) = turns.min_by_key(|(turn, _)| *turn) else { return };
        place.write(turn, |place| {
            place.dir.store(name.dir, Relaxed);
            place.ino.store(target.ino, Relaxed);
            for (word, is) in place.name.iter().zip(&name.words) {
                word.store(*is, Relaxed);
            }
            let rest = u64::from(name.len) << 40 | u64::from(target.kind) << 32;
            place.rest.store(rest | u64::from(target.tag), Relaxed);
        });
    }

    /// Forgets a name. Its directory is locked for changes: who writes to a place just now does not write this name.
    pub(crate) fn forget(&self, name: &Name) {
        for place in self.places(name) {
            if let Some((_, turn)) = place.look(name) {
                place.write(turn, |place| place.rest.store(0, Relaxed));
            }
        }
    }

    /// Bytes that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    fn name(dir: Ino, text: &str) -> Name {
        Name::of(dir, text.as_bytes()).unwrap()
    }

    #[test]
    fn names_are_told_apart_by_all_that_they_are() {
        let dentries = Dentries::new(1).unwrap();
        let target = Target { ino: 77, tag: u32::MAX, kind: 0o10 };
        let long = "thirty-two bytes are the longest";
        for text in ["a", "12345678", long] {
            dentries.note(&name(5, text), &target);
            assert_eq!(dentries.get(&name(5, text)), Some(target), "{text}");
            for other in [name(6, text), name(5, &format!("{}\u{1}", &text[..text.len() - 1]))] {
                assert_eq!(dentries.get(&other), None, "{other:?}");
            }
        }
        // Bytes that are 0 are no name's, but a name is as long as it is.
        assert_ne!(Name::of(5, b"a\0"), Name::of(5, b"a"));
        assert_eq!(Name::of(5, format!("{long}.").as_bytes()), None);
        assert_eq!(Name::of(5, b""), None);
    }

    #[test]
    fn what_is_forgotten_is_not_found() {
        let dentries = Dentries::new(1).unwrap();
        let names: Vec<Name> = (0..1000u32).map(|it| name(9, &it.to_string())).collect();
        for (ino, name) in names.iter().enumerate() {
            // (Twice, so that it may be in both of its places.)
            let target = Target { ino: ino as Ino, tag: 1, kind: 4 };
            dentries.note(name, &target);
            dentries.note(name, &target);
            assert_eq!(dentries.get(name), Some(target));
            dentries.forget(name);
            assert_eq!(dentries.get(name), None);
        }
    }

    #[test]
    fn a_place_that_is_written_to_says_nothing() {
        let dentries = Dentries::new(1).unwrap();
        let (one, target) = (name(9, "one"), Target { ino: 3, tag: 1, kind: 4 });
        dentries.note(&one, &target);
        let (_, turn) = dentries.places(&one).iter().find_map(|place| place.look(&one)).unwrap();
        let place = dentries.places(&one).iter().find(|place| place.look(&one).is_some()).unwrap();
        place.write(turn, |place| {
            assert_eq!(dentries.get(&one), None);
            dentries.forget(&one);
            // Nobody else writes to it meanwhile.
            place.write(turn + 1, |_| unreachable!());
        });
        place.write(turn, |_| unreachable!());
        assert_eq!(dentries.get(&one), Some(target));
    }

    #[test]
    fn a_pool_gets_places_by_its_size() {
        let places = |pages| Dentries::new(pages).unwrap().memory_bytes() / 64;
        assert_eq!([places(1), places(1 << 14), places(1 << 30)], [64, 1024, 32 * 1024]);
    }
}
