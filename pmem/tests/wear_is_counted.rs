//! Every line that is stored to is counted, once, in the region that it lies in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::sync::Barrier;
use std::thread;

use common::{PAGE, noise};
use lode_pmem::{Counters, Door, Line, Mapped, RegionOptions, WEAR_REGION_BYTES, Window};

const REGION: u64 = WEAR_REGION_BYTES;
const REGIONS: u64 = 70;

fn door() -> Door<Mapped> {
    let memory = Mapped::anonymous(REGIONS * REGION, &RegionOptions::new()).unwrap();
    Door::new(memory).with_wear().unwrap()
}

/// The regions that `stores`, in one window, count for, with their bytes.
fn counted(stores: impl FnOnce(&mut Window<'_, Mapped>)) -> Vec<(u64, u64)> {
    let (door, counters) = (door(), Counters::new());
    stores(&mut door.window(u64::MAX, &counters));
    assert_eq!(door.wear().regions(), REGIONS);
    let all = (0..REGIONS).map(|region| (region, door.wear().stored_bytes(region)));
    all.filter(|(_, bytes)| *bytes > 0).collect()
}

/// Of who counts alone, with places for so many bytes.
fn alone(bytes: u64) -> Counters {
    let mut counters = Counters::exclusive();
    counters.hold_wear(bytes).unwrap();
    counters
}

#[test]
fn each_kind_of_store_counts_its_lines() {
    assert_eq!(counted(|w| w.store_line(REGION, &Line([1; 64]))), [(1, 64)]);
    assert_eq!(counted(|w| w.store_word(REGION - 8, 1)), [(0, 64)]);
    assert_eq!(counted(|w| w.store_word_lazily(5 * REGION, 1)), [(5, 64)]);
    // Through the cache, from the last byte of a line to the first of another.
    assert_eq!(counted(|w| w.store(REGION + 63, &noise(66, 1))), [(1, 192)]);
    assert_eq!(counted(|w| w.copy_nt(2 * PAGE, &noise(4096, 1))), [(0, 4096)]);
    assert_eq!(counted(|w| w.copy_nt(2 * PAGE + 1, &noise(63, 1))), [(0, 64)]);
    assert_eq!(counted(|w| w.zero_nt(2 * PAGE + 32, 64)), [(0, 128)]);
    assert_eq!(counted(|w| w.copy_nt(PAGE + 1, &[])), []);
    // Writing back stores nothing.
    assert_eq!(counted(|w| w.flush(0, REGION)), []);
}

#[test]
fn stores_across_an_edge_count_on_both_sides() {
    assert_eq!(counted(|w| w.copy_nt(3 * REGION - 100, &noise(300, 1))), [(2, 128), (3, 256)]);
    assert_eq!(counted(|w| w.store(REGION - 8, &noise(16, 1))), [(0, 64), (1, 64)]);
    let long = counted(|w| w.zero_nt(REGION - 64, 6 * REGION + 128));
    let expected: Vec<(u64, u64)> =
        (0..8).map(|region| (region, if region % 7 == 0 { 64 } else { REGION })).collect();
    assert_eq!(long, expected);
}

#[test]
fn a_window_over_many_regions_counts_them_all() {
    let all = counted(|window| {
        for at in (0..REGIONS).chain([0, REGIONS - 1]) {
            window.store_line(at * REGION + 64, &Line([1; 64]));
        }
    });
    assert_eq!(all.len() as u64, REGIONS);
    assert!(
        all.iter().all(|&(at, bytes)| bytes == 64 << u64::from([0, REGIONS - 1].contains(&at)))
    );
}

#[test]
fn threads_in_one_region_lose_nothing() {
    const STORES: u64 = 5_000_000;
    let (door, start) = (door(), Barrier::new(4));
    thread::scope(|scope| {
        for number in 0..4 {
            let (door, start) = (&door, &start);
            scope.spawn(move || {
                let counters = Counters::new();
                start.wait();
                for round in 0..STORES {
                    let at = (number * 1000 + round % 1000) * 64;
                    door.window(64, &counters).store_word_lazily(at, round);
                }
            });
        }
    });
    assert_eq!(door.wear().stored_bytes(0), 4 * STORES * 64);
}

#[test]
fn a_door_that_was_not_asked_counts_nothing() {
    let door = Door::new(Mapped::anonymous(PAGE, &RegionOptions::new()).unwrap());
    door.window(64, &Counters::new()).store_line(0, &Line([1; 64]));
    assert_eq!((door.wear().regions(), door.wear().stored_bytes(0)), (0, 0));
    assert_eq!(door.wear().memory_bytes(), 0);
}

#[test]
fn what_one_stores_who_counts_alone_is_counted_once_when_it_is_asked_for() {
    let (door, counters) = (door(), alone(REGIONS * REGION));
    let stored = || (0..REGIONS).map(|region| door.wear().stored_bytes(region)).collect::<Vec<_>>();
    for region in (0..REGIONS).chain(0..3) {
        door.window(64, &counters).store_line(region * REGION, &Line([1; 64]));
    }
    door.window(128, &counters).copy_nt(0, &noise(128, 1));
    let expected = |region: u64| match region {
        0 => 256,
        1 | 2 => 128,
        _ => 64,
    };
    let expected: Vec<u64> = (0..REGIONS).map(expected).collect();
    for _ in 0..2 {
        door.fence(&counters).unwrap();
        door.count_all(&counters);
        assert_eq!(stored(), expected);
    }
}

/// A counter in memory that all processors have is added to where a region has to give its place to another one, not with each
/// fence, nor before the fence.
#[test]
fn a_region_is_counted_with_the_fence_behind_what_takes_its_place() {
    let (door, counters) = (door(), alone(3 * REGION));
    let stored = |region| door.wear().stored_bytes(region);
    for round in 1..=3 {
        for region in 4..8 {
            door.window(64, &counters).copy_nt(region * REGION, &[7; 64]);
            door.fence(&counters).unwrap();
            assert_eq!(stored(region), 0, "{round}");
        }
    }
    door.window(64, &counters).copy_nt(9 * REGION, &[7; 64]);
    door.fence_more(&counters).unwrap();
    assert_eq!(stored(5), 0);
    door.fence(&counters).unwrap();
    assert_eq!([4, 5, 6, 7, 9].map(stored), [0, 3 * 64, 0, 0, 0]);
    assert_eq!(counters.read().fences, 14);
    door.count_all(&counters);
    assert_eq!([4, 5, 6, 7, 9].map(stored), [192, 192, 192, 192, 64]);
}

#[test]
fn more_regions_than_wait_for_a_fence_are_counted_at_once() {
    let (door, counters) = (door(), alone(0));
    for region in 0..REGIONS {
        door.window(64, &counters).copy_nt(region * REGION, &[7; 64]);
    }
    let counted = || (0..REGIONS).filter(|region| door.wear().stored_bytes(*region) == 64).count();
    let before = counted();
    assert!(before > 0 && before < REGIONS as usize);
    door.count_all(&counters);
    assert_eq!(counted(), REGIONS as usize);
}

/// By what is stored at random, against counts that are kept beside.
#[test]
fn nothing_is_lost_or_counted_twice_whatever_is_stored_in_whatever_order() {
    for places in [0, 1, 5, REGIONS] {
        any_stores(places * REGION);
    }
}

fn any_stores(places_bytes: u64) {
    let (door, counters) = (door(), alone(places_bytes));
    let (mut expected, mut random) = ([0; REGIONS as usize], 1_u64);
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (kind, spread) = (random >> 60, 1 + (random >> 52 & 15));
        let region = (random >> 33) % REGIONS % spread;
        match kind {
            0..=11 => {
                door.window(64, &counters).store_line(region * REGION, &Line([1; 64]));
                expected[region as usize] += 64;
            }
            12..=14 => door.fence(&counters).unwrap(),
            _ => door.fence_more(&counters).unwrap(),
        }
        assert!(door.wear().stored_bytes(region) <= expected[region as usize]);
    }
    door.count_all(&counters);
    let stored: Vec<u64> = (0..REGIONS).map(|region| door.wear().stored_bytes(region)).collect();
    assert_eq!(stored, expected);
}
