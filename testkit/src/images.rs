//! What the memory may hold after a power cut: some of the many images of a [`Point`].

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::pages::Pages;
use crate::rng::Rng;
use crate::simulated::{Pending, Point};

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
    for store in pending {
        if lines.last() != Some(&store.line) && !lines.contains(&store.line) {
            lines.push(store.line);
        }
    }
    let mut chosen = Chosen { point, seen: HashSet::new(), images: Vec::new() };
    chosen.add(vec![false; pending.len()]);
    chosen.add(vec![true; pending.len()]);
    let third = (most / 3).max(1);
    for line in sample(&lines, third, rng) {
        chosen.add(pending.iter().map(|store| store.line == line).collect());
    }
    for line in sample(&lines, third, rng) {
        chosen.add(pending.iter().map(|store| store.line != line).collect());
    }
    let all: Vec<usize> = (1..pending.len()).collect();
    for end in sample(&all, third / 2, rng) {
        chosen.add((0..pending.len()).map(|index| index < end).collect());
    }
    let mut tries = 2 * most;
    while chosen.images.len() < most && tries > 0 && pending.len() > 1 {
        tries -= 1;
        chosen.add(random(pending, &lines, rng));
    }
    chosen.images.truncate(most.max(2));
    chosen.images
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

/// Each line wholly there, not there, or there in part.
fn random(pending: &[Pending], lines: &[u64], rng: &mut Rng) -> Vec<bool> {
    let torn_in = 2 + rng.below(6);
    let ways: Vec<u64> =
        lines.iter().map(|_| if rng.once_in(torn_in) { 2 } else { rng.below(2) }).collect();
    let mut kept = Vec::with_capacity(pending.len());
    for store in pending {
        let line = lines.iter().position(|&line| line == store.line).unwrap_or(0);
        kept.push(match ways[line] {
            2 if store.cached => !rng.once_in(4),
            2 => rng.once_in(2),
            way => way == 1,
        });
    }
    kept
}

struct Chosen<'p> {
    point: &'p Point,
    seen: HashSet<u64>,
    images: Vec<Image>,
}

impl Chosen<'_> {
    fn add(&mut self, mut kept: Vec<bool>) {
        let pending = &self.point.pending;
        // Of the cached stores to a line, none is there without those before it.
        let mut cut: HashSet<u64> = HashSet::new();
        for (store, keep) in pending.iter().zip(&mut kept) {
            if store.cached {
                *keep &= !cut.contains(&store.line);
                if !*keep {
                    cut.insert(store.line);
                }
            }
        }
        let mut pages = self.point.durable.clone();
        for (store, _) in pending.iter().zip(&kept).filter(|(_, keep)| **keep) {
            pages.store(store.line, store.mask, &store.bytes);
        }
        let mut hasher = DefaultHasher::new();
        let mut line_now = [0; 64];
        for store in pending {
            pages.load(store.line, &mut line_now);
            line_now.hash(&mut hasher);
        }
        if self.seen.insert(hasher.finish()) {
            self.images.push(Image { pages, kept: describe(pending, &kept) });
        }
    }
}

/// The lines with stores pending, a mark for each store: `#` is there, `.` is not.
fn describe(pending: &[Pending], kept: &[bool]) -> String {
    let mut rows: Vec<(u64, String, String)> = Vec::new();
    for (store, keep) in pending.iter().zip(kept) {
        let mark = if *keep { '#' } else { '.' };
        let how = if store.cached { "cached" } else { "streamed" };
        let what = format!("{how} by {}", store.site);
        match rows.iter_mut().rev().take(8).find(|row| row.0 == store.line && row.1 == what) {
            Some(row) => row.2.push(mark),
            None => rows.push((store.line, what, mark.to_string())),
        }
    }
    let mut text = String::new();
    for (line, what, marks) in rows.iter().take(SHOWN) {
        let _ = writeln!(text, "    line {line:#x} {marks:8} {what}");
    }
    if rows.len() > SHOWN {
        let _ = writeln!(text, "    and {} more", rows.len() - SHOWN);
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
