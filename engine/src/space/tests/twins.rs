//! Pages that are taken with their twins.

use super::*;

const FIRST: u64 = 3;

/// A space whose metadata has twins `apart` pages away, with all pages free that may be.
fn twins(apart: u64, end: u64) -> Space<TestHost> {
    let space = Space::new(2, FIRST, end, apart).unwrap();
    space.add_free(run(FIRST, apart - FIRST)).unwrap();
    space.add_free(run(apart + FIRST, end - apart - FIRST)).unwrap();
    space
}

/// Whether a page is free, told by the bitmap.
fn is_free(space: &Space<TestHost>, page: u64) -> bool {
    space.freed.is_claimed(page)
}

#[test]
fn a_page_is_taken_and_given_with_its_twin() {
    for apart in [4, 16, 64, 512] {
        let space = twins(apart, 4 * apart);
        let before = space.free_pages();
        let page = space.take_page_twins(0, Sparing::All).unwrap();
        assert!(page & apart == 0 && page >= FIRST);
        assert!(!is_free(&space, page) && !is_free(&space, page ^ apart));
        assert_eq!(space.free_pages(), before - 2);
        space.give_twins(0, run(page, 1)).unwrap();
        assert_eq!(space.free_pages(), before);
        assert!(is_corrupt(space.give_twins(0, run(page, 1)), page));
        // What was refused has changed nothing.
        assert_eq!(space.free_pages(), before);
    }
}

#[test]
fn a_run_is_aligned_and_on_one_side() {
    let space = twins(64, 1024);
    for pages in [1, 2, 16, 64] {
        let taken = space.take_twins(1, pages).unwrap();
        assert!(taken.pages == pages && taken.page.is_multiple_of(pages));
        assert!((taken.page..taken.end()).all(|page| page & 64 == 0));
        assert!((taken.page..taken.end()).all(|page| !is_free(&space, page ^ 64)));
    }
    assert_eq!(space.take_twins(0, 3), Err(Error::Invalid));
    assert_eq!(space.take_twins(0, 128), Err(Error::Invalid));
}

#[test]
fn a_page_without_a_free_twin_is_not_had_for_metadata() {
    let space = twins(16, 64);
    // The upper sides are full of data.
    let mut data = Vec::new();
    while let Ok(taken) = space.take_one(0, Use::Data) {
        data.push(taken.page);
    }
    for &page in data.iter().filter(|&&page| page & 16 == 0) {
        space.give(0, run(page, 1), Use::Data).unwrap();
    }
    assert_eq!(space.take_page_twins(0, Sparing::Nothing), Err(Error::NoSpace));
    assert_eq!(space.take_twins(0, 1), Err(Error::NoSpace));
    // One twin is enough, though it waits in a magazine.
    space.give(1, run(16 + 5, 1), Use::Data).unwrap();
    assert_eq!(space.take_page_twins(0, Sparing::Nothing), Ok(5));
    verify(&space);
}

#[test]
fn what_is_kept_is_for_those_who_free_space() {
    let space = twins(16, 64);
    let free = space.free_pages();
    space.keep_twins(3).unwrap();
    assert_eq!(space.free_pages(), free);
    let mut taken = Vec::new();
    while let Ok(page) = space.take_page_twins(0, Sparing::All) {
        taken.push(page);
    }
    while space.take_one(0, Use::Data).is_ok() {}
    assert_eq!(space.free_pages(), 6);
    let kept: Vec<u64> =
        (0..3).map(|_| space.take_page_twins(0, Sparing::Nothing).unwrap()).collect();
    assert!(kept.iter().all(|page| !taken.contains(page)));
    assert_eq!(space.take_page_twins(0, Sparing::Nothing), Err(Error::NoSpace));
    // What is given back is kept again, first of all.
    space.give_twins(1, run(kept[0], 1)).unwrap();
    assert_eq!(space.take_page_twins(0, Sparing::All), Err(Error::NoSpace));
    assert_eq!(space.take_page_twins(0, Sparing::Nothing), Ok(kept[0]));
    // At the end of a session nothing is.
    space.give_twins(1, run(kept[1], 1)).unwrap();
    space.end_keeping();
    assert_eq!(space.take_one(0, Use::Data).map(|one| one.pages), Ok(1));
}

#[test]
fn what_was_used_of_the_kept_is_kept_again_before_anything_grows() {
    let space = twins(16, 128);
    space.keep_twins(4).unwrap();
    while space.take_page_twins(0, Sparing::All).is_ok() {}
    while space.take_one(0, Use::Data).is_ok() {}
    // Half of it is for who changes things, ...
    let used = [(); 2].map(|()| space.take_page_twins(0, Sparing::Half).unwrap());
    assert_eq!(space.take_page_twins(0, Sparing::Half), Err(Error::NoSpace));
    // ... and pages that data gives back come in their place.
    for _ in 0..2 {
        let page =
            (FIRST..16).find(|&page| !is_free(&space, page) && !used.contains(&page)).unwrap();
        space.give(0, run(page, 1), Use::Data).unwrap();
        space.give(0, run(page ^ 16, 1), Use::Data).unwrap();
    }
    assert_eq!(space.take_page_twins(1, Sparing::All), Err(Error::NoSpace));
    for _ in 0..4 {
        space.take_page_twins(0, Sparing::Nothing).unwrap();
    }
    assert_eq!(space.take_page_twins(0, Sparing::Nothing), Err(Error::NoSpace));
}

#[test]
fn what_waits_with_its_twin_is_there_for_data_too() {
    let space = twins(16, 64);
    let page = space.take_page_twins(0, Sparing::All).unwrap();
    let free = space.free_pages();
    for _ in 0..free {
        space.take_one(1, Use::Data).unwrap();
    }
    assert_eq!(space.free_pages(), 0);
    space.give_twins(0, run(page, 1)).unwrap();
    assert_eq!(space.take_one(1, Use::Log).map(|one| one.pages), Ok(1));
}

#[test]
fn what_another_lane_has_ready_is_found() {
    let space = twins(16, 64);
    let page = space.take_page_twins(0, Sparing::All).unwrap();
    while space.take_page_twins(1, Sparing::All).is_ok() {}
    space.give_twins(0, run(page, 1)).unwrap();
    assert_eq!(space.take_page_twins(1, Sparing::All), Ok(page));
}

#[test]
fn random_takes_and_gives_keep_pages_apart() {
    let mut dice = Dice(77);
    for apart in [8, 64, 512] {
        let end = 8 * apart;
        let space = twins(apart, end);
        let total = space.free_pages();
        let (mut metadata, mut data): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
        for _ in 0..4000 {
            let lane = dice.roll(3) as usize;
            match dice.roll(5) {
                0 => metadata
                    .extend(space.take_page_twins(lane, Sparing::All).map(|page| run(page, 1))),
                1 => metadata.extend(space.take_twins(lane, 1 << dice.roll(4))),
                2 => data.extend(space.take_some(lane, 1 + dice.roll(9), Near::ANY)),
                3 if !metadata.is_empty() => {
                    let at = dice.roll(metadata.len() as u64) as usize;
                    space.give_twins(lane, metadata.swap_remove(at)).unwrap();
                }
                _ if !data.is_empty() => {
                    let at = dice.roll(data.len() as u64) as usize;
                    space.give(lane, data.swap_remove(at), Use::Data).unwrap();
                }
                _ => {}
            }
            let used = 2 * metadata.iter().map(|one| one.pages).sum::<u64>()
                + data.iter().map(|one| one.pages).sum::<u64>();
            assert_eq!(space.free_pages(), total - used);
        }
        let mut owners = vec![0; end as usize];
        let twin = |one: &Run| run(one.page ^ apart, one.pages);
        let all = metadata.iter().flat_map(|one| [*one, twin(one)]).chain(data.iter().copied());
        all.flat_map(|one| one.page..one.end()).for_each(|page| owners[page as usize] += 1);
        assert!(owners.iter().all(|&owners| owners <= 1));
        verify(&space);
    }
}
