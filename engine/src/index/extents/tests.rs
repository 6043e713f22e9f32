//! Extents against a page-by-page model.

#![allow(clippy::unwrap_used, clippy::panic)]

extern crate std;

use super::*;
use std::vec;
use std::vec::Vec;

fn extent(file_page: u64, page: u64, pages: u64, epoch: u32) -> Extent {
    Extent { file_page, page, pages, class: PageClass::Small, epoch, origin: 0 }
}

fn all(extents: &Extents) -> Vec<Extent> {
    extents.iter().collect()
}

fn remove(extents: &mut Extents, file_page: u64, pages: u64) -> Vec<Extent> {
    let mut removed = Vec::new();
    extents.remove(file_page, pages, &mut |piece| removed.push(piece));
    removed
}

#[test]
fn extents_match_a_page_by_page_model() {
    const PAGES: usize = 400;
    for seed in 1..=40u64 {
        let mut state = seed * 0x9e37_79b9;
        let mut roll = |sides: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % sides
        };
        let mut extents = Extents::default();
        // For each file page: pool page and what must agree for a merge.
        let mut model: Vec<Option<(u64, u32)>> = vec![None; PAGES];
        for _ in 0..400 {
            let low = roll(PAGES as u64);
            let longest = 1 << roll(6);
            let pages = (1 + roll(longest)).min(PAGES as u64 - low);
            let range = low as usize..(low + pages) as usize;
            let new = (1000 * roll(2) + low, roll(2) as u32);
            let mut removed = Vec::new();
            let replaces = roll(2) > 0;
            if replaces {
                let new = extent(low, new.0, pages, new.1);
                let around = extents.around(new.file_page);
                extents.replace(new, around, &mut |piece| removed.push(piece));
            } else {
                removed = remove(&mut extents, low, pages);
            }
            let expected: Vec<_> =
                range.clone().filter_map(|i| Some((i as u64, model[i]?))).collect();
            let pieces: Vec<_> = removed
                .iter()
                .flat_map(|e| (0..e.pages).map(|i| (e.file_page + i, (e.page + i, e.epoch))))
                .collect();
            assert_eq!(pieces, expected);
            model[range.clone()].fill(None);
            if replaces || roll(2) > 0 {
                let (page, epoch) = new;
                if !replaces {
                    extents.insert(extent(low, page, pages, epoch));
                }
                range.for_each(|i| model[i] = Some((page + i as u64 - low, epoch)));
            }
            // The extents that the model has, merged.
            let mut merged: Vec<Extent> = Vec::new();
            for (i, &(page, epoch)) in
                model.iter().enumerate().filter_map(|(i, m)| Some((i, m.as_ref()?)))
            {
                let one = extent(i as u64, page, 1, epoch);
                match merged.last_mut() {
                    Some(last) if last.goes_on_in(&one) => last.pages += 1,
                    _ => merged.push(one),
                }
            }
            assert_eq!(all(&extents), merged);
            assert!(extents.joined().eq(merged.iter().copied()), "origins are the same here");
            assert_eq!((extents.len(), extents.is_empty()), (merged.len(), merged.is_empty()));
            assert_eq!(extents.pages(), merged.iter().map(|e| e.pages).sum());
            let kept = replaces && extents.memory_bytes() <= 24 + 4 * 40;
            assert!(extents.others.is_some() == (merged.len() > 1) || kept);
            let at = roll(PAGES as u64 + 5);
            let next = merged.iter().find(|e| e.end() > at).copied();
            assert_eq!(extents.next_from(at), next);
            assert_eq!(extents.find(at), next.filter(|e| e.file_page <= at));
        }
    }
}

/// Single pages, so that each is an entry of its own in nodes of two levels: those at the ends of nodes, too.
#[test]
fn pages_that_get_others_are_in_their_places() {
    const PAGES: u64 = 3_000;
    let mut extents = Extents::default();
    let place = |page: u64, round: u64| 2 * (page + round * PAGES);
    (0..PAGES).for_each(|page| extents.insert(extent(page, place(page, 0), 1, 1)));
    let taken = extents.memory_bytes();
    for round in 1..=3 {
        for page in (0..PAGES).map(|at| at * 7 % PAGES) {
            let new = extent(page, place(page, round), 1, 1);
            let (around, mut removed) = (extents.around(page), Vec::new());
            extents.replace(new, around, &mut |piece| removed.push(piece));
            assert_eq!(removed, [extent(page, place(page, round - 1), 1, 1)]);
            assert_eq!(extents.find(page), Some(new));
        }
        assert_eq!((extents.len() as u64, extents.pages()), (PAGES, PAGES));
        assert_eq!(extents.memory_bytes(), taken, "each has the place of the one before");
    }
    // What goes on in a neighbour is one with it, also across the end of a node.
    for page in 1..PAGES {
        let (around, before) = (extents.around(page), extents.find(page - 1).unwrap());
        let new = extent(page, before.page + page - before.file_page, 1, 1);
        extents.replace(new, around, &mut |_| ());
        assert_eq!(extents.len() as u64, PAGES - page, "{page}");
    }
}

#[test]
fn what_differs_in_its_origin_alone_is_joined() {
    let first = extent(10, 50, 5, 1);
    let mut extents = Extents::default();
    let all = [
        first,
        Extent { origin: 4, ..extent(15, 55, 5, 1) },
        Extent { origin: 5, ..extent(20, 60, 5, 2) },
        Extent { origin: 6, ..extent(25, 65, 1 << 31, 2) },
    ];
    all.iter().for_each(|one| extents.insert(*one));
    assert_eq!(extents.len(), 4);
    let joined: Vec<Extent> = extents.joined().collect();
    assert_eq!(joined, [Extent { pages: 10, ..first }, all[2], all[3]]);
}

#[test]
fn only_what_agrees_merges() {
    let first = extent(10, 50, 5, 1);
    let good = extent(15, 55, 5, 1);
    for other in [
        Extent { page: 56, ..good },
        Extent { epoch: 2, ..good },
        Extent { origin: 9, ..good },
        Extent { class: PageClass::Huge, ..good },
        Extent { file_page: 16, ..good },
    ] {
        let mut extents = Extents::default();
        extents.insert(first);
        extents.insert(other);
        assert_eq!(all(&extents), [first, other]);
    }
    let mut extents = Extents::default();
    extents.insert(good);
    extents.insert(first);
    assert_eq!(all(&extents), [Extent { pages: 10, ..first }]);
    assert_eq!(remove(&mut extents, 14, 1), [extent(14, 54, 1, 1)]);
    extents.insert(extent(14, 54, 1, 1));
    assert_eq!(all(&extents), [Extent { pages: 10, ..first }], "a gap closed merges both sides");
}

#[test]
fn hostile_numbers_do_no_harm() {
    let mut extents = Extents::default();
    assert!(remove(&mut extents, u64::MAX, u64::MAX).is_empty());
    extents.insert(extent(5, 5, 0, 0));
    assert!(extents.is_empty());
    extents.insert(extent(u64::MAX - 1, u64::MAX - 1, u64::MAX, 0));
    extents.insert(extent(0, u64::MAX - 2, 4, 0));
    assert_eq!(extents.len(), 2);
    assert_eq!(extents.find(u64::MAX), None);
    assert!(extents.find(u64::MAX - 1).is_some());
    assert_eq!(extents.next_from(u64::MAX), None);
    assert_eq!(remove(&mut extents, 1, u64::MAX).len(), 2);
    assert_eq!(remove(&mut extents, 0, u64::MAX).len(), 1);
    assert!(extents.is_empty());
}

#[test]
fn removing_nothing_removes_nothing() {
    let mut extents = Extents::default();
    extents.insert(extent(10, 50, 5, 1));
    for (file_page, pages) in [(0, 10), (15, 100), (12, 0), (10, 0), (15, u64::MAX)] {
        assert!(remove(&mut extents, file_page, pages).is_empty());
    }
    assert_eq!(remove(&mut extents, 0, u64::MAX), [extent(10, 50, 5, 1)]);
    assert_eq!(extents.pages(), 0);
}
