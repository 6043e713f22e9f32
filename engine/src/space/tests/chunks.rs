//! The chunks of one region, against a plain model.

use super::super::chunks::Chunks;
use super::*;

fn chunks_of(end: u64, runs: &[(u64, u64)]) -> Chunks {
    let mut chunks = Chunks::new(0, end).unwrap();
    for &(page, pages) in runs {
        chunks.insert(run(page, pages)).unwrap();
    }
    chunks.verify();
    chunks
}

/// Whether a model has `pages` free pages in a row, from a multiple of `align` on.
fn has(free: &[bool], pages: u64, align: u64) -> bool {
    model_runs(free).iter().any(|run| run.page.next_multiple_of(align) + pages <= run.end())
}

#[test]
fn takes_whenever_a_plain_search_would() {
    let end = 12 * CHUNK;
    for seed in 1..=20 {
        let mut dice = Dice(seed * 104_729);
        let mut chunks = Chunks::new(0, end).unwrap();
        let mut free = vec![false; end as usize];
        for _ in 0..600 {
            if dice.roll(2) == 0 {
                let pages = 1 + if dice.roll(3) == 0 { dice.roll(1500) } else { dice.roll(60) };
                let page = dice.roll(end);
                let new = run(page, pages.min(end - page));
                let range = page as usize..new.end() as usize;
                let taken = free[range.clone()].iter().position(|&free| free);
                let count = chunks.free();
                match taken {
                    None => {
                        chunks.insert(new).unwrap();
                        free[range].fill(true);
                    }
                    Some(place) => {
                        assert_eq!(chunks.insert(new), Err(page + place as u64));
                        assert_eq!(chunks.free(), count);
                    }
                }
            } else {
                let class = if dice.roll(4) == 0 { PageClass::Huge } else { PageClass::Small };
                let most = if dice.roll(3) == 0 { 3000 } else { 40 };
                let pages = match class {
                    PageClass::Huge => CHUNK * (1 + dice.roll(3)),
                    _ => 1 + dice.roll(most),
                };
                let taken = chunks.take(pages, class);
                assert_eq!(taken.is_some(), has(&free, pages, class.pages()), "{pages} {class:?}");
                if let Some(taken) = taken {
                    assert_eq!((taken.pages, taken.page % class.pages()), (pages, 0));
                    let range = &mut free[taken.page as usize..taken.end() as usize];
                    assert!(range.iter().all(|&free| free));
                    range.fill(false);
                }
            }
            chunks.verify();
            assert_eq!(chunks.free(), free.iter().filter(|&&free| free).count() as u64);
        }
        assert_eq!(chunks.extents().collect::<Vec<_>>(), model_runs(&free));
    }
}

#[test]
fn fragments_go_before_chunks() {
    let mut chunks = chunks_of(9 * CHUNK, &[(0, CHUNK), (2 * CHUNK + 5, 40), (4 * CHUNK + 5, 3)]);
    assert_eq!(chunks.take(3, PageClass::Small), Some(run(4 * CHUNK + 5, 3)), "smallest that fits");
    assert_eq!(chunks.take(1, PageClass::Small), Some(run(2 * CHUNK + 5, 1)));
    assert_eq!(
        chunks.take_some(100, 0),
        Some(run(2 * CHUNK + 6, 39)),
        "all of the fragments first"
    );
    assert_eq!(chunks.chunk_pages(), CHUNK);
    assert_eq!(chunks.take_some(100, 0), Some(run(0, 100)));
    assert_eq!(chunks.chunk_pages(), 0);
    assert_eq!(chunks.take_some(1000, 0), Some(run(100, CHUNK - 100)));
    assert_eq!(chunks.take_some(1000, 0), None);
}

#[test]
fn parts_beside_chunks_are_fragments() {
    let mut chunks = chunks_of(9 * CHUNK, &[(500, 12 + 3 * CHUNK + 7)]);
    assert_eq!(chunks.chunk_pages(), 3 * CHUNK);
    assert_eq!(chunks.take(7, PageClass::Small), Some(run(4 * CHUNK, 7)));
    assert_eq!(chunks.take(12, PageClass::Small), Some(run(500, 12)));
    assert_eq!(chunks.chunk_pages(), 3 * CHUNK);
    chunks.verify();
}

#[test]
fn long_small_runs_touch_the_fewest_chunks() {
    let mut chunks = chunks_of(9 * CHUNK, &[(500, 12 + 3 * CHUNK)]);
    assert_eq!(chunks.take(2 * CHUNK + 10, PageClass::Small), Some(run(502, 2 * CHUNK + 10)));
    assert_eq!(chunks.chunk_pages(), CHUNK);
    let mut chunks = chunks_of(9 * CHUNK, &[(CHUNK, 2 * CHUNK + 10)]);
    assert_eq!(chunks.take(CHUNK + 10, PageClass::Small), Some(run(2 * CHUNK, CHUNK + 10)));
    assert_eq!(chunks.chunk_pages(), CHUNK);
    let mut chunks = chunks_of(9 * CHUNK, &[(CHUNK - 300, 300 + CHUNK + 300)]);
    assert_eq!(chunks.take(CHUNK + 600, PageClass::Small), Some(run(CHUNK - 300, CHUNK + 600)));
    assert_eq!(chunks.free(), 0);
    chunks.verify();
}

#[test]
fn large_writes_get_whole_chunks() {
    let mut chunks =
        chunks_of(9 * CHUNK, &[(0, 10), (CHUNK, 3 * CHUNK), (6 * CHUNK, CHUNK), (8 * CHUNK, 20)]);
    assert_eq!(
        chunks.take_some(CHUNK + 15, 0),
        Some(run(6 * CHUNK, CHUNK)),
        "the smallest that fits"
    );
    assert_eq!(chunks.take_some(15, 0), Some(run(8 * CHUNK, 15)));
    assert_eq!(chunks.take_some(9 * CHUNK, 0), Some(run(CHUNK, 3 * CHUNK)));
    assert_eq!(chunks.take_some(9 * CHUNK, 0), Some(run(0, 10)));
}

#[test]
fn broken_up_chunks_lie_outside_giants() {
    let mut chunks =
        chunks_of(8 * GIANT, &[(GIANT, GIANT), (4 * GIANT - 2 * CHUNK, 2 * GIANT + 2 * CHUNK)]);
    assert_eq!(chunks.take(CHUNK, PageClass::Huge), Some(run(4 * GIANT - 2 * CHUNK, CHUNK)));
    assert_eq!(chunks.take(1, PageClass::Small), Some(run(4 * GIANT - CHUNK, 1)));
    assert_eq!(chunks.take(GIANT, PageClass::Giant), Some(run(GIANT, GIANT)));
    assert_eq!(chunks.take(2 * GIANT, PageClass::Giant), Some(run(4 * GIANT, 2 * GIANT)));
    assert_eq!(chunks.take(1, PageClass::Giant), None);
    chunks.verify();
    let mut chunks = chunks_of(8 * GIANT, &[(GIANT - CHUNK, GIANT + 4 * CHUNK)]);
    assert_eq!(chunks.take(3 * CHUNK, PageClass::Huge), Some(run(2 * GIANT, 3 * CHUNK)));
    assert_eq!(chunks.take(CHUNK, PageClass::Huge), Some(run(GIANT - CHUNK, CHUNK)));
    assert_eq!(chunks.take(GIANT, PageClass::Giant), Some(run(GIANT, GIANT)));
    assert_eq!(chunks.free(), 0);
}

#[test]
fn giants_match_a_plain_search() {
    let end = 6 * GIANT;
    let mut dice = Dice(5);
    let mut chunks = chunks_of(end, &[(3, end - 3)]);
    let mut held: Vec<Run> = Vec::new();
    let mut free = vec![true; end as usize];
    free[..3].fill(false);
    for _ in 0..150 {
        if dice.roll(5) < 3 {
            let (pages, class) = match dice.roll(4) {
                0 => (GIANT, PageClass::Giant),
                1 => (CHUNK * (1 + dice.roll(600)), PageClass::Huge),
                _ => (1 + dice.roll(GIANT), PageClass::Small),
            };
            let taken = chunks.take(pages, class);
            assert_eq!(taken.is_some(), has(&free, pages, class.pages()));
            if let Some(taken) = taken {
                free[taken.page as usize..taken.end() as usize].fill(false);
                held.push(taken);
            }
        } else if !held.is_empty() {
            let run = held.swap_remove(dice.roll(held.len() as u64) as usize);
            chunks.insert(run).unwrap();
            free[run.page as usize..run.end() as usize].fill(true);
        }
        chunks.verify();
    }
    for run in held {
        chunks.insert(run).unwrap();
    }
    assert_eq!(chunks.extents().collect::<Vec<_>>(), [run(3, end - 3)]);
}

#[test]
fn what_is_free_in_pieces_takes_no_more_memory_than_what_is_free_in_one() {
    let end = 64 * CHUNK;
    let mut chunks = chunks_of(end, &[]);
    let none = chunks.memory_bytes();
    for page in (0..end).step_by(2) {
        chunks.insert(run(page, 1)).unwrap();
    }
    assert_eq!(chunks.memory_bytes(), none);
    assert_eq!(chunks.take_some(30, 0), Some(run(63 * CHUNK, 1)));
    for page in (1..end).step_by(2) {
        chunks.insert(run(page, 1)).unwrap();
    }
    chunks.insert(run(63 * CHUNK, 1)).unwrap();
    chunks.verify();
    assert_eq!(chunks.extents().collect::<Vec<_>>(), [run(0, end)]);
}

#[test]
fn what_is_nearly_full_gets_full_first() {
    let runs =
        [(10, 100), (CHUNK + 10, 100), (CHUNK + 200, 20), (2 * CHUNK + 4, 40), (3 * CHUNK, 33)];
    let mut chunks = chunks_of(9 * CHUNK, &runs);
    // (Those of 33 to 47 pages are one rank.)
    assert_eq!(chunks.take_some(20, 0), Some(run(2 * CHUNK + 4, 20)));
    assert_eq!(chunks.take_some(21, 0), Some(run(3 * CHUNK, 21)));
    assert_eq!(chunks.take_some(41, 0), Some(run(10, 41)));
    assert_eq!(
        chunks.take(98, PageClass::Small),
        Some(run(CHUNK + 10, 98)),
        "of a rank that has shorter ones"
    );
    assert_eq!(chunks.take_some(500, 0), Some(run(51, 59)));
    assert_eq!(chunks.take_some(9, 30), Some(run(2 * CHUNK + 24, 9)), "the longest there is");
    chunks.verify();
}

#[test]
fn what_lies_on_both_sides_of_a_border_is_found_where_no_chunk_has_so_much() {
    let runs =
        [(CHUNK - 30, 50), (2 * CHUNK - 10, 60), (4 * CHUNK - 40, 40 + CHUNK + 3), (7 * CHUNK, 45)];
    let mut chunks = chunks_of(9 * CHUNK, &runs);
    assert_eq!(chunks.take(CHUNK + 41, PageClass::Small), Some(run(4 * CHUNK - 40, CHUNK + 41)));
    // (The shortest of 50 and 60; then the other.)
    assert_eq!(chunks.take(51, PageClass::Small), Some(run(2 * CHUNK - 10, 51)));
    assert_eq!(chunks.take(51, PageClass::Small), None);
    assert_eq!(chunks.take(50, PageClass::Small), Some(run(CHUNK - 30, 50)));
    assert_eq!(chunks.take(45, PageClass::Small), Some(run(7 * CHUNK, 45)));
    assert_eq!(chunks.free(), 9 + 2);
    chunks.verify();
}

#[test]
fn what_memory_has_lost_of_one_chunk_keeps_nobody_from_the_others() {
    for (flipped, bit) in [(CHUNK, 1 << 6), (CHUNK, 1 << 2), (CHUNK, 1 << 9), (CHUNK, 1 << 15)] {
        let mut chunks = chunks_of(9 * CHUNK, &[(10, 60), (CHUNK + 10, 68), (2 * CHUNK + 10, 64)]);
        chunks.flip_longest(flipped, bit);
        let takes = (0..20).filter_map(|_| chunks.take_some(20, 0)).collect::<Vec<_>>();
        let elsewhere = takes.iter().filter(|run| run.page / CHUNK != 1).map(|run| run.pages);
        assert_eq!(elsewhere.sum::<u64>(), 60 + 64, "{bit}: {takes:?}");
    }
    // (The one whose longest run is the shortest comes first, each time.)
    let mut chunks = chunks_of(9 * CHUNK, &[(10, 60), (CHUNK + 10, 30)]);
    (0..30).for_each(|page| chunks.flip(CHUNK + 10 + page));
    let takes = (0..20).filter_map(|_| chunks.take_some(20, 0)).collect::<Vec<_>>();
    assert_eq!(takes, [run(10, 20), run(30, 20), run(50, 20)]);
}

#[test]
fn never_more_is_taken_than_was_asked_for() {
    // Of one rank, most of them too short; the last one is not.
    let mut runs = (0..200).map(|chunk| (chunk * CHUNK + 7, 243)).collect::<Vec<_>>();
    runs.push((200 * CHUNK, 257));
    let mut chunks = chunks_of(201 * CHUNK, &runs);
    assert_eq!(chunks.take_some(250, 0), Some(run(200 * CHUNK, 250)));
    assert_eq!(chunks.take(244, PageClass::Small), None);
    chunks.insert(run(200 * CHUNK, 250)).unwrap();
    assert_eq!(chunks.take(250, PageClass::Small), Some(run(200 * CHUNK, 250)));
    let mut dice = Dice(9);
    while chunks.free() > 0 {
        let pages = 1 + dice.roll(300);
        let taken = chunks.take_some(pages, dice.roll(600));
        assert!(taken.is_some_and(|run| (1..=pages).contains(&run.pages)), "{taken:?} of {pages}");
    }
    chunks.verify();
}
