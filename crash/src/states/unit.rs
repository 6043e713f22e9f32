//! What each place of the memory may hold after a power cut.
//!
//! A unit is a run of lines whose content is decided as one, and independently of all other units:
//! a line (`adr`, `eadr`) or a sector of 512 bytes (`file`). Alternative 0 is what is durable for
//! certain, the next ones have whole stores, all of them in one; the rest torn ones.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use lode_pmem::LINE_BYTES;

use super::Choice;
use crate::region::{Pages, Pending, Point, Profile, Stored, Way};

const LINE: u64 = LINE_BYTES as u64;
/// Bytes of a sector that a disk writes in one piece.
const SECTOR: u64 = 512;
/// Versions of a unit that are told apart besides none and all; beyond it some are left out.
const VERSIONS_MAX: usize = 30;

/// Units of a point that are torn.
const TORN_MAX: usize = 256;

/// Words of a line that are there, a bit each: the first ones.
const TORN_IN_ORDER: [u8; 7] = [0x01, 0x03, 0x07, 0x0F, 0x1F, 0x3F, 0x7F];
/// All but one, one alone, the first ones, and patterns.
const TYPICAL_TEARS: [u8; 25] = [
    0xFE, 0xFD, 0xFB, 0xF7, 0xEF, 0xDF, 0xBF, 0x7F, 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40,
    0x80, //
    0x03, 0x07, 0x0F, 0x1F, 0x3F, 0x55, 0xAA, 0xF0, 0x3C,
];

/// One content of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    bytes: Vec<u8>,
    /// Which of the unit's stores are in it: a bit for each 8-byte word, store by store.
    pub kept: Vec<u8>,
}

/// A place that may hold one of several contents.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Offset.
    pub at: u64,
    /// Its stores: positions in the point's pending stores.
    pub stores: Vec<usize>,
    /// What it may hold.
    pub alternatives: Vec<Content>,
    /// How many of these have whole stores only.
    pub whole: usize,
    /// The one that has all stores.
    pub all: u16,
    /// Its lines with metadata among these stores, a bit each.
    metadata: u8,
    /// Stores of a whole line to one that can't be loaded, by their places among `stores`, with that line.
    renewing: Vec<(usize, u64)>,
}

impl Unit {
    /// The lines that an alternative makes good which could not be loaded: a store of the whole line is in it, untorn.
    fn renewed_by(&self, alternative: u16) -> impl Iterator<Item = u64> + '_ {
        let kept = &self.alternatives[usize::from(alternative)].kept;
        self.renewing.iter().filter(|(place, _)| kept[*place] == 0xFF).map(|(_, line)| *line)
    }
}

/// The units of a point.
#[derive(Clone, Debug)]
pub struct Units {
    /// In the order of their offsets.
    pub units: Vec<Unit>,
    bytes_each: u64,
    /// For prefixes in the order of the stores: which unit a store changes, and to what.
    /// `None` where it changes nothing.
    pub steps: Vec<Option<(u32, u16)>>,
}

/// The units of a point under a profile, with typical ways to tear each, or with all. (All begin with the
/// typical ones: a choice of these is the same with both.)
pub fn units_of(point: &Point, profile: Profile, all_tears: bool) -> Units {
    let bytes_each = if profile == Profile::File { SECTOR } else { LINE };
    let mut by_place: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, store) in point.pending.iter().enumerate() {
        by_place.entry(store.line - store.line % bytes_each).or_default().push(index);
    }
    let mut units = Vec::new();
    let mut steps = vec![None; point.pending.len()];
    // Of very many units, not all are torn.
    let torn_every = by_place.len().div_ceil(TORN_MAX).max(1);
    for (at, stores) in by_place {
        let mut unit = Building::new(point, at, bytes_each, stores);
        let states = unit.prefixes();
        if profile == Profile::Adr {
            unit.subsets();
        }
        unit.unit.whole = unit.unit.alternatives.len();
        if unit.unit.whole == 1 {
            continue;
        }
        for (store, state) in unit.unit.stores.iter().zip(states) {
            steps[*store] = Some((units.len() as u32, state));
        }
        if profile != Profile::File && units.len() % torn_every == 0 {
            unit.torn(profile, &TYPICAL_TEARS);
            if all_tears && profile == Profile::Adr {
                let all: Vec<u8> = (1..u8::MAX).collect();
                unit.torn(profile, &all);
            }
        }
        units.push(unit.unit);
    }
    Units { units, bytes_each, steps }
}

impl Units {
    /// Offsets of all lines of all units.
    pub fn lines(&self) -> impl Iterator<Item = u64> + '_ {
        let lines = self.bytes_each / LINE;
        self.units.iter().flat_map(move |unit| (0..lines).map(move |line| unit.at + line * LINE))
    }

    /// The unit that holds the line at `at`.
    pub fn unit_of(&self, at: u64) -> Option<usize> {
        let place = at - at % self.bytes_each;
        self.units.binary_search_by_key(&place, |unit| unit.at).ok()
    }

    /// The choice with an alternative for each unit; `None` if it names one that is not there.
    pub fn fit(&self, choice: &Choice) -> Option<Choice> {
        let mut fitted = choice.clone();
        fitted.0.resize(self.units.len().max(choice.0.len()), 0);
        let there = |(index, one): (usize, &u16)| {
            self.units.get(index).is_some_and(|unit| usize::from(*one) < unit.alternatives.len())
        };
        fitted.0.iter().enumerate().all(there).then_some(fitted)
    }

    /// Puts what a choice says over what is durable.
    pub fn image(&self, durable: &Pages, choice: &[u16]) -> Pages {
        let mut pages = durable.clone();
        for (unit, alternative) in self.units.iter().zip(choice) {
            if *alternative == 0 {
                continue;
            }
            let content = &unit.alternatives[usize::from(*alternative)].bytes;
            for (index, line) in content.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
                let is_data = unit.metadata >> index & 1 == 0;
                let what = if is_data { Stored::Data } else { Stored::Metadata };
                pages.store(unit.at + index as u64 * LINE, u64::MAX, line, what);
            }
            unit.renewed_by(*alternative).for_each(|line| pages.renew(line));
        }
        pages
    }

    /// How many different images there are of whole stores, if that is a small number.
    pub fn whole_images(&self) -> f64 {
        self.units.iter().map(|unit| unit.whole as f64).product()
    }
}

/// A unit whose alternatives are being found.
struct Building<'p> {
    pending: &'p [Pending],
    base: Vec<u8>,
    /// What is being made.
    made: Vec<u8>,
    unit: Unit,
}

impl<'p> Building<'p> {
    fn new(point: &'p Point, at: u64, bytes_each: u64, stores: Vec<usize>) -> Self {
        let mut base = vec![0; bytes_each as usize];
        point.durable.load(at, &mut base);
        let none = Content { bytes: base.clone(), kept: vec![0; stores.len()] };
        let lines = stores.iter().map(|store| &point.pending[*store]);
        let metadata = lines.filter(|store| store.site.stores() == Stored::Metadata);
        let metadata = metadata.fold(0, |all, store| all | 1 << ((store.line - at) / LINE));
        let renews = |store: &Pending| {
            let line = store.line..store.line + LINE;
            store.mask == u64::MAX && point.durable.first_bad(line).is_some()
        };
        let named = stores.iter().map(|store| &point.pending[*store]).enumerate();
        let renewing = named.filter(|(_, store)| renews(store));
        let renewing = renewing.map(|(place, store)| (place, store.line)).collect();
        let unit =
            Unit { at, stores, alternatives: vec![none], whole: 1, all: 0, metadata, renewing };
        let mut building = Self { pending: &point.pending, base, made: Vec::new(), unit };
        building.unit.all = building.add(|_| 0xFF);
        building
    }

    /// Adds the alternative with these words of each store; returns its number.
    fn add(&mut self, kept: impl Fn(usize) -> u8) -> u16 {
        self.made.clear();
        self.made.extend_from_slice(&self.base);
        for (place, index) in self.unit.stores.iter().enumerate() {
            let (store, kept) = (&self.pending[*index], kept(place));
            let from = (store.line - self.unit.at) as usize;
            let words = self.made[from..from + LINE_BYTES].as_chunks_mut::<8>().0;
            let stored = store.bytes.as_chunks::<8>().0;
            for (word, (made, stored)) in words.iter_mut().zip(stored).enumerate() {
                let mask = (store.mask >> (8 * word)) as u8;
                if mask == 0 || kept >> word & 1 == 0 {
                    continue;
                }
                if mask == u8::MAX {
                    *made = *stored;
                    continue;
                }
                let named = made.iter_mut().zip(stored).enumerate();
                for (_, (made, stored)) in named.filter(|(byte, _)| mask >> byte & 1 == 1) {
                    *made = *stored;
                }
            }
        }
        let known = self.unit.alternatives.iter().position(|one| one.bytes == self.made);
        known.unwrap_or_else(|| {
            let kept = (0..self.unit.stores.len()).map(kept).collect();
            self.unit.alternatives.push(Content { bytes: self.made.clone(), kept });
            self.unit.alternatives.len() - 1
        }) as u16
    }

    /// What the unit holds after each of its stores; of very many, the same for neighbours.
    fn prefixes(&mut self) -> Vec<u16> {
        let count = self.unit.stores.len();
        let every = count.div_ceil(VERSIONS_MAX).max(1);
        let mut states = Vec::with_capacity(count);
        let mut last = 0;
        for end in 1..=count {
            if end % every == 0 || end == count {
                last = self.add(|place| if place < end { 0xFF } else { 0 });
            }
            states.push(last);
        }
        states
    }

    /// Streamed stores in any subset, cached ones in order.
    fn subsets(&mut self) {
        let stores = self.unit.stores.clone();
        let cached = |index: &usize| self.pending[*index].way == Way::Cached;
        let streamed: Vec<usize> =
            (0..stores.len()).filter(|place| !cached(&stores[*place])).collect();
        let in_order: Vec<usize> =
            (0..stores.len()).filter(|place| cached(&stores[*place])).collect();
        let all = streamed.len() < 6 && (in_order.len() + 1) << streamed.len() <= 4 * VERSIONS_MAX;
        if streamed.is_empty() || !all {
            return self.each_alone(&streamed);
        }
        for subset in 0..1u32 << streamed.len() {
            for prefix in 0..=in_order.len() {
                let mut kept = vec![0; stores.len()];
                for place in &in_order[..prefix] {
                    kept[*place] = 0xFF;
                }
                for (bit, place) in streamed.iter().enumerate() {
                    if subset >> bit & 1 == 1 {
                        kept[*place] = 0xFF;
                    }
                }
                self.add(|place| kept[place]);
            }
        }
    }

    /// Of many streamed stores: each alone, and all but one.
    fn each_alone(&mut self, streamed: &[usize]) {
        for place in streamed {
            let only = |index: usize| if index == *place { 0xFF } else { 0 };
            self.add(only);
            self.add(|index| !only(index));
        }
    }

    /// Stores of several words, torn between words: in order, and where it is streamed, in these ways.
    fn torn(&mut self, profile: Profile, masks: &[u8]) {
        let stores = self.unit.stores.clone();
        let masks = if profile == Profile::Adr { masks } else { &TORN_IN_ORDER };
        for (place, index) in stores.iter().enumerate() {
            let store = &self.pending[*index];
            let words = (0..8).filter(|word| store.mask >> (8 * word) & 0xFF != 0).count();
            if words < 2 || store.way == Way::Whole {
                continue;
            }
            for &mask in masks {
                // Later ones are there or not; under eADR they are not.
                let later: &[u8] = if profile == Profile::Adr { &[0xFF, 0] } else { &[0] };
                for &later in &later[..later.len().min(stores.len() - place)] {
                    let kept = |other: usize| match other.cmp(&place) {
                        Ordering::Less => 0xFF,
                        Ordering::Equal => mask,
                        Ordering::Greater => later,
                    };
                    self.add(kept);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Rules, Simulated};
    use lode_pmem::{Line, Medium};

    fn contents(units: &Units, unit: usize, upto: usize) -> Vec<Vec<u64>> {
        let words = |bytes: &[u8]| {
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let mut all: Vec<Vec<u64>> = units.units[unit].alternatives[..upto]
            .iter()
            .map(|content| words(&content.bytes[..24]))
            .collect();
        all.sort();
        all
    }

    fn point(profile: Profile, run: impl FnOnce(&Simulated)) -> Point {
        let rules = Rules { profile, ..Rules::default() };
        let medium = Simulated::new(Pages::new(8192), rules);
        run(&medium);
        medium.point()
    }

    #[test]
    fn cached_stores_of_a_line_keep_their_order_and_streamed_words_do_not() {
        let point = point(Profile::Adr, |medium| {
            for value in 0..3 {
                medium.store_word(&mut (), value * 8, value + 1);
                medium.stream_word(&mut (), 64 + value * 8, value + 1);
            }
        });
        let units = units_of(&point, Profile::Adr, false);
        let cached = vec![vec![0, 0, 0], vec![1, 0, 0], vec![1, 2, 0], vec![1, 2, 3]];
        assert_eq!(contents(&units, 0, units.units[0].alternatives.len()), cached);
        assert_eq!(units.units[1].whole, 8);
        assert_eq!(units.whole_images(), 32.0);
    }

    #[test]
    fn a_streamed_line_is_torn_at_words_and_a_whole_one_is_not() {
        for whole_lines in [false, true] {
            let rules = Rules { whole_lines, ..Rules::default() };
            let medium = Simulated::new(Pages::new(4096), rules);
            medium.store_line(&mut (), 64, &Line([1; 64]));
            let units = units_of(&medium.point(), Profile::Adr, false);
            assert_eq!(units.units[0].whole, 2);
            assert_eq!(units.units[0].alternatives.len() > 2, !whole_lines);
        }
    }

    #[test]
    fn all_ways_to_tear_a_line_begin_with_the_typical_ones() {
        let point = point(Profile::Adr, |medium| {
            medium.store_line(&mut (), 64, &Line([1; 64]));
            medium.store_line(&mut (), 64, &Line([2; 64]));
        });
        let [some, all] =
            [false, true].map(|all| units_of(&point, Profile::Adr, all).units.remove(0));
        assert_eq!(some.alternatives[..], all.alternatives[..some.alternatives.len()]);
        // Whole: nothing, one, the other. (Both is the other.)
        assert_eq!((all.whole, some.whole), (3, 3));
        // Words of the first alone, and words of the second over the first.
        assert_eq!(all.alternatives.len(), 3 + 2 * 254);
    }

    #[test]
    fn a_sector_has_every_version_and_is_not_torn() {
        let point = point(Profile::File, |medium| {
            medium.store_word(&mut (), 512, 1);
            medium.store_word(&mut (), 640, 2);
            medium.store_word(&mut (), 512, 3);
            medium.store_word(&mut (), 1024, 4);
        });
        let units = units_of(&point, Profile::File, false);
        assert_eq!(units.units.len(), 2);
        assert_eq!((units.units[0].whole, units.units[0].alternatives.len()), (4, 4));
        assert_eq!(units.unit_of(512 + 448), Some(0));
        let image = units.image(&point.durable, &[1, 0]);
        let mut word = [0; 8];
        image.load(512, &mut word);
        assert_eq!(word, 3u64.to_le_bytes());
    }
}
