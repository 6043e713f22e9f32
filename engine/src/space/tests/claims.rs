//! The bitmap of claims, against a plain model.

use super::super::claims::{BLOCK, WORD, place};
use super::*;

fn unclaimed(claims: &Claims, first: u64, end: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    let each = &mut |run| {
        runs.push(run);
        Ok(())
    };
    claims.for_each_unclaimed(first, end, each).unwrap();
    runs
}

#[test]
fn claims_match_a_plain_model() {
    for pages in [1u64, 63, 64, 65, 1000] {
        let claims = Claims::new(pages).unwrap();
        let mut free = vec![true; pages as usize];
        let mut dice = Dice(pages + 17);
        for _ in 0..3000 {
            let page = dice.roll(pages + 2);
            let most = if dice.roll(3) == 0 { 300 } else { 4 };
            let new = run(page, dice.roll(most));
            let low = page.min(pages) as usize;
            let range = low..(new.end().min(pages) as usize).max(low);
            if dice.roll(3) > 0 {
                let taken = free[range.clone()].iter().position(|&free| !free);
                let wrong = match taken {
                    Some(place) => Some(page + place as u64),
                    None => (new.pages > 0 && new.end() > pages).then(|| page.max(pages)),
                };
                assert_eq!(claims.claim(new), wrong.map_or(Ok(()), Err), "{new:?} of {pages}");
                if wrong.is_none() {
                    free[range].fill(false);
                }
            } else {
                claims.release(new);
                free[range].fill(true);
            }
            let page = dice.roll(pages);
            assert_eq!(claims.is_claimed(page), !free[page as usize]);
            let (low, high) = (dice.roll(pages), dice.roll(pages + 9));
            let mut model = free.clone();
            model.truncate(high as usize);
            let clear = model.len().min(low as usize);
            model[..clear].fill(false);
            assert_eq!(unclaimed(&claims, low, high), model_runs(&model));
        }
    }
}

#[test]
fn hostile_runs_are_refused() {
    let claims = Claims::new(100).unwrap();
    for bad in
        [run(100, 1), run(99, 2), run(5, u64::MAX), run(u64::MAX, 1), run(u64::MAX, u64::MAX)]
    {
        assert_eq!(claims.claim(bad), Err(bad.page.max(100)), "{bad:?}");
        claims.release(bad);
    }
    assert_eq!(unclaimed(&claims, 0, u64::MAX), [run(0, 100)]);
    assert_eq!(unclaimed(&claims, 200, u64::MAX), []);
    assert!(claims.is_claimed(100) && claims.is_claimed(u64::MAX) && !claims.is_claimed(99));
    assert_eq!(claims.claim(run(0, 0)), Ok(()));
    assert!(matches!(Claims::new(u64::MAX), Err(Error::NoMemory)));
    let empty = Claims::new(0).unwrap();
    assert_eq!(empty.claim(run(0, 1)), Err(0));
}

#[test]
fn an_error_ends_the_walk() {
    let claims = Claims::new(1000).unwrap();
    claims.claim(run(10, 1)).unwrap();
    let mut calls = 0;
    let result = claims.for_each_unclaimed(0, 1000, &mut |_| {
        calls += 1;
        Err(Error::NoMemory)
    });
    assert_eq!((result, calls), (Err(Error::NoMemory), 1));
}

#[test]
fn of_many_claimants_one_wins() {
    let claims = Claims::new(1 << 14).unwrap();
    let won: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let claims = &claims;
                scope.spawn(move || {
                    let mut dice = Dice(thread + 3);
                    let mut won = 0;
                    for _ in 0..20_000 {
                        let new = run(dice.roll(1 << 14), 1 + dice.roll(200));
                        won += if claims.claim(new).is_ok() { new.pages } else { 0 };
                    }
                    won
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let left: u64 = unclaimed(&claims, 0, 1 << 14).iter().map(|run| run.pages).sum();
    assert_eq!(won + left, 1 << 14);
}

/// Who takes the next page does not wait for who takes another one.
#[test]
fn pages_that_lanes_take_by_turns_are_not_in_the_same_lines() {
    let mut words: Vec<_> = (0..2 * BLOCK).map(place).collect();
    assert!(words.windows(2).all(|two| two[0].abs_diff(two[1]) >= 16), "{words:?}");
    words.sort_unstable();
    assert!(words.iter().copied().eq(0..2 * BLOCK), "each has a place of its own");
    // (Also where what is free begins anywhere.)
    for first in [0, 37, 64] {
        let space = full(2, first, first + 8 * CHUNK);
        let mut words = [Vec::new(), Vec::new()];
        for turn in 0..400 {
            let lane = turn % 2;
            let page = space.take(lane, 1, PageClass::Small).unwrap().page;
            words[lane].push(page / WORD);
        }
        let [one, two] = words;
        assert!(one.iter().all(|word| !two.contains(word)), "the first free page is {first}");
    }
}
