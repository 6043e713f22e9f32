//! The full check looks at what only snapshots see, and who changes the whole pool asks it first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::scrub_seen::{
    Counted, CountedPool, LEVELS, Made, PAGE, SLOT, create, made, open, set_attribute,
};
use lode_engine::{
    CheckReport, Corruption, Error, Ino, NewInode, OpenOptions, Pool, Protection, RenameMode,
    Salvage, SetAttr, ino_beside, mode,
};
use lode_testkit::TestHost;

/// What is hit of a file that has ended: offsets in its slot or log of what both copies lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hit {
    Identity,
    End,
    Page,
    Log,
}

const HITS: [Hit; 4] = [Hit::Identity, Hit::End, Hit::Page, Hit::Log];

fn check(pool: &CountedPool) -> CheckReport {
    let (mut last, mut all) = (0, None);
    let report = pool.check(&mut |done, of| {
        assert!(done >= last && all.is_none_or(|all| all == of), "{last} {done} {of} {all:?}");
        (last, all) = (done, Some(of));
    });
    assert_eq!(Some(last), all);
    report.unwrap()
}

/// A file with a long log, that has ended, and where it is hit.
fn dead(protection: Protection) -> (Made, impl Fn(Hit) -> u64) {
    let made = made(protection);
    for number in 0..40 {
        let mode = Some(0o600 | (number % 8));
        made.pool.setattr(made.ino, &SetAttr { mode, ..SetAttr::default() }).unwrap();
        set_attribute(&made.pool, made.ino, Some(&[number as u8; 20]));
    }
    set_attribute(&made.pool, made.ino, Some(&[7; 3000]));
    let log = made.pool.dump_inode(made.ino).unwrap().log_pages[0];
    create(&made.pool, b"other");
    made.pool.create_snapshot(b"older").unwrap();
    made.pool.create_snapshot(b"kept").unwrap();
    made.pool.unlink(made.pool.root(), b"file").unwrap();
    made.pool.maintain().unwrap();
    let slot = made.ino * SLOT;
    let places = move |hit| match hit {
        Hit::Identity => slot + 20,
        Hit::End => slot + 7 * 64 + 8,
        Hit::Page => log + 20,
        Hit::Log => log + 3 * 64 + 8,
    };
    (made, places)
}

fn again(made: Made) -> Made {
    made.pool.close().unwrap();
    Made { pool: open(&made.memory), ..made }
}

/// In each copy that there is.
fn hit(made: &Made, at: u64, protection: Protection) {
    made.scribble(at);
    if protection != Protection::None {
        made.scribble(made.twin(at));
    }
}

fn only_of(report: &CheckReport, ino: Ino, case: &str) -> Corruption {
    let [damage] = report.damage.as_slice() else { panic!("{case}: {report:?}") };
    assert_eq!(damage.ino, ino, "{case}: {damage}");
    *damage
}

#[test]
fn an_inode_that_only_snapshots_see_is_checked_and_found_once_however_often_it_is_asked() {
    for (protection, which) in LEVELS.into_iter().flat_map(|it| HITS.map(|hit| (it, hit))) {
        for is_next in [false, true] {
            let (made, places) = dead(protection);
            assert_eq!(check(&made.pool).damage, []);
            let made = if is_next { again(made) } else { made };
            hit(&made, places(which), protection);
            let case = format!("{protection:?} {which:?} next {is_next}");
            let seen = made.seen("kept");
            for _ in 0..2 {
                let damage = only_of(&check(&made.pool), seen, &case);
                assert!(damage.to_string().contains("in a snapshot"), "{damage}");
            }
            assert_eq!(made.pool.snapshot_of(seen), Ok(Some(b"kept".to_vec())), "{case}");
            // With the latest snapshot it goes on to the older one, and ends with that.
            made.pool.delete_snapshot(b"kept").unwrap();
            made.pool.maintain().unwrap();
            only_of(&check(&made.pool), made.seen("older"), &case);
            made.pool.delete_snapshot(b"older").unwrap();
            made.pool.maintain().unwrap();
            assert_eq!(check(&made.pool).damage, [], "{case}");
            made.pool.close().unwrap();
            assert_eq!(check(&open(&made.memory)).damage, [], "{case}");
        }
    }
}

#[test]
fn one_copy_of_it_is_told_of_and_mended_as_all_other_metadata() {
    for (protection, which) in
        [Protection::Metadata, Protection::Full].into_iter().flat_map(|it| HITS.map(|h| (it, h)))
    {
        for is_twin in [false, true] {
            let (made, places) = dead(protection);
            let at = places(which);
            let at = if is_twin { made.twin(at) } else { at };
            made.pool.close().unwrap();
            let was = made.memory.memory.inner().get(at, 8);
            made.scribble(at);
            let case = format!("{protection:?} {which:?} twin {is_twin}");
            let reads = OpenOptions { read_only: true, ..OpenOptions::default() };
            let pool = Pool::open(made.memory.clone(), TestHost::new(2), &reads).unwrap();
            let report = check(&pool);
            assert_eq!((report.damage.len(), report.differing.len()), (0, 1), "{case}");
            drop(pool);
            let report = check(&open(&made.memory));
            assert_eq!((report.damage.len(), report.mended), (0, 1), "{case}");
            assert_eq!(made.memory.memory.inner().get(at, 8), was, "{case}");
        }
    }
}

#[test]
fn a_value_that_only_a_snapshot_sees_is_checked() {
    for is_dead in [false, true] {
        let made = made(Protection::Metadata);
        set_attribute(&made.pool, made.ino, Some(&[0xA7; 3000]));
        made.pool.create_snapshot(b"kept").unwrap();
        match is_dead {
            true => made.pool.unlink(made.pool.root(), b"file").unwrap(),
            false => set_attribute(&made.pool, made.ino, Some(&[1; 3000])),
        }
        made.pool.maintain().unwrap();
        assert_eq!(check(&made.pool).damage, []);
        let image = made.memory.memory.inner().image();
        let at = image.windows(3000).position(|it| it.iter().all(|byte| *byte == 0xA7)).unwrap();
        made.scribble(at as u64 + 9);
        let damage = only_of(&check(&made.pool), made.seen("kept"), "value");
        assert_eq!(damage.at / PAGE, at as u64 / PAGE);
        let lost = made.pool.lost_in_snapshot(b"kept").unwrap();
        assert_eq!((lost.count, &lost.named[0].path[..]), (1, &b"file"[..]));
    }
}

/// By the first damage an opening over memory that has lost stores knows whether the pool as it is has any.
#[test]
fn what_a_snapshot_has_lost_of_an_inode_that_lives_is_told_behind_what_the_pool_has_lost() {
    let made = made(Protection::None);
    set_attribute(&made.pool, made.ino, Some(&[0xA7; 3000]));
    made.pool.create_snapshot(b"kept").unwrap();
    set_attribute(&made.pool, made.ino, Some(&[1; 3000]));
    let later = create(&made.pool, b"later");
    assert!(later > made.ino);
    let made = again(made);
    let image = made.memory.memory.inner().image();
    let at = image.windows(3000).position(|it| it.iter().all(|byte| *byte == 0xA7)).unwrap();
    made.scribble(at as u64 + 9);
    made.scribble(later * SLOT + 20);
    let inos: Vec<Ino> = check(&made.pool).damage.iter().map(|damage| damage.ino).collect();
    let is_kept = |ino: &Ino| CountedPool::is_in_snapshot(*ino);
    assert!(inos.iter().any(is_kept) && !inos.iter().all(is_kept), "{inos:?}");
    assert!(inos.is_sorted_by_key(is_kept), "{inos:?}");
}

#[test]
fn a_name_of_a_snapshot_whose_inode_is_forgotten_is_found() {
    for protection in LEVELS {
        let (made, places) = dead(protection);
        // (A crash of the next session: nothing but the slot knows then that somebody was there.)
        let made = again(made);
        create(&made.pool, b"later");
        hit(&made, places(Hit::Identity), protection);
        let made = Made { pool: open(&made.memory), ..made };
        let seen = made.seen("kept");
        let what = only_of(&check(&made.pool), seen, "forgotten").what;
        assert_eq!(what, "entry of a snapshot leads to no inode");
        assert_eq!(made.pool.paths_of(&[seen]), Ok(vec![(seen, b"file".to_vec())]));
        // Who gets its slot is somebody else.
        (0..30).for_each(|number| _ = create(&made.pool, format!("new {number}").as_bytes()));
        assert!(made.pool.getattr(made.ino).is_ok());
        only_of(&check(&made.pool), seen, "another");
        let root = made.pool.snapshot_root(b"kept").unwrap();
        assert!(matches!(made.pool.lookup(root, b"file"), Err(Error::Corrupt(_))));
    }
}

#[test]
fn names_that_came_and_went_between_snapshots_lead_to_what_they_led_to() {
    let made = made(Protection::None);
    let root = made.pool.root();
    let new = NewInode { mode: mode::DIRECTORY | 0o700, uid: 0, gid: 0, rdev: 0 };
    for round in 0..12u32 {
        let dir = made.pool.create(root, b"dir", &new).unwrap().ino;
        for number in 0..20 {
            let name = format!("{number} with a name that takes more than one line of a log");
            create(&made.pool, b"made");
            made.pool.rename(root, b"made", dir, name.as_bytes(), RenameMode::Replace).unwrap();
            made.pool.link(made.ino, dir, format!("link {number}").as_bytes()).unwrap();
        }
        made.pool.create_snapshot(format!("s{round}").as_bytes()).unwrap();
        let mut names = Vec::new();
        let each = &mut |entry: lode_engine::DirEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        made.pool.readdir(dir, 0, each).unwrap();
        names.iter().for_each(|name| made.pool.unlink(dir, name).unwrap());
        made.pool.rmdir(root, b"dir").unwrap();
        if round % 3 == 2 {
            made.pool.delete_snapshot(format!("s{}", round - 1).as_bytes()).unwrap();
        }
        made.pool.maintain().unwrap();
        assert_eq!(check(&made.pool).damage, []);
    }
    let made = again(made);
    assert_eq!(check(&made.pool).damage, []);
    // (After a crash, too.)
    assert_eq!(check(&open(&made.memory)).damage, []);
}

#[test]
fn a_check_does_not_take_longer_the_more_snapshots_see_it() {
    let mut loads = Vec::new();
    for snapshots in [1, 50] {
        let made = made(Protection::None);
        let gone: Vec<Ino> =
            (0..30).map(|number| create(&made.pool, format!("gone {number}").as_bytes())).collect();
        for number in 0..snapshots {
            made.pool.create_snapshot(format!("s{number}").as_bytes()).unwrap();
        }
        for number in 0..gone.len() {
            made.pool.unlink(made.pool.root(), format!("gone {number}").as_bytes()).unwrap();
        }
        let made = again(made);
        let pages: Vec<u64> = gone.iter().map(|ino| ino * SLOT / PAGE).collect();
        made.loads.take(&[]);
        assert_eq!(check(&made.pool).damage, []);
        loads.push(made.loads.take(&pages));
    }
    assert_eq!(loads[0], loads[1]);
}

#[test]
fn a_change_of_the_level_is_refused_and_what_is_lost_stays_so() {
    let levels = [
        (Protection::None, Protection::Full),
        (Protection::Metadata, Protection::None),
        (Protection::Full, Protection::Metadata),
    ];
    for ((protection, wanted), which) in levels.into_iter().flat_map(|it| HITS.map(|h| (it, h))) {
        let (made, places) = dead(protection);
        made.pool.close().unwrap();
        hit(&made, places(which), protection);
        let case = format!("{protection:?} {which:?}");
        for _ in 0..2 {
            let changed = CountedPool::protect(
                made.memory.clone(),
                TestHost::new(3),
                wanted,
                None,
                &mut |_, _| (),
            );
            assert!(matches!(changed, Err(Error::Corrupt(_))), "{case}: {changed:?}");
        }
        let made = Made { pool: open(&made.memory), ..made };
        assert_eq!(made.pool.info().unwrap().protection, protection);
        assert!(made.pool.opening().clean, "{case}");
        only_of(&check(&made.pool), made.seen("kept"), &case);
        let root = made.pool.snapshot_root(b"kept").unwrap();
        // (What it was before its end is whole.)
        match made.pool.lookup(root, b"file") {
            Ok(_) => assert_eq!(which, Hit::End, "{case}"),
            other => assert!(matches!(other, Err(Error::Corrupt(_))), "{case}: {other:?}"),
        }
        assert!(made.pool.lookup(root, b"other").is_ok());
        // Without the snapshots it goes on.
        made.pool.delete_snapshot(b"kept").unwrap();
        made.pool.delete_snapshot(b"older").unwrap();
        made.pool.close().unwrap();
        let (medium, host) = (made.memory.clone(), TestHost::new(3));
        let changed = CountedPool::protect(medium, host, wanted, None, &mut |_, _| ());
        // (Whose end is lost is there again for a recovery, until somebody has its slot.)
        assert!(changed == Ok(true) || which == Hit::End, "{case}: {changed:?}");
    }
}

fn stores(memory: &Counted) -> Vec<u8> {
    memory.memory.inner().image()
}

#[test]
fn a_rollback_to_a_snapshot_of_which_something_is_lost_is_refused_before_anything_is_stored() {
    // (The end of what has ended later is none of what comes back.)
    let hits = HITS.into_iter().filter(|hit| *hit != Hit::End);
    for (which, protection) in hits.flat_map(|hit| LEVELS.map(|it| (hit, it))) {
        let (made, places) = dead(protection);
        made.pool.create_snapshot(b"without").unwrap();
        made.pool.close().unwrap();
        hit(&made, places(which), protection);
        let case = format!("{protection:?} {which:?}");
        let before = stores(&made.memory);
        for name in [&b"kept"[..], b"older"] {
            let rolled = CountedPool::rollback(made.memory.clone(), TestHost::new(3), name);
            assert!(matches!(rolled, Err(Error::Corrupt(_))), "{case}: {rolled:?}");
        }
        assert!(stores(&made.memory) == before, "{case}");
        let made = Made { pool: open(&made.memory), ..made };
        let lost = made.pool.lost_in_snapshot(b"kept").unwrap();
        assert_eq!((lost.count, &lost.named[0].path[..]), (1, &b"file"[..]), "{case}");
        assert_eq!(made.pool.lost_in_snapshot(b"without").unwrap().count, 0, "{case}");
        assert_eq!(made.pool.lost_in_snapshot(b"none"), Err(Error::NotFound));
        made.pool.close().unwrap();
        rest_of(&made, &case);
    }
}

/// Who wants the rest has it, and what is lost is found or given up, but never there as something else.
fn rest_of(made: &Made, case: &str) {
    let rolled = CountedPool::rollback_to_rest(made.memory.clone(), TestHost::new(3), b"kept");
    assert!(matches!(rolled, Ok(()) | Err(Error::Corrupt(_))), "{case}: {rolled:?}");
    let reads = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(made.memory.clone(), TestHost::new(2), &reads).unwrap();
    assert_ne!(check(&pool).damage, [], "{case}");
    drop(pool);
    let told = &mut |_: Salvage<'_>| ();
    CountedPool::salvage(made.memory.clone(), TestHost::new(4), told).unwrap();
    let pool = open(&made.memory);
    assert_eq!(pool.lookup(pool.root(), b"file"), Err(Error::NotFound), "{case}");
    assert!(pool.lookup(pool.root(), b"other").is_ok(), "{case}");
    let names: Vec<_> = pool.snapshot_names().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"older".to_vec(), b"kept".to_vec()], "{case}");
    // The snapshots have not got it back.
    let left = check(&pool).damage;
    let seen = ino_beside(made.ino, pool.snapshot_root(b"kept").unwrap());
    assert!(left.iter().all(|one| one.ino == seen) && left.len() == 1, "{case}: {left:?}");
}

#[test]
fn a_rollback_to_what_is_whole_does_not_ask_for_what_others_have_lost() {
    let (made, places) = dead(Protection::Metadata);
    made.pool.create_snapshot(b"without").unwrap();
    made.pool.close().unwrap();
    hit(&made, places(Hit::Identity), Protection::Metadata);
    CountedPool::rollback(made.memory.clone(), TestHost::new(3), b"without").unwrap();
    let pool = open(&made.memory);
    let seen = ino_beside(made.ino, pool.snapshot_root(b"kept").unwrap());
    only_of(&check(&pool), seen, "another's");
}
