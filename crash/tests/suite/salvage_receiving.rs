//! A pool that a snapshot is being received into is salvaged, and the power fails in that: nobody goes on receiving over
//! what the salvage has given up.

use lode_crash::region::{Pages, Profile, Rules, Simulated, Stored};
use lode_crash::states::units_of;
use lode_engine::{
    AccessTimes, Corruption, FormatOptions, Ino, NewInode, OpenOptions, Pool, Protection,
    SnapshotId, mode,
};
use lode_testkit::TestHost;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};

type Simple = Pool<Simulated, TestHost>;

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const ID: SnapshotId = SnapshotId { pool: [7; 16], epoch: 11, created_ns: 12 };

fn open(medium: &Simulated, read_only: bool, receiving: bool) -> lode_engine::Result<Simple> {
    let atime = AccessTimes::Never;
    let options = OpenOptions { read_only, receiving, atime, ..OpenOptions::default() };
    Pool::open(medium.clone(), TestHost::new(5), &options)
}

fn tree(pool: &Simple) -> Snapshot {
    snapshot_from(pool, pool.root(), Times::ALL, None).unwrap()
}

/// A half-received pool, what it was before, what it is to who receives, and a file of before.
fn half(level: Protection, is_closed: bool) -> (Pages, [Snapshot; 2], Ino) {
    let medium = Simulated::plain(&Pages::new(1 << 20));
    let format = FormatOptions {
        lanes: 1,
        log_lines: 5,
        protection: level,
        dead_zone: if level == Protection::None { 0 } else { 8192 },
        ..FormatOptions::default()
    };
    Pool::format(medium.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&medium, false, false).unwrap();
    let root = pool.root();
    let old = pool.create(root, b"old", &FILE).unwrap().ino;
    pool.write(old, 0, &[1; 5000]).unwrap();
    pool.create_snapshot(b"older").unwrap();
    pool.create(root, b"gone soon", &FILE).unwrap();
    let before = tree(&pool);
    pool.begin_receiving(b"new", &ID, b"half").unwrap();
    pool.unlink(root, b"gone soon").unwrap();
    for name in [&b"a"[..], b"b", b"c"] {
        let made = pool.create(root, name, &FILE).unwrap();
        pool.write(made.ino, 0, name).unwrap();
    }
    pool.write(old, 100, &[2; 300]).unwrap();
    let after = tree(&pool);
    if is_closed {
        pool.close().unwrap();
    }
    (medium.seen(), [before, after], old)
}

/// Each state that may be left at a point: nothing, all, each place alone, all but one.
fn each_state(medium: &Simulated, judge: &mut dyn FnMut(&str, &Simulated)) {
    for (number, point) in medium.take_points().iter().enumerate() {
        let units = units_of(point, Profile::Adr, false);
        let last: Vec<u16> = units.units.iter().map(|unit| unit.whole as u16 - 1).collect();
        let none = vec![0; last.len()];
        let mut choices = vec![none.clone(), last.clone()];
        for place in 0..last.len() {
            for (rest, one) in [(&none, &last), (&last, &none)] {
                let mut choice = rest.clone();
                choice[place] = one[place];
                choices.push(choice);
            }
        }
        for (state, choice) in choices.iter().enumerate() {
            let left = Simulated::plain(&units.image(&point.durable, choice));
            judge(&format!("point {number}, state {state}"), &left);
        }
    }
}

/// Salvages `image`, cut off everywhere. Says how many states go on, and how many do not.
fn salvaged(image: &Pages, after: Option<&Snapshot>) -> Result<[usize; 2], String> {
    let medium = Simulated::new(image.clone(), Rules::default());
    medium.settle();
    medium.record(true);
    Pool::salvage(medium.clone(), TestHost::new(8), &mut |_| ()).unwrap();
    medium.record(false);
    let wanted = tree(&open(&medium, true, false).unwrap());
    let (mut counts, mut wrong) = ([0, 0], None);
    each_state(&medium, &mut |place, left| {
        let copy = Simulated::plain(&left.seen());
        let pool = open(&copy, false, true);
        let mark = pool.as_ref().ok().and_then(|pool| pool.receiving().unwrap());
        let goes_on = mark.is_some();
        if goes_on
            && let Some(after) = after
            && let Some(what) = difference(after, &tree(&pool.unwrap()))
        {
            wrong = Some(format!("{place}: it goes on over {what}"));
        }
        counts[usize::from(!goes_on)] += 1;
        // Who only looks sees what was before; made sound again, it is that.
        for again in [Simulated::plain(&left.seen()), copy] {
            Pool::salvage(again.clone(), TestHost::new(8), &mut |_| ()).unwrap();
            let pool = open(&again, false, false).unwrap();
            if let Some(what) = difference(&wanted, &tree(&pool)) {
                wrong = Some(format!("{place}: salvaged again: {what}"));
            }
            // (What the snapshots have lost of that is told as long as they are there.)
            let damage = pool.check(&mut |_, _| ()).unwrap().damage;
            let is_of_now = |one: &&Corruption| !Simple::is_in_snapshot(one.ino);
            assert_eq!(damage.iter().find(is_of_now), None, "{place}");
            assert_eq!(pool.receiving(), Ok(None), "{place}");
        }
    });
    wrong.map_or(Ok(counts), Err)
}

#[test]
fn a_salvage_that_is_cut_off_lets_nobody_receive_over_what_it_has_given_up() {
    for (level, is_closed) in [
        (Protection::None, false),
        (Protection::Metadata, true),
        (Protection::Full, false),
        (Protection::None, true),
    ] {
        let (image, trees, old) = half(level, is_closed);
        let pool = open(&Simulated::plain(&image), true, false).unwrap();
        assert_eq!(difference(&trees[0], &tree(&pool)), None);
        let [goes_on, ended] = salvaged(&image, Some(&trees[1])).unwrap();
        assert!(goes_on > 0 && ended > 10, "{level:?}: {goes_on} and {ended}");
        // The same where it gives up an inode, too: who receives meets that, and nothing goes on.
        let mut damaged = image.clone();
        let line = [0xa5; 64];
        for at in [old * 512 + 64, (old * 512 + 64) ^ twin(&image)] {
            damaged.store(at / 64 * 64, u64::MAX, &line, Stored::Metadata);
        }
        salvaged(&damaged, None).unwrap();
    }
}

fn twin(image: &Pages) -> u64 {
    let mut log2 = [0];
    image.load(92, &mut log2);
    if log2[0] == 0 { 0 } else { 4096 << log2[0] }
}
