//! A scrub looks at what only snapshots see, too: once, under the latest snapshot that sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::scrub_seen::{
    LEVELS, Made, PAGE, PAGES, SLOT, create, data, made, made_in, open, pages_of, set_attribute,
};
use lode_engine::layout::{CrcTable, slot_at};
use lode_engine::{
    Error, Finding, Ino, NewInode, Outcome, Protection, RenameMode, SetAttr, What, mode,
};
use lode_testkit::Healing;

#[test]
fn a_page_that_only_a_snapshot_sees_is_made_right_from_what_is_kept_of_it() {
    for (is_dead, which) in
        [false, true].into_iter().flat_map(|dead| (0..4).map(move |it| (dead, it)))
    {
        let made = made(Protection::Full);
        let page = made.page(2);
        made.pool.create_snapshot(b"kept").unwrap();
        match is_dead {
            true => made.pool.unlink(made.pool.root(), b"file").unwrap(),
            false => made.overwrite(2),
        }
        made.pool.maintain().unwrap();
        let strips = made.strips();
        let crcs = [CrcTable::First, CrcTable::Second].map(|table| strips.crcs_at(page, table));
        let parity = strips.parity_at(page) + 200;
        let at = [page * PAGE + 700, crcs[0] + 5, crcs[1] + 5, parity][which];
        let was = made.memory.memory.inner().get(at, 1);
        made.scribble(at);
        let repaired = data(Outcome::Repaired, made.seen("kept"), page * PAGE, 2 * PAGE, PAGE);
        assert_eq!(made.scrub(), [repaired], "{is_dead} {which}");
        assert_eq!(made.memory.memory.inner().get(at, 1), was);
        assert_eq!(made.scrub(), []);
        made.same("kept");
        made.sound();
    }
}

#[test]
fn what_nothing_can_tell_of_such_a_page_is_lost_and_where_parity_can_it_stays() {
    let made = made(Protection::Full);
    let pages = made.pages();
    made.pool.create_snapshot(b"kept").unwrap();
    made.pool.unlink(made.pool.root(), b"file").unwrap();
    let seen = made.seen("kept");
    // (At other columns: or else two of them would cancel out in the parity.)
    for strip in [1, 4] {
        made.scribble(pages[1] * PAGE + strip * 520);
    }
    made.poison(pages[3] * PAGE + 512, 64);
    let lost = |strip: u64| {
        data(Outcome::Lost, seen, pages[1] * PAGE + strip * 512, PAGE + strip * 512, 512)
    };
    let left = data(Outcome::Left, seen, pages[3] * PAGE, 3 * PAGE, PAGE);
    for _ in 0..2 {
        assert_eq!(made.scrub(), [lost(1), lost(4), left]);
    }
    assert_eq!(made.memory.memory.machine_checks(), 0);
    made.sound();
}

#[test]
fn bytes_behind_the_end_of_a_file_that_became_shorter_are_looked_at_as_snapshots_see_them() {
    for protection in LEVELS {
        for later in ["nothing", "shown as it is", "longer again", "removed", "opened again"] {
            let mut made = made(protection);
            let page = made.page(1);
            made.pool.create_snapshot(b"kept").unwrap();
            let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
            made.pool.setattr(made.ino, &size(PAGE + 100)).unwrap();
            match later {
                "shown as it is" => made.pool.create_snapshot(b"later").unwrap(),
                "longer again" => made.pool.setattr(made.ino, &size(3 * PAGE)).map(drop).unwrap(),
                "removed" => made.pool.unlink(made.pool.root(), b"file").unwrap(),
                "opened again" => {
                    made.pool.close().unwrap();
                    made.pool = open(&made.memory);
                }
                _ => (),
            }
            let seen = made.seen("kept");
            // (Two strips: at level full one would be made good.)
            let at = [2048, 3072];
            at.iter().for_each(|at| made.poison(page * PAGE + at, 512));
            let lost = |at: &u64| data(Outcome::Lost, seen, page * PAGE + at, PAGE + at, 512);
            let expected: Vec<Finding> = at.iter().map(lost).collect();
            assert_eq!(made.scrub(), expected, "{protection:?}, {later}");
        }
    }
}

#[test]
fn bytes_of_a_snapshot_that_cannot_be_loaded_are_named_with_its_path() {
    for protection in [Protection::None, Protection::Metadata] {
        for is_dead in [false, true] {
            let made = made(protection);
            let page = made.page(2);
            made.pool.create_snapshot(b"kept").unwrap();
            match is_dead {
                true => made.pool.unlink(made.pool.root(), b"file").unwrap(),
                false => made.overwrite(2),
            }
            let seen = made.seen("kept");
            made.poison(page * PAGE + 128, 128);
            let lost = data(Outcome::Lost, seen, page * PAGE + 128, 2 * PAGE + 128, 128);
            assert_eq!(made.scrub(), [lost], "{protection:?} {is_dead}");
            assert_eq!(made.pool.paths_of(&[seen]), Ok(vec![(seen, b"file".to_vec())]));
            assert_eq!(made.pool.snapshot_of(seen), Ok(Some(b"kept".to_vec())));
            assert_eq!(made.pool.snapshot_of(made.ino), Ok(None));
            // What goes bad in the session before is found by the next.
            let again = open(&made.memory);
            let made = Made { pool: again, ..made };
            assert_eq!(made.scrub(), [Finding { ino: made.seen("kept"), ..lost }]);
        }
    }
}

/// A file with a long log that has ended, and where lines of its log are: in its slot, and in pages.
fn dead(protection: Protection, healing: Healing) -> (Made, [u64; 4]) {
    let made = made_in(protection, healing);
    for number in 0..40 {
        let mode = Some(0o600 | (number % 8));
        let change = SetAttr { mode, ..SetAttr::default() };
        made.pool.setattr(made.ino, &change).unwrap();
        set_attribute(&made.pool, made.ino, Some(&[number as u8; 20]));
    }
    let log_pages = made.pool.dump_inode(made.ino).unwrap().log_pages;
    made.pool.create_snapshot(b"kept").unwrap();
    made.pool.unlink(made.pool.root(), b"file").unwrap();
    made.pool.maintain().unwrap();
    let slot = made.ino * SLOT;
    (made, [slot + 8, slot + 7 * 64 + 8, log_pages[0] + 8, log_pages[0] + 64 + 8])
}

#[test]
fn metadata_of_a_dead_inode_that_a_snapshot_sees_is_made_good_from_its_twin() {
    for protection in [Protection::Metadata, Protection::Full] {
        for which in 0..8 {
            let (made, places) = dead(protection, Healing::Never);
            let first = places[which % 4];
            let at = if which < 4 { first } else { made.twin(first) };
            let was = made.memory.memory.inner().get(at, 8);
            made.scribble(at);
            let found = made.scrub();
            let (what, outcome, ino) = (What::Metadata, Outcome::Repaired, made.seen("kept"));
            let at_line = first - first % 64;
            let mended = Finding { what, outcome, ino, at: at_line, offset: 0, bytes: 0 };
            assert_eq!(found, [mended], "{protection:?} {which}");
            assert_eq!(made.memory.memory.inner().get(at, 8), was);
            assert_eq!(made.scrub(), []);
            made.same("kept");
            made.sound();
        }
    }
}

#[test]
fn a_copy_that_stays_bad_of_a_dead_inode_is_left_and_where_there_is_no_other_it_is_lost() {
    for (protection, which) in LEVELS.into_iter().flat_map(|it| [(it, 0), (it, 3)]) {
        let (made, places) = dead(protection, Healing::Never);
        let at = places[which] - places[which] % 64;
        made.poison(at, 64);
        let outcome = match protection {
            Protection::None => Outcome::Lost,
            _ => Outcome::Left,
        };
        let (what, ino) = (What::Metadata, made.seen("kept"));
        let found = made.scrub();
        let wanted = Finding { what, outcome, ino, at, offset: 0, bytes: 0 };
        assert!(!found.is_empty() && found.iter().all(|one| *one == wanted), "{found:?}");
    }
}

#[test]
fn the_end_of_a_dead_inode_is_lost_where_no_copy_tells_of_it() {
    for protection in LEVELS {
        let (made, places) = dead(protection, Healing::Never);
        made.scribble(places[1]);
        if protection != Protection::None {
            made.scribble(made.twin(places[1]));
        }
        let (what, outcome, ino) = (What::Metadata, Outcome::Lost, made.seen("kept"));
        let at = places[1] - places[1] % 64;
        assert_eq!(made.scrub(), [Finding { what, outcome, ino, at, offset: 0, bytes: 0 }]);
    }
}

/// Of a file that has ended and of one that lives, by who reads it in a snapshot and by a scrub, in this session and the next.
#[test]
fn who_was_in_a_slot_that_a_snapshot_keeps_is_lost_and_not_gone_where_no_copy_tells_of_it() {
    for (protection, is_dead) in LEVELS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        for is_next in [false, true] {
            let made = made(protection);
            made.pool.create_snapshot(b"kept").unwrap();
            if is_dead {
                made.pool.unlink(made.pool.root(), b"file").unwrap();
                made.pool.maintain().unwrap();
            }
            let made = match is_next {
                true => {
                    made.pool.close().unwrap();
                    Made { pool: open(&made.memory), ..made }
                }
                false => made,
            };
            let at = slot_at(made.ino);
            made.scribble(at + 20);
            if protection != Protection::None {
                made.scribble(made.twin(at + 20));
            }
            let seen = made.seen("kept");
            let case = format!("{protection:?}, dead {is_dead}, next {is_next}");
            let read = made.pool.read(seen, 0, &mut [0; 10]);
            assert!(matches!(read, Err(Error::Corrupt(_))), "{case}: {read:?}");
            let told = made.pool.getattr(seen);
            assert!(matches!(told, Err(Error::Corrupt(_))), "{case}: {told:?}");
            let found = made.scrub();
            let is_it = |one: &&Finding| (one.outcome, one.at) == (Outcome::Lost, at);
            let whose: Vec<_> = found.iter().filter(is_it).map(|one| one.ino).collect();
            assert!(whose == [if is_dead { seen } else { made.ino }], "{case}: {found:?}");
            // What was never there is still nothing.
            let other = made.pool.getattr(seen + 40);
            assert_eq!(other, Err(Error::Stale), "{case}");
        }
    }
}

#[test]
fn nothing_is_looked_at_twice_nor_left_out() {
    for protection in LEVELS {
        let made = made(protection);
        let mut all = made.pages();
        let (_, none) = made.scrub_by(5000);
        assert_eq!(none, []);
        for (name, page) in [("first", 1), ("second", 1), ("third", 4)] {
            made.pool.create_snapshot(name.as_bytes()).unwrap();
            made.overwrite(page);
            all.push(made.page(page));
        }
        let times = vec![1; all.len()];
        for step in [1, 5000, 1 << 30] {
            made.loads.take(&[]);
            assert_eq!(made.scrub_by(step).1, []);
            assert_eq!(made.loads.take(&all), times, "{protection:?}, {step}");
        }
        let (before, _) = made.scrub_by(5000);
        made.pool.create_snapshot(b"last").unwrap();
        let (after, _) = made.scrub_by(5000);
        assert_eq!(before, after);
        // All that was looked at of the file stays, and is looked at as often.
        made.pool.unlink(made.pool.root(), b"file").unwrap();
        made.pool.maintain().unwrap();
        for step in [1, 5000, 1 << 30] {
            made.loads.take(&[]);
            let (done, found) = made.scrub_by(step);
            assert_eq!((done, found), (before, vec![]));
            assert_eq!(made.loads.take(&all), times, "{protection:?}, {step}, dead");
        }
        // Of snapshots of another order, too.
        for name in ["second", "last", "first", "third"] {
            made.pool.delete_snapshot(name.as_bytes()).unwrap();
            for is_done in [false, true] {
                if is_done {
                    made.pool.maintain().unwrap();
                }
                made.loads.take(&[]);
                assert_eq!(made.scrub_by(5000).1, []);
                let often = made.loads.take(&all);
                assert!(often.iter().all(|times| *times <= 1), "{often:?}");
                let sees = if name == "third" { 0 } else { PAGES as usize };
                let looked = often.iter().filter(|times| **times == 1).count();
                assert!(looked >= sees, "{name}: {often:?}");
            }
        }
        assert_eq!(made.loads.take(&all), vec![0; all.len()]);
    }
}

#[test]
fn a_page_of_two_snapshots_is_found_once_and_under_the_one_that_is_left() {
    for protection in LEVELS {
        let made = made(protection);
        let page = made.page(2);
        for name in [b"one", b"two"] {
            made.pool.create_snapshot(name).unwrap();
        }
        made.overwrite(2);
        made.poison(page * PAGE + 64, 64);
        for name in ["two", "one"] {
            let seen = made.seen(name);
            let found = made.scrub();
            match protection {
                Protection::Full => {
                    let left = data(Outcome::Left, seen, page * PAGE, 2 * PAGE, PAGE);
                    assert_eq!(found, [left]);
                }
                _ => {
                    let (at, offset) = (page * PAGE + 64, 2 * PAGE + 64);
                    assert_eq!(found, [data(Outcome::Lost, seen, at, offset, 64)]);
                }
            }
            made.pool.delete_snapshot(name.as_bytes()).unwrap();
        }
        made.pool.maintain().unwrap();
        assert_eq!(made.scrub(), []);
    }
}

#[test]
fn a_snapshot_that_is_deleted_meanwhile_is_passed_over_whatever_its_pages_are_then() {
    for protection in LEVELS {
        for after in 0.. {
            let made = made(protection);
            made.pool.create_snapshot(b"older").unwrap();
            (0..PAGES).for_each(|page| made.overwrite(page));
            let gone = create(&made.pool, b"gone");
            made.pool.write(gone, 0, &made.bytes).unwrap();
            let kept = [made.pages(), pages_of(&made.pool, gone)].concat();
            made.pool.create_snapshot(b"kept").unwrap();
            (0..PAGES).for_each(|page| made.overwrite(page));
            made.pool.unlink(made.pool.root(), b"gone").unwrap();
            let mut scrub = made.pool.begin_scrub().unwrap();
            let mut steps = 0;
            while !scrub.is_over() {
                if steps == after {
                    made.pool.delete_snapshot(b"kept").unwrap();
                    made.pool.maintain().unwrap();
                    let other = create(&made.pool, b"other");
                    let mut size = 0;
                    while made.pool.write(other, size, &[3; PAGE as usize]).is_ok() {
                        size += PAGE;
                    }
                    let theirs = pages_of(&made.pool, other);
                    assert!(kept.iter().all(|page| theirs.contains(page)));
                    // (It was made later than the scrub has begun: that doesn't look at it.)
                    kept.iter().for_each(|page| made.poison(page * PAGE, 64));
                }
                made.pool.scrub(&mut scrub, 1).unwrap();
                steps += 1;
            }
            assert_eq!(scrub.take_findings(), [], "{protection:?}, {after}");
            made.sound();
            if after > steps {
                assert!(steps > PAGES * 2);
                break;
            }
        }
    }
}

#[test]
fn attributes_that_only_a_snapshot_sees_are_looked_at_and_a_scrub_gets_on_by_small_steps() {
    for protection in LEVELS {
        for is_dead in [false, true] {
            let made = made(protection);
            let value: Vec<u8> = (0..9000).map(|at| (at / 11) as u8).collect();
            set_attribute(&made.pool, made.ino, Some(&value));
            let image = made.memory.memory.inner().image();
            let found = image.windows(4096).position(|window| *window == value[..4096]).unwrap();
            made.pool.create_snapshot(b"kept").unwrap();
            made.overwrite(1);
            made.loads.take(&[]);
            assert_eq!(made.scrub_by(1).1, []);
            assert_eq!(made.loads.take(&[found as u64 / PAGE]), [1]);
            match is_dead {
                true => made.pool.unlink(made.pool.root(), b"file").unwrap(),
                false => set_attribute(&made.pool, made.ino, Some(&[5; 9000])),
            }
            let pages = [found as u64 / PAGE];
            made.loads.take(&[]);
            assert_eq!(made.scrub_by(1).1, []);
            assert_eq!(made.loads.take(&pages), [1]);
            made.scribble(found as u64 + 100);
            let found = made.scrub_by(1).1;
            let wanted = |one: &Finding| (one.what, one.outcome, one.ino);
            // (Only the higher level has something that tells what it was.)
            let outcome = match protection {
                Protection::Full => Outcome::Repaired,
                _ => Outcome::Lost,
            };
            let told = (What::Attribute, outcome, made.seen("kept"));
            assert_eq!(found.iter().map(wanted).collect::<Vec<_>>(), [told]);
        }
    }
}

/// Of a file that has ended, and of one that lives, and for which they are home.
#[test]
fn what_a_snapshot_reads_from_a_journal_is_looked_at_there() {
    for (protection, lives) in LEVELS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let made = made(protection);
        let (offset, len) = (3 * PAGE + 1024, 512);
        let text: Vec<u8> = (0..len).map(|at| (at / 3) as u8 ^ 0xA5).collect();
        made.pool.write(made.ino, offset, &text).unwrap();
        made.pool.create_snapshot(b"kept").unwrap();
        let home = made.page(3) * PAGE + 1024;
        if !lives {
            made.pool.unlink(made.pool.root(), b"file").unwrap();
        }
        let image = made.memory.memory.inner().image();
        let places = image.windows(len as usize).enumerate();
        let places: Vec<u64> =
            places.filter(|(_, it)| *it == text).map(|(at, _)| at as u64).collect();
        assert!(places.contains(&home), "{places:?}");
        let waits = places.iter().find(|at| **at != home).unwrap();
        assert_eq!(made.scrub(), []);
        // What is at home then is not what the snapshot reads.
        if !lives {
            made.poison(home + 64, 64);
            if protection != Protection::Full {
                assert_eq!(made.scrub(), []);
            }
            made.memory.memory.mend(home + 64, 64);
        }
        made.poison(waits + 64, 64);
        let found = made.scrub();
        let seen = made.seen("kept");
        match protection {
            Protection::Full => assert_eq!(found, []),
            _ => assert_eq!(found, [data(Outcome::Lost, seen, home + 64, offset + 64, 64)]),
        }
        let mut read = vec![0; len as usize];
        let is_read = made.pool.read(seen, offset, &mut read).is_ok();
        assert_eq!(is_read, protection == Protection::Full);
    }
}

/// A directory that ends with a name in the place of another one, as only a snapshot sees it, and where its log is; the record of that
/// is behind so many others.
fn dead_directory(protection: Protection, changes: u32) -> (Made, Ino, Vec<u64>) {
    let made = made(protection);
    let (pool, root) = (&made.pool, made.pool.root());
    let new = NewInode { mode: mode::DIRECTORY | 0o700, uid: 0, gid: 0, rdev: 0 };
    let dir = pool.create(root, b"dir", &new).unwrap().ino;
    pool.rename(root, b"file", dir, b"old", RenameMode::Replace).unwrap();
    create(pool, b"other");
    pool.rename(root, b"other", dir, b"new", RenameMode::Replace).unwrap();
    for change in 0..changes {
        let change = SetAttr { mode: Some(0o700 | (change % 8)), ..SetAttr::default() };
        pool.setattr(dir, &change).unwrap();
    }
    pool.rename(dir, b"new", dir, b"old", RenameMode::Replace).unwrap();
    let log = pool.dump_inode(dir).unwrap().log_pages;
    pool.create_snapshot(b"kept").unwrap();
    pool.unlink(dir, b"old").unwrap();
    pool.rmdir(root, b"dir").unwrap();
    pool.maintain().unwrap();
    let kept = pool.snapshot_root(b"kept").unwrap();
    let seen = pool.lookup(kept, b"dir").unwrap().ino;
    (made, seen, log)
}

#[test]
fn a_log_that_ends_within_what_was_done_at_once_is_lost() {
    let mut lost = 0;
    for (protection, changes) in LEVELS.into_iter().flat_map(|it| (0..16).map(move |n| (it, n))) {
        let (made, dir, log) = dead_directory(protection, changes);
        assert_eq!(made.scrub(), [], "{protection:?} {changes}");
        let Some(last) = log.last().copied() else { continue };
        let inner = made.memory.memory.inner();
        inner.put(last, &[0xFF; PAGE as usize]);
        if protection != Protection::None {
            inner.put(made.twin(last), &[0xFF; PAGE as usize]);
        }
        if made.pool.lookup(dir, b"old").is_err() {
            let found = made.scrub();
            let told = found.iter().any(|it| (it.ino, it.outcome) == (dir, Outcome::Lost));
            assert!(told, "{protection:?} {changes}: {found:?}");
            lost += 1;
        }
    }
    assert!(lost > 9, "{lost}");
}
