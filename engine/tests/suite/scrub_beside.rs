//! Scrubs of pools with snapshots after random changes, and beside them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::scrub_seen::{CountedPool, LEVELS, Made, PAGE, made, open};
use lode_engine::{Error, NewInode, PagesUsed, SetAttr, Use, XattrChange, XattrWhen, mode};
use lode_testkit::rng::Rng;

/// Changes a file in one of the ways that end something, or makes or deletes a snapshot.
/// By whole pages, or not.
fn change_one(pool: &CountedPool, rng: &mut Rng, name: &[u8], whole: bool) -> Result<(), Error> {
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = match pool.lookup(pool.root(), name) {
        Ok(attr) => attr.ino,
        Err(_) => pool.create(pool.root(), name, &new)?.ino,
    };
    let (offset, bytes) = match whole {
        true => (rng.below(12) * PAGE, vec![6; (1 + rng.below(3) as usize) * PAGE as usize]),
        false => (rng.below(12 * PAGE), vec![7; rng.below(9000) as usize]),
    };
    match rng.below(10) {
        0 => pool.unlink(pool.root(), name),
        1 => {
            let (name, when) = (&b"user.long"[..], XattrWhen::Always);
            pool.setxattr(ino, &XattrChange { name, value: Some(&bytes), when })
        }
        2 => {
            let change = SetAttr { size: Some(offset), ..SetAttr::default() };
            pool.setattr(ino, &change).map(|_| ())
        }
        3 => pool.create_snapshot(name),
        4 => pool.delete_snapshot(name),
        5 => pool.maintain().map(|_| ()),
        6 | 7 if !whole => pool.write(ino, offset, &bytes[..bytes.len() / 20]).map(|_| ()),
        _ => pool.write(ino, offset, &bytes).map(|_| ()),
    }
}

/// Changes files until it is told to stop.
fn change_all(pool: &CountedPool, seed: u64, stops: &AtomicBool) {
    let mut rng = Rng::new(seed);
    let names: Vec<String> = (0..6).map(|number| format!("{seed}-{number}")).collect();
    while !stops.load(Relaxed) {
        let name = rng.pick(&names);
        match change_one(pool, &mut rng, name.as_bytes(), false) {
            Ok(()) | Err(Error::Exists | Error::NotFound) => {}
            Err(Error::NoSpace) => {
                _ = pool.delete_snapshot(name.as_bytes());
                _ = pool.unlink(pool.root(), name.as_bytes());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn all_that_is_in_use_is_looked_at_once_whatever_has_happened() {
    for seed in 0..60 {
        let protection = LEVELS[seed as usize % 3];
        let mut made = made(protection);
        let mut rng = Rng::new(seed);
        for number in 0..150 {
            let name = format!("{}", rng.below(5));
            match change_one(&made.pool, &mut rng, name.as_bytes(), true) {
                Ok(()) | Err(Error::Exists | Error::NotFound) => {}
                Err(error) => panic!("{error}"),
            }
            if number % 40 == 39 {
                if rng.once_in(2) {
                    made.pool.close().unwrap();
                }
                let pool = open(&made.memory);
                made = Made { pool, ..made };
            }
        }
        // (What nobody sees any more becomes free.)
        made.pool.maintain().unwrap();
        let mut all = Vec::new();
        let is_data = |used: &PagesUsed| used.used_for == Use::Data;
        made.pool
            .for_each_use(&mut |used| {
                let pages = Some(used).filter(is_data).map(|it| it.page..it.page + it.pages);
                all.extend(pages.into_iter().flatten());
            })
            .unwrap();
        made.loads.take(&[]);
        assert_eq!(made.scrub(), []);
        let times = made.loads.take(&all);
        let wrong: Vec<_> = all.iter().zip(times).filter(|(_, times)| *times != 1).collect();
        assert_eq!(wrong, [], "seed {seed}");
    }
}

/// Tells others to stop when it ends, also where a test fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn nothing_is_bad_beside_others_who_change_files_and_make_and_delete_snapshots() {
    for protection in LEVELS {
        let made = made(protection);
        let stops = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (pool, stops) = (&made.pool, &stops);
                scope.spawn(move || change_all(pool, seed, stops));
            }
            let _stops = Stops(&stops);
            let began = Instant::now();
            let mut scrubs = 0;
            while scrubs < 3 || began.elapsed().as_millis() < 700 {
                assert_eq!(made.scrub_by(20_000).1, []);
                scrubs += 1;
            }
            println!("{protection:?}: {scrubs} scrubs");
        });
        assert_eq!(made.scrub(), []);
        made.sound();
    }
}
