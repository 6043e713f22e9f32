//! What the space promises, tried against a plain model.

#![allow(clippy::unwrap_used, clippy::panic)]

extern crate std;

mod chunks;
mod claims;
mod flips;
mod twins;

use super::*;
use crate::error::Corruption;
use crate::gauges::EXTENT_SIZES;
use std::vec;
use std::vec::Vec;

/// A host with real locks and nothing else.
pub(crate) struct TestHost;

impl Host for TestHost {
    type Mutex = parking_lot::RawMutex;
    type RwLock = parking_lot::RawRwLock;

    fn now_ns(&self) -> i64 {
        0
    }
    fn cpu(&self) -> usize {
        0
    }
    fn cpus(&self) -> usize {
        1
    }
    fn random(&self) -> u64 {
        4
    }
    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..jobs).for_each(job);
    }
}

/// A source of numbers that look random and are the same in each run.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

const CHUNK: u64 = 512;
const GIANT: u64 = 512 * 512;

fn run(page: u64, pages: u64) -> Run {
    Run { page, pages }
}

/// A space with all of `first..end` free.
fn full(lanes: usize, first: u64, end: u64) -> Space<TestHost> {
    let space = Space::new(lanes, first, end, 0).unwrap();
    space.add_free(run(first, end - first)).unwrap();
    space
}

fn is_corrupt<T>(result: Result<T>, page: u64) -> bool {
    let at = page * PAGE_BYTES;
    matches!(result, Err(Error::Corrupt(Corruption { what: "page freed twice", at: a, .. })) if a == at)
}

fn free_runs(space: &Space<TestHost>) -> Vec<Run> {
    let mut runs = Vec::new();
    space
        .for_each_free(&mut |run| {
            runs.push(run);
            Ok(())
        })
        .unwrap();
    runs
}

/// The runs of `true` in a model.
fn model_runs(free: &[bool]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for page in (0..free.len()).filter(|&page| free[page]).map(|page| page as u64) {
        match runs.last_mut() {
            Some(last) if last.end() == page => last.pages += 1,
            _ => runs.push(run(page, 1)),
        }
    }
    runs
}

fn verify(space: &Space<TestHost>) {
    for region in &space.regions {
        let chunks = region.chunks.lock();
        chunks.verify();
        assert_eq!(chunks.free(), region.free.load(Relaxed));
    }
}

#[test]
fn regions_follow_the_size_of_the_pool() {
    let gib = GIANT;
    for (lanes, first, end, count) in [
        (16, 0, 10, 1),
        (16, 0, 0, 1),
        (16, 7, gib, 1),
        (16, 7, 4 * gib - 1, 1),
        (16, 7, 4 * gib, 2),
        (16, 7, 64 * gib, 16),
        (1, 7, 64 * gib, 1),
        (0, 7, 64 * gib, 1),
        (3, 7, 64 * gib, 3),
    ] {
        let space = Space::<TestHost>::new(lanes, first, end, 0).unwrap();
        assert_eq!(space.regions.len(), count, "{lanes} lanes, {end} pages");
        assert_eq!(space.region_pages % gib, 0);
        assert!(space.base + space.region_pages * count as u64 >= end);
        assert_eq!(space.free_pages(), 0);
        assert_eq!(space.take(0, 1, PageClass::Small), Err(Error::NoSpace));
    }
    assert!(matches!(Space::<TestHost>::new(1, 5, 4, 0), Err(Error::Invalid)));
    assert!(matches!(Space::<TestHost>::new(1, 0, u64::MAX, 0), Err(Error::Invalid)));
}

/// A space beside a plain model of it, and what was taken of both.
struct Traffic {
    space: Space<TestHost>,
    free: Vec<bool>,
    held: Vec<Run>,
    dice: Dice,
}

impl Traffic {
    /// Takes something: exactly, aligned, or as much as there is.
    fn take(&mut self, lane: usize) {
        let dice = &mut self.dice;
        let huge = dice.roll(50) == 0;
        let class = if huge { PageClass::Huge } else { PageClass::Small };
        let pages = match dice.roll(10) {
            _ if huge => CHUNK * (1 + dice.roll(2)),
            0 => 1 + dice.roll(2000),
            1..=3 => 1 + dice.roll(40),
            _ => 1,
        };
        let some = dice.roll(3) == 0;
        let taken = match some {
            true => self.space.take_some(lane, pages, Near::ANY),
            false => self.space.take(lane, pages, class),
        };
        let Ok(run) = taken else {
            assert_eq!(taken, Err(Error::NoSpace));
            let runs = model_runs(&self.free);
            let longest = runs.iter().map(|run| run.pages).max().unwrap_or(0);
            assert!(huge || longest < pages);
            assert!(!some || longest == 0);
            return;
        };
        if some {
            assert!((1..=pages).contains(&run.pages));
        } else {
            assert_eq!((run.pages, run.page % class.pages()), (pages, 0));
        }
        for page in &mut self.free[run.page as usize..run.end() as usize] {
            assert!(*page, "handed out twice");
            *page = false;
        }
        self.held.push(run);
    }

    /// Gives a run, or the end of one, back; then tries it again.
    fn give(&mut self, lane: usize) {
        if self.held.is_empty() {
            return;
        }
        let dice = &mut self.dice;
        let place = dice.roll(self.held.len() as u64) as usize;
        let mut run = self.held.swap_remove(place);
        if run.pages > 1 && dice.roll(2) == 0 {
            let pages = 1 + dice.roll(run.pages - 1);
            self.held.push(Run { pages, ..run });
            run = Run { page: run.page + pages, pages: run.pages - pages };
        }
        self.space.give(lane, run, Use::Data).unwrap();
        self.free[run.page as usize..run.end() as usize].fill(true);
        let page = run.page + dice.roll(run.pages);
        assert!(is_corrupt(self.space.give(lane, Run { page, pages: 1 }, Use::Data), page));
    }

    /// Asserts that space and model agree.
    fn compare(&self) {
        let free = self.free.iter().filter(|&&free| free).count() as u64;
        assert_eq!(self.space.free_pages(), free);
        assert_eq!(free_runs(&self.space), model_runs(&self.free));
        assert_eq!(self.space.free_pages(), free);
        verify(&self.space);
    }
}

#[test]
fn random_traffic_matches_a_plain_model() {
    for seed in 1..=6 {
        let (first, end) = (9, 40 * CHUNK + 77);
        let space = full(1 + seed as usize % 4, first, end);
        let mut free = vec![false; end as usize];
        free[first as usize..].fill(true);
        let mut traffic = Traffic { space, free, held: Vec::new(), dice: Dice(seed * 7919) };
        for step in 0..20_000u64 {
            let lane = traffic.dice.roll(9) as usize;
            // Waves, so that the space gets full and empty.
            let takes = if step / 2000 % 2 == 0 { 65 } else { 35 };
            if traffic.dice.roll(100) < takes {
                traffic.take(lane);
            } else {
                traffic.give(lane);
            }
            if step % 997 == 0 {
                traffic.compare();
            }
        }
        for run in traffic.held {
            traffic.space.give(0, run, Use::Data).unwrap();
        }
        assert_eq!(free_runs(&traffic.space), [run(first, end - first)]);
        assert_eq!(traffic.space.free_pages(), end - first);
        verify(&traffic.space);
    }
}

#[test]
fn single_pages_leave_chunks_whole() {
    let chunks = 64;
    let space = full(4, 0, chunks * CHUNK);
    let whole = |space: &Space<TestHost>| {
        space.settle();
        space.regions[0].chunks.lock().chunk_pages() / CHUNK
    };
    let half = (chunks * CHUNK / 2) as usize;
    let mut dice = Dice(42);
    let mut held = Vec::new();
    for _ in 0..half {
        held.push(space.take(0, 1, PageClass::Small).unwrap());
    }
    for _ in 0..200_000 {
        let lane = dice.roll(4) as usize;
        if held.len() < half && (held.len() < half / 2 || dice.roll(2) == 0) {
            held.push(space.take(lane, 1, PageClass::Small).unwrap());
        } else {
            space
                .give(lane, held.swap_remove(dice.roll(held.len() as u64) as usize), Use::Data)
                .unwrap();
        }
    }
    // Half of the chunks were never needed, but for what waits in four magazines.
    let left = whole(&space);
    assert!(left >= chunks / 2 - 1, "{left} whole chunks of {chunks} at half fill");
    verify(&space);
    for run in held {
        space.give(1, run, Use::Data).unwrap();
    }
    assert_eq!(whole(&space), chunks);
}

#[test]
fn chunks_return_when_wholly_free_and_magazines_are_settled_for_them() {
    let space = full(2, 0, 4 * CHUNK);
    let mut pages = Vec::new();
    for _ in 0..4 * CHUNK {
        pages.push(space.take(0, 1, PageClass::Small).unwrap());
    }
    assert_eq!(space.take(0, CHUNK, PageClass::Huge), Err(Error::NoSpace));
    for run in pages {
        space.give((run.page % 2) as usize, run, Use::Data).unwrap();
    }
    // The last of them are still in magazines.
    assert_eq!(space.take(1, 4 * CHUNK, PageClass::Huge), Ok(run(0, 4 * CHUNK)));
    assert_eq!(space.free_pages(), 0);
}

#[test]
fn magazine_gives_ascending_pages() {
    let space = full(2, 100, 1000);
    for page in 0..200 {
        assert_eq!(space.take(1, 1, PageClass::Small), Ok(run(100 + page, 1)));
    }
    space.give(1, run(150, 1), Use::Data).unwrap();
    assert_eq!(space.take(1, 1, PageClass::Small), Ok(run(150, 1)), "last in, first out");
}

#[test]
fn a_page_at_hand_is_free_for_all_and_counted() {
    let space = full(2, 10, 13);
    let held = [(); 3].map(|()| space.take(0, 1, PageClass::Small).unwrap());
    assert_eq!(space.take_one(1, Use::Log), Err(Error::NoSpace));
    space.give(0, held[1], Use::Data).unwrap();
    assert_eq!((space.free_pages(), free_runs(&space)), (1, std::vec![held[1]]));
    assert!(space.has(1) && !space.has(2));
    // Not in one piece with anything, nor where it would be taken by its number.
    assert_eq!(space.take_at(1, held[1]), Ok(false));
    assert_eq!(space.take_one(1, Use::Log), Ok(held[1]), "another lane's log takes it");
    assert_eq!(space.take_one(0, Use::Data), Err(Error::NoSpace));
    for (lane, run) in held.into_iter().take(2).enumerate() {
        space.give(lane, run, Use::Data).unwrap();
    }
    assert_eq!(space.free_pages(), 2);
    assert_eq!(space.take(1, 2, PageClass::Small), Ok(run(10, 2)), "two lanes' in one piece");
    assert_eq!(space.free_pages(), 0);
}

#[test]
fn dry_lanes_steal_from_magazines() {
    let space = full(3, 10, 50);
    let mut seen = [false; 50];
    let mut note = |run: Run| assert!(!core::mem::replace(&mut seen[run.page as usize], true));
    // Lane 0 loads 32 of 40 pages, lane 1 the rest.
    note(space.take(0, 1, PageClass::Small).unwrap());
    note(space.take(1, 1, PageClass::Small).unwrap());
    assert_eq!(space.regions[0].free.load(Relaxed), 0);
    for left in (0..38).rev() {
        note(space.take(2, 1, PageClass::Small).unwrap());
        assert_eq!(space.free_pages(), left);
    }
    for lane in 0..3 {
        assert_eq!(space.take(lane, 1, PageClass::Small), Err(Error::NoSpace));
        assert_eq!(space.take_some(lane, 9, Near::ANY), Err(Error::NoSpace));
    }
    space.give(0, run(20, 1), Use::Data).unwrap();
    space.give(0, run(21, 1), Use::Data).unwrap();
    assert_eq!(space.take_some(2, 9, Near::ANY), Ok(run(20, 2)), "magazines are settled for it");
}

#[test]
fn more_of_a_file_lies_behind_what_it_has_or_where_there_is_room_for_it() {
    let space = full(1, 16, 10 * CHUNK);
    let all = space.take(0, 9 * CHUNK, PageClass::Small).unwrap();
    while space.take_some(0, CHUNK, Near::ANY).is_ok() {}
    let free = [run(all.page + 8, 4), run(all.page + 16, 20), run(all.page + 40, 40)];
    free.iter().for_each(|free| space.give(0, *free, Use::Data).unwrap());
    let more = |behind, room| space.take_some(0, 4, Near { behind, room });
    assert_eq!(more(0, 16), Ok(run(all.page + 16, 4)), "room enough, and no more than that");
    assert_eq!(more(all.page + 20, 16), Ok(run(all.page + 20, 4)), "behind what it has");
    assert_eq!(more(all.page + 12, 64), Ok(run(all.page + 40, 4)), "that is taken: the most room");
    assert_eq!(space.take_some(0, 4, Near::ANY), Ok(run(all.page + 8, 4)), "where nothing is left");
    assert_eq!(more(all.page + 79, 0), Ok(run(all.page + 24, 4)), "one page behind is too few");
    assert_eq!(space.take_some(0, 9, Near { behind: 0, room: 64 }).map(|run| run.pages), Ok(9));
}

#[test]
fn freeing_twice_changes_nothing() {
    let space = full(2, 16, 10 * CHUNK);
    let big = space.take(0, 600, PageClass::Small).unwrap();
    let one = space.take(0, 1, PageClass::Small).unwrap();
    let hole = big.page + 300;
    space.give(0, run(hole, 1), Use::Data).unwrap();
    let before = (space.free_pages(), free_runs(&space));
    assert!(is_corrupt(space.give(0, big, Use::Data), hole));
    assert!(is_corrupt(space.give(1, run(hole, 1), Use::Data), hole));
    assert!(is_corrupt(space.add_free(run(big.page, 400)), hole));
    assert_eq!((space.free_pages(), free_runs(&space)), before);
    let other = space.take(0, 1, PageClass::Small).unwrap();
    space.give(0, one, Use::Data).unwrap();
    assert!(is_corrupt(space.give(1, one, Use::Data), one.page), "seen at hand too");
    space.give(0, other, Use::Data).unwrap();
    assert!(is_corrupt(space.give(1, one, Use::Data), one.page), "seen in a magazine too");
    space.give(0, run(big.page, 300), Use::Data).unwrap();
    space.give(0, run(hole + 1, 299), Use::Data).unwrap();
    assert_eq!(free_runs(&space), [run(16, 10 * CHUNK - 16)]);
    verify(&space);
}

#[test]
fn freeing_outside_the_pool_changes_nothing() {
    let space = full(2, 16, 10 * CHUNK);
    let end = 10 * CHUNK;
    let held = space.take(0, 9 * CHUNK, PageClass::Small).unwrap();
    let before = (space.free_pages(), free_runs(&space));
    for (page, pages) in [
        (15, 1),
        (0, 20),
        (end, 1),
        (end - 1, 2),
        (held.page, end),
        (held.page, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
    ] {
        assert!(matches!(space.give(0, run(page, pages), Use::Data), Err(Error::Corrupt(_))));
        assert!(matches!(space.add_free(run(page, pages)), Err(Error::Corrupt(_))));
    }
    assert_eq!((space.free_pages(), free_runs(&space)), before);
    verify(&space);
}

#[test]
fn impossible_requests_are_refused() {
    let space = full(2, 16, 10 * CHUNK);
    for class in [PageClass::Small, PageClass::Huge, PageClass::Giant] {
        assert_eq!(space.take(0, 0, class), Err(Error::Invalid));
        assert_eq!(space.take(0, u64::MAX, class), Err(Error::NoSpace));
        assert_eq!(space.take(0, 10 * CHUNK, class), Err(Error::NoSpace));
    }
    assert_eq!(space.take_some(0, 0, Near::ANY), Err(Error::Invalid));
    assert_eq!(space.take_some(usize::MAX, u64::MAX, Near::ANY).unwrap().pages, 9 * CHUNK);
}

#[test]
fn runs_cross_region_borders_only_when_freed() {
    let border = 2 * GIANT;
    let space = full(4, 1, 8 * GIANT);
    assert_eq!(space.regions.len(), 4);
    assert_eq!(space.region_pages, border);
    assert_eq!(free_runs(&space), [run(1, 8 * GIANT - 1)]);
    let homes: Vec<u64> =
        (0..8).map(|lane| space.take(lane, 1, PageClass::Small).unwrap().page / border).collect();
    assert_eq!(homes, [0, 1, 2, 3, 0, 1, 2, 3]);
    let giant = space.take(1, GIANT, PageClass::Giant).unwrap();
    assert_eq!(giant, run(3 * GIANT, GIANT), "the other giant of region 1 was broken up");
    let two = space.take(1, 2 * GIANT, PageClass::Giant);
    assert_eq!(two, Err(Error::NoSpace), "each region has lost a page");
    space.give(2, giant, Use::Data).unwrap();
    let high = space.take(3, GIANT, PageClass::Giant).unwrap();
    assert_eq!(high.page / border, 3);
    space.give(0, high, Use::Data).unwrap();
    assert_eq!(space.free_pages(), 8 * GIANT - 1 - 8);
    verify(&space);

    let space = Space::<TestHost>::new(4, 1, 8 * GIANT, 0).unwrap();
    space.give(0, run(border - 5, 10), Use::Data).unwrap();
    assert_eq!(space.free_pages(), 10);
    assert_eq!(free_runs(&space), [run(border - 5, 10)]);
    assert_eq!(space.take(0, 6, PageClass::Small), Err(Error::NoSpace));
    assert_eq!(space.take(3, 5, PageClass::Small), Ok(run(border, 5)));
}

#[test]
fn dry_home_region_falls_back_to_any_other() {
    let border = 2 * GIANT;
    let space = Space::<TestHost>::new(4, 0, 8 * GIANT, 0).unwrap();
    space.add_free(run(2 * border + 8, 3)).unwrap();
    space.add_free(run(3 * border + 8, 100)).unwrap();
    space.add_free(run(border + 8, 40)).unwrap();
    assert_eq!(space.take(0, 1, PageClass::Small), Ok(run(3 * border + 8, 1)), "the fullest");
    // 31 more pages of that region are in the magazine now: it is emptied for a longer run.
    assert_eq!(space.take(0, 90, PageClass::Small), Ok(run(3 * border + 9, 90)));
    assert_eq!(space.take(0, 40, PageClass::Small), Ok(run(border + 8, 40)));
    // The fullest region has none so long, and neither has the home region.
    space.give(0, run(3 * border + 10, 2), Use::Data).unwrap();
    assert_eq!(space.take(0, 9, PageClass::Small), Ok(run(3 * border + 99, 9)));
    space.give(0, run(3 * border + 14, 2), Use::Data).unwrap();
    assert_eq!(space.take(0, 3, PageClass::Small), Ok(run(2 * border + 8, 3)));
    assert_eq!(space.take_some(0, 100, Near::ANY).map(|run| run.pages), Ok(2));
    assert_eq!(space.take_some(0, 100, Near::ANY).map(|run| run.pages), Ok(2));
    assert_eq!(space.free_pages(), 0);
}

#[test]
fn histogram_counts_extents_by_size() {
    let space = Space::<TestHost>::new(2, 0, 3 << 20, 0).unwrap();
    for (page, pages) in [(1, 1), (4, 1), (10, 2), (20, 3), (30, 4), (100, 512), (1 << 20, 2 << 20)]
    {
        space.add_free(run(page, pages)).unwrap();
    }
    let mut expected = [0; EXTENT_SIZES];
    for size in [0, 0, 1, 1, 2, 9, 21] {
        expected[size] += 1;
    }
    // The 512 pages from 100 on are not aligned.
    let (huge, giant) = ((2 << 20) / CHUNK, (2 << 20) / GIANT);
    assert_eq!(space.extents(), FreeExtents { by_size: expected, huge, giant });
    let error = space.for_each_free(&mut |_| Err(Error::ReadOnly));
    assert_eq!(error, Err(Error::ReadOnly));
}

#[test]
fn free_extents_are_what_a_walk_over_all_pages_finds() {
    let (first, end) = (3, 5 * CHUNK + 7);
    let space = full(2, first, end);
    let mut free: Vec<bool> = (0..end).map(|page| page >= first).collect();
    let mut dice = Dice(5);
    let (mut held, mut most_ready) = (Vec::<Run>::new(), 0);
    for round in 0..4000 {
        let lane = dice.roll(2) as usize;
        let taken = match dice.roll(8) {
            0 => space.take(lane, CHUNK, PageClass::Huge),
            1..=2 => space.take_some(lane, 1 + dice.roll(90), Near::ANY),
            3..=5 => space.take(lane, 1, PageClass::Small),
            _ => Err(Error::NoSpace),
        };
        if let Ok(run) = taken {
            free[run.page as usize..run.end() as usize].fill(false);
            held.push(run);
        } else if !held.is_empty() {
            let run = held.swap_remove(dice.roll(held.len() as u64) as usize);
            free[run.page as usize..run.end() as usize].fill(true);
            space.give(lane, run, Use::Data).unwrap();
        }
        if round % 40 == 0 {
            let magazines = || space.lanes.iter().flat_map(|lane| &lane.magazines);
            let ready = || magazines().map(|magazine| magazine.lock().count()).sum();
            let before: usize = ready();
            assert_eq!(space.extents(), walked(&free), "round {round}");
            assert_eq!(ready(), before, "looking leaves magazines as they are");
            most_ready = most_ready.max(before);
        }
    }
    assert!(most_ready > 0);
}

/// Free extents, counted page by page and chunk by chunk.
fn walked(free: &[bool]) -> FreeExtents {
    let mut by_size = [0; EXTENT_SIZES];
    for run in model_runs(free) {
        let size = (0..EXTENT_SIZES).rev().find(|&size| run.pages >> size > 0).unwrap();
        by_size[size] += 1;
    }
    let whole = |block: u64| {
        free.chunks_exact(block as usize).filter(|chunk| chunk.iter().all(|free| *free)).count()
    };
    FreeExtents { by_size, huge: whole(CHUNK) as u64, giant: whole(GIANT) as u64 }
}

#[test]
fn threads_never_share_a_page() {
    let end = 20 * CHUNK;
    let space = full(3, 0, end);
    let owners = Claims::new(end).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (space, owners) = (&space, &owners);
            scope.spawn(move || {
                let mut dice = Dice(thread as u64 + 99);
                let mut held: Vec<Run> = Vec::new();
                for _ in 0..30_000 {
                    if dice.roll(100) < 55 {
                        let taken = match dice.roll(20) {
                            0 => space.take(thread, CHUNK, PageClass::Huge),
                            1..=4 => space.take_some(thread, 1 + dice.roll(700), Near::ANY),
                            _ => space.take(thread, 1, PageClass::Small),
                        };
                        if let Ok(run) = taken {
                            owners.claim(run).unwrap();
                            held.push(run);
                            continue;
                        }
                    }
                    if !held.is_empty() {
                        let run = held.swap_remove(dice.roll(held.len() as u64) as usize);
                        owners.release(run);
                        space.give(thread, run, Use::Data).unwrap();
                    }
                }
                for run in held {
                    owners.release(run);
                    space.give(thread, run, Use::Data).unwrap();
                }
            });
        }
    });
    assert_eq!(space.free_pages(), end);
    assert_eq!(free_runs(&space), [run(0, end)]);
    verify(&space);
}
