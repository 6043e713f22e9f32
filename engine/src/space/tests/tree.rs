//! The tiers of one region, against a plain model.

use super::super::tree::Tree;
use super::*;

fn tree_of(runs: &[(u64, u64)]) -> Tree {
    let mut tree = Tree::default();
    for &(page, pages) in runs {
        tree.insert(run(page, pages)).unwrap();
    }
    tree.verify();
    tree
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
        let mut tree = Tree::default();
        let mut free = vec![false; end as usize];
        for _ in 0..600 {
            if dice.roll(2) == 0 {
                let pages = 1 + if dice.roll(3) == 0 { dice.roll(1500) } else { dice.roll(60) };
                let page = dice.roll(end);
                let new = run(page, pages.min(end - page));
                let range = page as usize..new.end() as usize;
                let taken = free[range.clone()].iter().position(|&free| free);
                let count = tree.free();
                match taken {
                    None => {
                        tree.insert(new).unwrap();
                        free[range].fill(true);
                    }
                    Some(place) => {
                        assert_eq!(tree.insert(new), Err(page + place as u64));
                        assert_eq!(tree.free(), count);
                    }
                }
            } else {
                let class = if dice.roll(4) == 0 { PageClass::Huge } else { PageClass::Small };
                let most = if dice.roll(3) == 0 { 3000 } else { 40 };
                let pages = match class {
                    PageClass::Huge => CHUNK * (1 + dice.roll(3)),
                    _ => 1 + dice.roll(most),
                };
                let taken = tree.take(pages, class);
                assert_eq!(taken.is_some(), has(&free, pages, class.pages()), "{pages} {class:?}");
                if let Some(taken) = taken {
                    assert_eq!((taken.pages, taken.page % class.pages()), (pages, 0));
                    let range = &mut free[taken.page as usize..taken.end() as usize];
                    assert!(range.iter().all(|&free| free));
                    range.fill(false);
                }
            }
            tree.verify();
            assert_eq!(tree.free(), free.iter().filter(|&&free| free).count() as u64);
        }
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(run) = tree.next_from(from) {
            from = run.end();
            found.push(run);
        }
        assert_eq!(found, model_runs(&free));
    }
}

#[test]
fn fragments_go_before_chunks() {
    let mut tree = tree_of(&[(0, CHUNK), (2 * CHUNK + 5, 40), (4 * CHUNK + 5, 3)]);
    assert_eq!(tree.take(3, PageClass::Small), Some(run(4 * CHUNK + 5, 3)), "smallest that fits");
    assert_eq!(tree.take(1, PageClass::Small), Some(run(2 * CHUNK + 5, 1)));
    assert_eq!(tree.take_some(100, 0), Some(run(2 * CHUNK + 6, 39)), "all of the fragments first");
    assert_eq!(tree.chunk_pages(), CHUNK);
    assert_eq!(tree.take_some(100, 0), Some(run(0, 100)));
    assert_eq!(tree.chunk_pages(), 0);
    assert_eq!(tree.take_some(1000, 0), Some(run(100, CHUNK - 100)));
    assert_eq!(tree.take_some(1000, 0), None);
}

#[test]
fn parts_beside_chunks_are_fragments() {
    let mut tree = tree_of(&[(500, 12 + 3 * CHUNK + 7)]);
    assert_eq!(tree.chunk_pages(), 3 * CHUNK);
    assert_eq!(tree.take(7, PageClass::Small), Some(run(4 * CHUNK, 7)));
    assert_eq!(tree.take(12, PageClass::Small), Some(run(500, 12)));
    assert_eq!(tree.chunk_pages(), 3 * CHUNK);
    tree.verify();
}

#[test]
fn long_small_runs_touch_the_fewest_chunks() {
    let mut tree = tree_of(&[(500, 12 + 3 * CHUNK)]);
    assert_eq!(tree.take(2 * CHUNK + 10, PageClass::Small), Some(run(502, 2 * CHUNK + 10)));
    assert_eq!(tree.chunk_pages(), CHUNK);
    let mut tree = tree_of(&[(CHUNK, 2 * CHUNK + 10)]);
    assert_eq!(tree.take(CHUNK + 10, PageClass::Small), Some(run(2 * CHUNK, CHUNK + 10)));
    assert_eq!(tree.chunk_pages(), CHUNK);
    let mut tree = tree_of(&[(CHUNK - 300, 300 + CHUNK + 300)]);
    assert_eq!(tree.take(CHUNK + 600, PageClass::Small), Some(run(CHUNK - 300, CHUNK + 600)));
    assert_eq!(tree.free(), 0);
    tree.verify();
}

#[test]
fn large_writes_get_whole_chunks() {
    let mut tree = tree_of(&[(0, 10), (CHUNK, 3 * CHUNK), (6 * CHUNK, CHUNK), (8 * CHUNK, 20)]);
    assert_eq!(
        tree.take_some(CHUNK + 15, 0),
        Some(run(6 * CHUNK, CHUNK)),
        "the smallest that fits"
    );
    assert_eq!(tree.take_some(15, 0), Some(run(8 * CHUNK, 15)));
    assert_eq!(tree.take_some(9 * CHUNK, 0), Some(run(CHUNK, 3 * CHUNK)));
    assert_eq!(tree.take_some(9 * CHUNK, 0), Some(run(0, 10)));
}

#[test]
fn broken_up_chunks_lie_outside_giants() {
    let mut tree = tree_of(&[(GIANT, GIANT), (4 * GIANT - 2 * CHUNK, 2 * GIANT + 2 * CHUNK)]);
    assert_eq!(tree.take(CHUNK, PageClass::Huge), Some(run(4 * GIANT - 2 * CHUNK, CHUNK)));
    assert_eq!(tree.take(1, PageClass::Small), Some(run(4 * GIANT - CHUNK, 1)));
    assert_eq!(tree.take(GIANT, PageClass::Giant), Some(run(GIANT, GIANT)));
    assert_eq!(tree.take(2 * GIANT, PageClass::Giant), Some(run(4 * GIANT, 2 * GIANT)));
    assert_eq!(tree.take(1, PageClass::Giant), None);
    tree.verify();
    let mut tree = tree_of(&[(GIANT - CHUNK, GIANT + 4 * CHUNK)]);
    assert_eq!(tree.take(3 * CHUNK, PageClass::Huge), Some(run(2 * GIANT, 3 * CHUNK)));
    assert_eq!(tree.take(CHUNK, PageClass::Huge), Some(run(GIANT - CHUNK, CHUNK)));
    assert_eq!(tree.take(GIANT, PageClass::Giant), Some(run(GIANT, GIANT)));
    assert_eq!(tree.free(), 0);
}

#[test]
fn giants_match_a_plain_search() {
    let end = 6 * GIANT;
    let mut dice = Dice(5);
    let mut tree = tree_of(&[(3, end - 3)]);
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
            let taken = tree.take(pages, class);
            assert_eq!(taken.is_some(), has(&free, pages, class.pages()));
            if let Some(taken) = taken {
                free[taken.page as usize..taken.end() as usize].fill(false);
                held.push(taken);
            }
        } else if !held.is_empty() {
            let run = held.swap_remove(dice.roll(held.len() as u64) as usize);
            tree.insert(run).unwrap();
            free[run.page as usize..run.end() as usize].fill(true);
        }
        tree.verify();
    }
    for run in held {
        tree.insert(run).unwrap();
    }
    assert_eq!(tree.next_from(0), Some(run(3, end - 3)));
}
