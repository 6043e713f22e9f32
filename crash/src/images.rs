//! What the memory may hold after a power cut: some of the many images of a [`Point`].

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use lode_pmem::LINE_BYTES;

use crate::pages::Pages;
use crate::simulated::{Pending, Point, Way};
use lode_testkit::rng::Rng;

/// One image and how it came about.
#[derive(Clone, Debug)]
pub struct Image {
    /// The bytes.
    pub pages: Pages,
    /// In words, what of the pending stores is in it.
    pub kept: String,
}

/// Lines of a description that are printed.
const SHOWN: usize = 40;

/// Chooses at most `most` different images of a point: nothing and all of what is pending,
/// each line alone, all but one line, everything up to some store, and random ones.
pub fn choose(point: &Point, most: usize, rng: &mut Rng) -> Vec<Image> {
    let pending = &point.pending;
    let mut lines: Vec<u64> = Vec::new();
    let mut known = HashSet::new();
    lines.extend(pending.iter().map(|store| store.line).filter(|line| known.insert(*line)));
    let mut chosen = Chosen { point, lines: &lines, seen: HashSet::new(), images: Vec::new() };
    chosen.add(&mut |_, _| 0);
    chosen.add(&mut |_, _| u64::MAX);
    let third = (most / 3).max(1);
    for line in sample(&lines, third, rng) {
        chosen.add(&mut |_, store| if store.line == line { u64::MAX } else { 0 });
    }
    for line in sample(&lines, third, rng) {
        chosen.add(&mut |_, store| if store.line == line { 0 } else { u64::MAX });
    }
    let ends: Vec<usize> = (1..pending.len()).collect();
    for end in sample(&ends, third / 2, rng) {
        chosen.add(&mut |index, _| if index < end { u64::MAX } else { 0 });
    }
    let mut tries = 2 * most;
    while chosen.images.len() < most && tries > 0 && !pending.is_empty() {
        tries -= 1;
        let torn_in = 2 + rng.below(6);
        let mut way = || if rng.once_in(torn_in) { 2 } else { rng.below(2) };
        let ways: HashMap<u64, u64> = lines.iter().map(|line| (*line, way())).collect();
        chosen.add(&mut |_, store| random(store, ways[&store.line], rng));
    }
    chosen.images.truncate(most.max(2));
    chosen.images
}

/// The bytes of a store that get to the memory: none, all, or where it can be torn, some words.
fn random(store: &Pending, way: u64, rng: &mut Rng) -> u64 {
    match (way, store.way) {
        (0, _) => 0,
        (1, _) => u64::MAX,
        (_, Way::Cached) => {
            if rng.once_in(4) {
                0
            } else {
                u64::MAX
            }
        }
        (_, Way::Whole) => [0, u64::MAX][rng.below(2) as usize],
        (_, Way::Words) => (0..8).map(|word| (rng.below(2) * 0xFF) << (8 * word)).sum(),
    }
}

/// At most `most` of `items`, the first and the last among them.
fn sample<T: Copy>(items: &[T], most: usize, rng: &mut Rng) -> Vec<T> {
    if items.len() <= most {
        return items.to_vec();
    }
    let mut left = items.to_vec();
    let mut taken = Vec::new();
    while taken.len() < most {
        let at = match taken.len() {
            0 => 0,
            1 => left.len() - 1,
            _ => rng.below(left.len() as u64) as usize,
        };
        taken.push(left.remove(at));
    }
    taken
}

struct Chosen<'p> {
    point: &'p Point,
    lines: &'p [u64],
    seen: HashSet<u64>,
    images: Vec<Image>,
}

impl Chosen<'_> {
    /// Adds the image with those bytes of each store that `choice` names, if it is a new one.
    fn add(&mut self, choice: &mut dyn FnMut(usize, &Pending) -> u64) {
        let pending = &self.point.pending;
        // Of the cached stores to a line, none is there without those before it.
        let mut cut: HashSet<u64> = HashSet::new();
        let mut kept = Vec::with_capacity(pending.len());
        let mut pages = self.point.durable.clone();
        for (index, store) in pending.iter().enumerate() {
            let mut mask = choice(index, store);
            if store.way == Way::Cached && (mask == 0 || cut.contains(&store.line)) {
                mask = 0;
                cut.insert(store.line);
            }
            if mask != 0 {
                pages.store(store.line, store.mask & mask, &store.bytes);
            }
            kept.push(mask);
        }
        let mut hasher = DefaultHasher::new();
        let mut line_now = [0; LINE_BYTES];
        for line in self.lines {
            pages.load(*line, &mut line_now);
            line_now.hash(&mut hasher);
        }
        if self.seen.insert(hasher.finish()) {
            self.images.push(Image { pages, kept: describe(pending, &kept) });
        }
    }
}

/// The lines with stores pending, a mark for each piece: `#` is there, `.` is not.
fn describe(pending: &[Pending], kept: &[u64]) -> String {
    let mut rows: Vec<(u64, String, String)> = Vec::new();
    for (store, mask) in pending.iter().zip(kept) {
        if rows.len() > SHOWN {
            break;
        }
        let words = (0..8).filter(|word| store.mask >> (8 * word) & 0xFF != 0);
        let mark = |word: u32| if mask >> (8 * word) & 0xFF != 0 { '#' } else { '.' };
        let (how, marks) = match store.way {
            Way::Cached => ("cached", mark(0).to_string()),
            Way::Whole => ("streamed whole", mark(0).to_string()),
            Way::Words => ("streamed", words.map(mark).collect()),
        };
        let what = format!("{how} by {}", store.site);
        match rows.iter_mut().rev().take(8).find(|row| row.0 == store.line && row.1 == what) {
            Some(row) => row.2.push_str(&marks),
            None => rows.push((store.line, what, marks)),
        }
    }
    let mut text = String::new();
    for (line, what, marks) in rows.iter().take(SHOWN) {
        let _ = writeln!(text, "    line {line:#x} {marks:8} {what}");
    }
    if rows.len() > SHOWN {
        let _ = writeln!(text, "    and more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{LineStores, Simulated};
    use lode_pmem::{Line, Medium};

    fn word(pages: &Pages, at: u64) -> u64 {
        let mut bytes = [0; 8];
        pages.load(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn cached_stores_of_a_line_keep_their_order_and_streamed_words_do_not() {
        let medium = Simulated::new(Pages::new(4096), LineStores::Words);
        for value in 1..4 {
            medium.store_word(&mut (), value * 8, value);
            medium.stream_word(&mut (), 64 + value * 8, value);
        }
        let images = choose(&medium.point(), 200, &mut Rng::new(1));
        let there = |image: &Image, at: u64| [1, 2, 3].map(|v| word(&image.pages, at + v * 8) == v);
        let mut cached = HashSet::new();
        let mut streamed = HashSet::new();
        for image in &images {
            cached.insert(there(image, 0));
            streamed.insert(there(image, 64));
        }
        assert_eq!((cached.len(), streamed.len()), (4, 8));
    }

    #[test]
    fn a_line_stored_in_one_piece_is_there_or_not() {
        let medium = Simulated::new(Pages::new(4096), LineStores::Whole);
        medium.store_line(&mut (), 0, &Line([1; 64]));
        medium.store_line(&mut (), 64, &Line([2; 64]));
        let images = choose(&medium.point(), 100, &mut Rng::new(1));
        assert_eq!(images.len(), 4);
    }
}
