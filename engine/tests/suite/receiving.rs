//! What is being received into a pool is there wholly or not at all: who does not receive sees what was before, until
//! the end, which is one step; giving it up makes the pool what it was.

use lode_engine::{
    AccessTimes, Error, FormatOptions, NewInode, OpenOptions, Pool, Protection, SnapshotId, mode,
};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const ID: SnapshotId = SnapshotId { pool: [7; 16], epoch: 11, created_ns: 12 };

fn options(read_only: bool, receiving: bool) -> OpenOptions {
    OpenOptions { read_only, receiving, atime: AccessTimes::Never, ..OpenOptions::default() }
}

fn open(memory: &Memory, read_only: bool, receiving: bool) -> Result<TestPool, Error> {
    TestPool::open(memory.clone(), TestHost::new(5), &options(read_only, receiving))
}

fn tree(pool: &TestPool) -> Snapshot {
    snapshot_from(pool, pool.root(), Times::ALL, None).unwrap()
}

/// Does random operations.
fn use_it(pool: &TestPool, generator: &mut Generator, count: usize) {
    let mut handles = Handles::new();
    for _ in 0..count {
        let op = generator.op();
        if !matches!(op, Op::Remount | Op::Crash) {
            let _ = execute(pool, &mut handles, &op);
        }
    }
}

/// A pool of each level that something is being received into, half of them not closed, and what it was.
fn half(seed: u64) -> (Memory, Snapshot) {
    let memory = Memory::new(8 << 20);
    let protection = [Protection::None, Protection::Metadata, Protection::Full][seed as usize % 3];
    let log_lines = [4, 20, 63][seed as usize / 3 % 3];
    let format = FormatOptions { lanes: 2, log_lines, protection, ..FormatOptions::default() };
    TestPool::format(memory.clone(), TestHost::new(seed), &format).unwrap();
    let pool = open(&memory, false, false).unwrap();
    let mut generator = Generator::new(seed, Shape::default());
    use_it(&pool, &mut generator, 60);
    pool.create_snapshot(b"older").unwrap();
    let before = tree(&pool);
    if seed % 4 < 2 {
        pool.close().unwrap();
    }
    let pool = open(&memory, false, false).unwrap();
    assert_eq!(pool.receiving().unwrap(), None);
    assert_eq!(pool.note_receiving(b"x"), Err(Error::NotFound));
    assert_eq!(pool.finish_receiving(), Err(Error::NotFound));
    assert_eq!(pool.begin_receiving(b"older", &ID, b"0"), Err(Error::Exists));
    pool.begin_receiving(b"new", &ID, b"0").unwrap();
    assert_eq!(pool.begin_receiving(b"other", &ID, b"0"), Err(Error::Receiving));
    use_it(&pool, &mut generator, 60);
    pool.note_receiving(&[b'1'; 256]).unwrap();
    assert_eq!(pool.note_receiving(&[b'1'; 257]), Err(Error::TooLong));
    use_it(&pool, &mut generator, 20);
    if seed.is_multiple_of(2) {
        pool.close().unwrap();
    }
    (memory, before)
}

#[test]
fn until_the_end_all_others_see_what_was_before() {
    for seed in 0..60 {
        let (memory, before) = half(seed);
        assert_eq!(open(&memory, false, false).err(), Some(Error::Receiving));
        let grown = Memory::from_image(&[memory.image(), vec![0; 1 << 20]].concat());
        assert_eq!(TestPool::grow(grown, TestHost::new(1)).err(), Some(Error::Receiving));
        let rolled = TestPool::rollback(memory.copy(), TestHost::new(1), b"older");
        assert_eq!(rolled.err(), Some(Error::Receiving));
        let pool = open(&memory, true, false).unwrap();
        assert_eq!(difference(&before, &tree(&pool)), None, "seed {seed}");
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
        let names: Vec<_> = pool.snapshots().unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, [b"older".to_vec()]);
        assert_eq!(pool.snapshot_root(b"new"), Err(Error::NotFound));
        let mark = pool.receiving().unwrap().unwrap();
        assert_eq!((mark.name, mark.id, mark.note), (b"new".to_vec(), ID, vec![b'1'; 256]));
    }
}

#[test]
fn its_end_is_the_snapshot_with_the_senders_identity() {
    for seed in 0..60 {
        let (memory, before) = half(seed);
        let pool = open(&memory, false, true).unwrap();
        let after = tree(&pool);
        pool.finish_receiving().unwrap();
        let names: Vec<_> = pool.snapshots().unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, [b"older".to_vec(), b"new".to_vec()]);
        if seed.is_multiple_of(3) {
            pool.close().unwrap();
        }
        let pool = open(&memory, false, false).unwrap();
        assert_eq!(pool.snapshot_id(b"new"), Ok(ID));
        assert_eq!(pool.snapshot_id(b"older").unwrap().pool, pool.info().unwrap().uuid);
        assert_eq!(difference(&after, &tree(&pool)), None, "seed {seed}");
        for (name, wanted) in [(&b"new"[..], &after), (b"older", &before)] {
            let root = pool.snapshot_root(name).unwrap();
            let found = snapshot_from(&pool, root, Times::ALL, None).unwrap();
            assert_eq!(difference(wanted, &found), None, "seed {seed}");
        }
        pool.maintain().unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
        pool.close().unwrap();
        assert!(open(&memory, false, false).unwrap().opening().clean);
    }
}

#[test]
fn what_is_given_up_leaves_the_pool_as_it_was() {
    for seed in 0..60 {
        let (memory, before) = half(seed);
        if seed % 3 == 2 {
            // Salvage gives it up, too.
            TestPool::salvage(memory.clone(), TestHost::new(1), &mut |_| ()).unwrap();
        } else {
            TestPool::abandon_receiving(memory.clone(), TestHost::new(1)).unwrap();
        }
        let again = TestPool::abandon_receiving(memory.clone(), TestHost::new(1));
        assert_eq!(again.err(), Some(Error::NotFound));
        let pool = open(&memory, false, false).unwrap();
        assert_eq!(difference(&before, &tree(&pool)), None, "seed {seed}");
        assert_eq!(pool.snapshots().unwrap().len(), 1);
        assert_eq!(pool.receiving().unwrap(), None);
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
        // Nothing of it is left.
        pool.begin_receiving(b"new", &ID, b"").unwrap();
    }
}

/// Whether what a crash has left of a pool goes on to be received: it has all of that then, and else nothing; and whether
/// its opening ends that it is given up. Who only looks is told the same, and sees what was before.
fn goes_on(image: &Memory, (before, after): (&Snapshot, &Snapshot), fences: u64) -> [bool; 2] {
    let image = Memory::from_image(&image.image());
    let reader = open(&image, true, false).unwrap();
    assert_eq!(difference(before, &tree(&reader)), None, "{fences}");
    let is_marked = reader.receiving().unwrap().is_some();
    let given_up = reader.opening().given_up;
    drop(reader);
    let pool = open(&image, false, true).unwrap();
    assert_eq!(pool.opening().given_up, given_up, "{fences}");
    let goes_on = pool.receiving().unwrap().is_some();
    assert_eq!((goes_on, goes_on && given_up), (is_marked, false), "{fences}");
    let wanted = if goes_on { after } else { before };
    assert_eq!(difference(wanted, &tree(&pool)), None, "{fences}");
    if !goes_on {
        assert_eq!(pool.finish_receiving(), Err(Error::NotFound), "{fences}");
    }
    [goes_on, given_up]
}

#[test]
fn what_is_being_given_up_does_not_go_on() {
    let mut ended = 0;
    for fences in 0..40 {
        let (memory, before) = half(fences);
        let after = tree(&open(&memory, true, true).unwrap());
        let image = Memory::from_image(&memory.image());
        image.fail_fences_after(fences);
        let _ = TestPool::abandon_receiving(image.clone(), TestHost::new(1));
        let image = Memory::from_image(&image.image());
        let [goes_on, _] = goes_on(&image, (&before, &after), fences);
        if !goes_on {
            // Nobody has to ask for it again.
            let pool = open(&image, false, false).unwrap();
            assert_eq!(difference(&before, &tree(&pool)), None, "{fences}");
            ended += u64::from(pool.opening().given_up);
            pool.close().unwrap();
        }
        let again = TestPool::abandon_receiving(image.clone(), TestHost::new(1));
        assert_eq!(again.is_ok(), goes_on, "{fences}");
        let pool = open(&image, false, false).unwrap();
        assert_eq!(difference(&before, &tree(&pool)), None, "{fences}");
    }
    assert!(ended > 0);
}

#[test]
fn it_is_given_up_in_a_full_pool_too() {
    for seed in 0..6 {
        let memory = Memory::new(2 << 20);
        let protection =
            [Protection::None, Protection::Metadata, Protection::Full][seed as usize % 3];
        let format =
            FormatOptions { lanes: 2, protection, dead_zone: 64 << 10, ..FormatOptions::default() };
        TestPool::format(memory.clone(), TestHost::new(seed), &format).unwrap();
        let pool = open(&memory, false, false).unwrap();
        let before = tree(&pool);
        pool.begin_receiving(b"new", &ID, &[7; 200]).unwrap();
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let (mut size, mut number) = (100_000, 0);
        while size > 0 {
            let name = format!("f{number}");
            let made = pool.create(pool.root(), name.as_bytes(), &new);
            let written = made.and_then(|made| pool.write(made.ino, 0, &vec![1; size]));
            (size, number) =
                if written.is_err() { (size / 2, number + 1) } else { (size, number + 1) };
        }
        while pool.note_receiving(&[number as u8; 200]).is_ok() && number < 100_000 {
            number += 1;
        }
        if seed < 3 {
            let _ = pool.close();
        }
        drop(pool);
        TestPool::abandon_receiving(memory.clone(), TestHost::new(1)).unwrap();
        let pool = open(&memory, false, false).unwrap();
        assert_eq!(difference(&before, &tree(&pool)), None, "seed {seed}");
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
    }
}

/// What a salvage has erased of it can't be received any more: it says so before it erases anything.
#[test]
fn what_a_salvage_has_begun_to_give_up_does_not_go_on() {
    let mut ended = 0;
    for fences in 0..40 {
        let (memory, before) = half(fences);
        let after = tree(&open(&memory, true, true).unwrap());
        let image = Memory::from_image(&memory.image());
        image.fail_fences_after(fences / 2);
        let _ = TestPool::salvage(image.clone(), TestHost::new(1), &mut |_| ());
        let image = Memory::from_image(&image.image());
        let [_, given_up] = goes_on(&image, (&before, &after), fences);
        ended += u64::from(given_up);
        TestPool::salvage(image.clone(), TestHost::new(1), &mut |_| ()).unwrap();
        let pool = open(&image, false, false).unwrap();
        assert_eq!(difference(&before, &tree(&pool)), None, "{fences}");
        assert_eq!(pool.receiving().unwrap(), None, "{fences}");
    }
    assert!(ended > 0);
}
