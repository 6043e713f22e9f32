//! The map against the standard library's.

#![allow(clippy::unwrap_used)]

extern crate std;

use super::*;
use std::collections::BTreeMap;
use std::vec::Vec;

fn rolls(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % sides
    }
}

/// No node is empty, too wide, or has keys outside its place; returns the number of levels.
fn verify(node: &Node<u64>, low: u64, high: Option<u64>, root: bool) -> usize {
    assert!(node.width() <= WIDTH && (root || node.width() > 0));
    let inside = |key: u64| key >= low && high.is_none_or(|high| key < high);
    match node {
        Node::Leaf(entries) => {
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
            assert!(entries.iter().all(|entry| inside(entry.0)));
            1
        }
        Node::Inner(inner) => {
            assert!(inner.lows.len() == inner.children.len() && (!root || inner.lows.len() > 1));
            assert!(inner.lows.is_sorted_by(|a, b| a < b));
            let mut levels = Vec::new();
            for (at, child) in inner.children.iter().enumerate() {
                let end = inner.lows.get(at + 1).copied().or(high);
                levels.push(verify(child, inner.lows[at].max(low), end, false));
            }
            assert!(levels.iter().all(|level| *level == levels[0]), "leaves at different levels");
            levels[0] + 1
        }
    }
}

fn compare(map: &Sorted<u64>, model: &BTreeMap<u64, u64>, key: u64) {
    assert_eq!(map.len(), model.len());
    assert_eq!(map.get(key), model.get(&key).copied());
    let pair = |(key, value): (&u64, &u64)| (*key, *value);
    assert_eq!(map.around(key)[0], model.range(..=key).next_back().map(pair));
    assert_eq!(map.first_from(key), model.range(key..).next().map(pair));
    assert_eq!(map.around(key)[1], model.range(key + 1..).next().map(pair));
}

#[test]
fn it_does_what_the_standard_map_does() {
    for seed in 1..=30u64 {
        let mut roll = rolls(seed);
        let (mut map, mut model) = (Sorted::default(), BTreeMap::new());
        let span = [50, 2_000, 100_000, u64::MAX >> 11][roll(4) as usize];
        for round in 0..6 {
            // Mostly growing, then mostly shrinking.
            let growth = if round % 2 == 0 { 8 } else { 2 };
            for _ in 0..3_000 {
                let key = if roll(20) == 0 { u64::MAX - roll(3) } else { roll(span) };
                if roll(10) < growth {
                    let value = roll(1 << 20);
                    let there = model.contains_key(&key);
                    if there && roll(2) == 0 {
                        assert!(!map.insert_new(key, value));
                    } else {
                        map.insert(key, value);
                        model.insert(key, value);
                    }
                } else {
                    let near = model.range(key..).next().map_or(key, |(key, _)| *key);
                    assert_eq!(map.remove(near), model.remove(&near));
                }
                compare(&map, &model, roll(span));
            }
            verify(&map.root, 0, None, true);
            assert!(map.iter().eq(model.iter().map(|(key, value)| (*key, *value))));
            let from = roll(span);
            let expected = model.range(from..).map(|(key, value)| (*key, *value));
            assert!(map.iter_from(from).eq(expected));
        }
        let (mut beside, keys) = (0, model.keys().copied().collect::<Vec<u64>>());
        for window in keys.windows(3) {
            if let Some(three) = map.beside_mut(window[1]) {
                assert!(three.iter().map(|entry| &entry.0).eq(window));
                beside += 1;
            }
        }
        assert!(beside * 4 >= keys.len().saturating_sub(2), "few have both neighbours beside them");
        map.for_each_mut(&mut |key, value| *value ^= key);
        assert!(map.iter().eq(model.iter().map(|(key, value)| (*key, *value ^ *key))));
    }
}

#[test]
fn ascending_keys_fill_their_nodes_and_removed_ones_give_memory_back() {
    let mut map = Sorted::default();
    assert_eq!(map.memory_bytes(), 0);
    for key in 0..100_000u64 {
        map.insert(key, key);
    }
    assert_eq!(verify(&map.root, 0, None, true), 3);
    assert!(map.memory_bytes() < 100_000 * 16 * 11 / 10, "{}", map.memory_bytes());
    for key in (0..100_000u64).filter(|key| key % 50 != 0) {
        map.remove(key);
    }
    verify(&map.root, 0, None, true);
    assert!(map.memory_bytes() < 2_000 * 16 * 8, "{}", map.memory_bytes());
    for key in (0..2_000u64).rev().map(|at| at * 50) {
        assert_eq!(map.remove(key), Some(key));
    }
    assert_eq!(map.len(), 0);
    assert!(map.memory_bytes() <= 4 * 16, "room for a few more");
}

#[test]
fn random_keys_cost_little_more_than_their_entries() {
    let (mut roll, mut map) = (rolls(7), Sorted::default());
    for _ in 0..100_000 {
        map.insert(roll(u64::MAX), 0u64);
    }
    let least = map.len() as u64 * 16;
    assert!(map.memory_bytes() < least * 7 / 5, "{} of {least}", map.memory_bytes());
}
