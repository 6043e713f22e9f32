//! Entries against a plain model; the hash against its published values.

#![allow(clippy::unwrap_used, clippy::panic)]

extern crate std;

use super::*;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::vec::Vec;

/// Key and message 00 01 02 .. of the SipHash paper.
const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

#[test]
fn hash_has_the_published_values() {
    let message: Vec<u8> = (0..64).collect();
    assert_eq!(siphash::<2, 4>(KEY, &message[..15]), 0xa129_ca61_49be_45e5);
    assert_eq!(siphash::<2, 4>(KEY, &message[..0]), 0x726f_db47_dd0e_0e31);
    assert_eq!(siphash::<2, 4>(KEY, &message[..8]), 0x93f5_f579_9a93_2462);
    // The standard library's hasher is SipHash-1-3 with a key of zeros.
    for length in 0..64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&message[..length]);
        assert_eq!(hash([0, 0], &message[..length]), hasher.finish());
    }
    assert_ne!(hash(KEY, b"name"), hash([0, 0], b"name"));
}

#[test]
fn cookies_stay_in_their_range() {
    let mut entries = Entries::default();
    for hash in [0, 1, HASH_MASK, HASH_MASK + 1, u64::MAX] {
        for _ in 0..60 {
            let cookie = entries.insert(hash, 1, 0o10, 64, 0).unwrap();
            assert!((256..1 << 63).contains(&cookie));
        }
    }
}

#[test]
fn colliding_names_are_told_apart() {
    let mut entries = Entries::default();
    let cookies: Vec<u64> =
        (0..256).map(|i| entries.insert(77, i, 0o10, 64 * i, 3).unwrap()).collect();
    assert_eq!(cookies, (0..256).map(|i| 77 << 8 | i).collect::<Vec<_>>());
    assert_eq!(entries.insert(77, 9, 0o10, 0, 0), Err(Error::NoSpace));
    assert_eq!(entries.len(), 256);
    entries.insert(78, 9, 0o10, 0, 0).unwrap();
    entries.insert(76, 9, 0o10, 0, 0).unwrap();
    assert_eq!(entries.candidates(77).map(|e| e.cookie).collect::<Vec<_>>(), cookies);
    for gap in [255, 100, 0] {
        assert_eq!(entries.remove(cookies[gap]).unwrap().ino, gap as u64);
        assert_eq!(entries.insert(77, 1000, 0o4, 0, 0), Ok(cookies[gap]));
    }
    assert_eq!(entries.subdirectories(), 3);
}

#[test]
fn entries_match_a_plain_model() {
    let mut entries = Entries::default();
    let mut model: HashMap<u64, Entry> = HashMap::new();
    let mut state = 0x1234_5678_9abc_u64;
    let mut roll = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % sides
    };
    for step in 0..30_000u64 {
        let hash = 1 + roll(300);
        let any = hash << 8 | roll(4);
        let kind = if roll(3) == 0 { 0o4 } else { 0o10 };
        match roll(4) {
            0 | 1 if model.len() < 900 => {
                let cookie = entries.insert(hash, step, kind, step * 64, 7).unwrap();
                let new = Entry { cookie, ino: step, at: step * 64, origin: 7, kind };
                assert_eq!(cookie >> 8, hash);
                assert_eq!(model.insert(cookie, new), None);
            }
            _ => assert_eq!(entries.remove(any), model.remove(&any)),
        }
        assert_eq!(entries.get(any), model.get(&any).copied());
        if step % 500 == 0 {
            let mut sorted: Vec<Entry> = model.values().copied().collect();
            sorted.sort_by_key(|entry| entry.cookie);
            assert_eq!(entries.iter().collect::<Vec<_>>(), sorted);
            assert_eq!(entries.after(0).collect::<Vec<_>>(), sorted);
            let behind: Vec<Entry> = sorted.iter().filter(|e| e.cookie > any).copied().collect();
            assert_eq!(entries.after(any).collect::<Vec<_>>(), behind);
            let same: Vec<Entry> =
                sorted.iter().filter(|e| e.cookie >> 8 == hash).copied().collect();
            assert_eq!(entries.candidates(hash).collect::<Vec<_>>(), same);
            assert_eq!((entries.len(), entries.is_empty()), (model.len(), model.is_empty()));
            let directories = model.values().filter(|entry| entry.kind == 0o4).count();
            assert_eq!(entries.subdirectories(), directories);
        }
    }
}

#[test]
fn records_can_move() {
    let mut entries = Entries::default();
    let cookie = entries.insert(5, 1, 0o4, 64, 0).unwrap();
    entries.insert(6, 2, 0o10, 128, 0).unwrap();
    entries.for_each_mut(&mut |at, body| {
        if at == cookie {
            body.at = 4096;
        }
    });
    entries.for_each_mut(&mut |_, body| {
        body.origin += 1;
    });
    let moved = Entry { cookie, ino: 1, at: 4096, origin: 1, kind: 0o4 };
    assert_eq!(entries.get(cookie), Some(moved));
    assert_eq!(entries.iter().map(|entry| entry.origin).collect::<Vec<_>>(), [1, 1]);
    assert!(entries.get(0).is_none() && entries.get(u64::MAX).is_none());
    assert_eq!(entries.after(u64::MAX).count(), 0);
}

#[test]
fn a_million_entries_are_found() {
    let mut entries = Entries::default();
    for i in 0..1_000_000u64 {
        entries.insert(hash(KEY, &i.to_le_bytes()), i, 0o10, i * 64, 0).unwrap();
    }
    assert_eq!(entries.len(), 1_000_000);
    for i in (0..1_000_000u64).step_by(37) {
        assert!(entries.candidates(hash(KEY, &i.to_le_bytes())).any(|entry| entry.ino == i));
    }
}
