//! A scrub tells of all that a reader is refused: of what names lead to and is not there, of what an opening for reading alone has
//! gone on without, and of what is read where it waits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::scrub_seen::{Counted, CountedPool, LEVELS, Made, PAGE, SLOT, create, made, open};
use lode_engine::layout::slot_at;
use lode_engine::{
    AccessTimes, Error, Finding, Ino, OpenOptions, Outcome, Pool, Protection, What, ino_beside,
};
use lode_testkit::TestHost;

/// Opens it for reading alone.
fn read_only(memory: &Counted) -> CountedPool {
    let options =
        OpenOptions { read_only: true, atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

/// The pool as the next session finds it that follows a crash.
fn after_crash(made: Made) -> Made {
    Made { pool: open(&made.memory), ..made }
}

/// A bit of a line flips, in both copies where there are two.
fn damage(made: &Made, protection: Protection, at: u64) {
    made.scribble(at);
    if protection != Protection::None {
        made.scribble(made.twin(at));
    }
}

fn lost(ino: Ino, at: u64) -> Finding {
    Finding { what: What::Metadata, outcome: Outcome::Lost, ino, at, offset: 0, bytes: 0 }
}

#[test]
fn what_a_name_leads_to_and_no_copy_tells_of_after_a_crash_is_found_lost_at_its_place() {
    for protection in LEVELS {
        let made = after_crash(made(protection));
        create(&made.pool, b"other");
        damage(&made, protection, slot_at(made.ino) + 20);
        let made = after_crash(made);
        let found = made.pool.lookup(made.pool.root(), b"file");
        assert!(matches!(found, Err(Error::Corrupt(_))), "{protection:?}: {found:?}");
        for step in [1, 1 << 20] {
            let (_, told) = made.scrub_by(step);
            assert_eq!(told, [lost(made.ino, slot_at(made.ino))], "{protection:?}");
        }
        let named = made.pool.paths_of(&[made.ino]);
        assert_eq!(named, Ok(vec![(made.ino, b"file".to_vec())]));
        assert!(made.pool.lookup(made.pool.root(), b"other").is_ok());
    }
}

#[test]
fn one_of_many_names_that_leads_to_nothing_is_found_and_none_beside_it() {
    for protection in LEVELS {
        let made = made(protection);
        let all: Vec<Ino> =
            (0..100).map(|one| create(&made.pool, format!("{one}").as_bytes())).collect();
        let made = after_crash(made);
        assert_eq!(made.scrub_by(100).1, []);
        damage(&made, protection, slot_at(all[70]) + 20);
        let made = after_crash(made);
        assert_eq!(made.scrub_by(100).1, [lost(all[70], slot_at(all[70]))], "{protection:?}");
        made.pool.unlink(made.pool.root(), b"71").unwrap();
        assert_eq!(made.scrub_by(100).1.len(), 1);
    }
}

#[test]
fn what_a_name_in_a_snapshot_leads_to_is_found_lost_though_nothing_has_that_name_now() {
    for protection in LEVELS {
        let made = made(protection);
        made.pool.create_snapshot(b"kept").unwrap();
        made.pool.unlink(made.pool.root(), b"file").unwrap();
        let made = after_crash(made);
        assert_eq!(made.scrub(), []);
        damage(&made, protection, slot_at(made.ino) + 20);
        let made = after_crash(made);
        let dir = made.pool.snapshot_root(b"kept").unwrap();
        let found = made.pool.lookup(dir, b"file");
        assert!(matches!(found, Err(Error::Corrupt(_))), "{protection:?}: {found:?}");
        let wanted = lost(ino_beside(made.ino, dir), slot_at(made.ino));
        assert_eq!(made.scrub(), [wanted], "{protection:?}");
        // With the snapshot goes what has the name.
        made.pool.delete_snapshot(b"kept").unwrap();
        assert_eq!(made.scrub(), []);
    }
}

/// Nothing says of a line that it is bad in one copy where it is not, or there is one.
#[test]
fn an_opening_for_reading_after_a_crash_has_what_it_misses_told_as_lost_at_its_place() {
    for protection in LEVELS {
        let made = made(protection);
        let other = create(&made.pool, b"other");
        let at = slot_at(made.ino);
        damage(&made, protection, at + 20);
        let pool = read_only(&made.memory);
        let made = Made { pool, ..made };
        assert!(!made.pool.opening().damage.is_empty());
        let found = made.pool.lookup(made.pool.root(), b"file");
        assert!(matches!(found, Err(Error::Corrupt(_))), "{protection:?}: {found:?}");
        assert!(made.pool.getattr(other).is_ok());
        assert_eq!(made.scrub(), [lost(made.ino, at)], "{protection:?}");
    }
}

#[test]
fn a_root_that_a_reader_finds_to_be_lost_is_damaged_and_not_gone() {
    for protection in LEVELS {
        let made = made(protection);
        made.pool.create_snapshot(b"kept").unwrap();
        let root = made.pool.root();
        damage(&made, protection, slot_at(root) + 20);
        let made = Made { pool: read_only(&made.memory), ..made };
        let kept = made.pool.snapshot_root(b"kept");
        for dir in [Ok(root), kept] {
            let told = dir.and_then(|dir| made.pool.getattr(dir));
            assert!(matches!(told, Err(Error::Corrupt(_))), "{protection:?}: {told:?}");
        }
        let found = made.scrub();
        assert!(found.contains(&lost(root, slot_at(root))), "{protection:?}: {found:?}");
    }
}

#[test]
fn what_began_in_a_slot_that_a_snapshot_keeps_is_lost_and_not_gone() {
    for protection in LEVELS {
        let made = made(protection);
        let short = create(&made.pool, b"short");
        made.pool.create_snapshot(b"kept").unwrap();
        made.pool.unlink(made.pool.root(), b"short").unwrap();
        made.pool.maintain().unwrap();
        made.pool.close().unwrap();
        let made = Made { pool: open(&made.memory), ..made };
        damage(&made, protection, slot_at(short) + 64 + 20);
        let seen = ino_beside(short, made.pool.snapshot_root(b"kept").unwrap());
        let told = made.pool.getattr(seen);
        assert!(matches!(told, Err(Error::Corrupt(_))), "{protection:?}: {told:?}");
        let found = made.scrub();
        assert!(found.iter().any(|one| (one.outcome, one.ino) == (Outcome::Lost, seen)));
    }
}

#[test]
fn bad_room_behind_the_end_of_a_log_that_is_known_costs_a_snapshot_nothing() {
    for protection in LEVELS {
        let made = made(protection);
        made.pool.create_snapshot(b"kept").unwrap();
        // (The room for a death is asked for whatever is known.)
        let last = made.ino * SLOT + 6 * 64;
        made.poison(last, 64);
        if protection != Protection::None {
            made.poison(made.twin(last), 64);
        }
        made.same("kept");
    }
}

#[test]
fn what_waits_in_a_journal_is_looked_at_there_by_who_only_reads() {
    for protection in [Protection::None, Protection::Metadata] {
        let made = made(protection);
        let (offset, len) = (3 * PAGE + 1024, 512);
        let text: Vec<u8> = (0..len).map(|at| (at / 3) as u8 ^ 0xA5).collect();
        made.pool.write(made.ino, offset, &text).unwrap();
        let home = made.page(3) * PAGE + 1024;
        let image = made.memory.memory.inner().image();
        let mut places = image.windows(len as usize).enumerate();
        let waits = places.find(|(at, it)| *it == text && *at as u64 != home).unwrap().0 as u64;
        made.poison(waits + 64, 64);
        let made = Made { pool: read_only(&made.memory), ..made };
        assert!(made.pool.read(made.ino, offset, &mut vec![0; len as usize]).is_err());
        let (what, outcome) = (What::Data, Outcome::Lost);
        let (at, offset, bytes) = (home + 64, offset + 64, 64);
        let wanted = Finding { what, outcome, ino: made.ino, at, offset, bytes };
        assert_eq!(made.scrub(), [wanted], "{protection:?}");
    }
}
