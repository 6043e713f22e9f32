//! What a recovery has mended and erased is durable before its session is: a second crash, and the loss of a line after
//! that, show no half of a transaction.

use lode_crash::region::{Pages, Profile, Rules, Simulated};
use lode_crash::states::{Units, units_of};
use lode_engine::{
    AccessTimes, FormatOptions, NewInode, OpenOptions, Pool, Protection, RenameMode, mode,
};
use lode_testkit::TestHost;

type Simple = Pool<Simulated, TestHost>;

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn open(medium: &Simulated) -> lode_engine::Result<Simple> {
    let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(medium.clone(), TestHost::new(5), &options)
}

/// A pool with two copies of metadata, in which a file is being renamed from one directory to another: the rename
/// is on its way to the memory.
fn renaming() -> Simulated {
    let medium = Simulated::plain(&Pages::new(1 << 20));
    let format = FormatOptions {
        lanes: 1,
        protection: Protection::Metadata,
        dead_zone: 8192,
        ..FormatOptions::default()
    };
    Pool::format(medium.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&medium).unwrap();
    let [from, to] =
        [&b"from"[..], b"to"].map(|name| pool.create(pool.root(), name, &DIRECTORY).unwrap().ino);
    pool.create(from, b"file", &FILE).unwrap();
    pool.close().unwrap();
    let medium = Simulated::new(medium.seen(), Rules::default());
    let pool = open(&medium).unwrap();
    medium.settle();
    medium.record(true);
    pool.rename(from, b"file", to, b"file", RenameMode::Replace).unwrap();
    medium.record(false);
    medium
}

/// In which of the two directories the file is.
fn names(pool: &Simple) -> [bool; 2] {
    [&b"from"[..], b"to"].map(|name| {
        let dir = pool.lookup(pool.root(), name).unwrap().ino;
        pool.lookup(dir, b"file").is_ok()
    })
}

/// Each of these lines as it was, or as it was to be, and all others as they were to be.
fn each_of(units: &Units, lines: &[u64]) -> Vec<Vec<u16>> {
    let all: Vec<u16> = units.units.iter().map(|unit| unit.all).collect();
    let doubtful: Vec<usize> = lines.iter().filter_map(|line| units.unit_of(*line)).collect();
    let choose = |mask: u32| {
        let mut choice = all.clone();
        for (bit, unit) in doubtful.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1) {
            let _ = bit;
            choice[*unit] = 0;
        }
        choice
    };
    (0..1 << doubtful.len()).map(choose).collect()
}

#[test]
fn what_recovery_mends_is_durable_before_its_session() {
    let renamed = renaming();
    let point = renamed.take_points().into_iter().next().unwrap();
    let units = units_of(&point, Profile::Adr, false);
    let lines: Vec<u64> = units.lines().collect();
    assert!((4..=10).contains(&lines.len()), "{lines:x?}");
    let mut looked = 0;
    for choice in each_of(&units, &lines) {
        let crashed = units.image(&point.durable, &choice);
        let medium = Simulated::new(crashed, Rules::default());
        medium.record(true);
        drop(open(&medium).unwrap());
        medium.record(false);
        let mut points = medium.take_points();
        points.push(medium.point());
        for (number, point) in points.iter().enumerate() {
            let units = units_of(point, Profile::Adr, false);
            for again in each_of(&units, &lines) {
                let crashed = units.image(&point.durable, &again);
                for line in &lines {
                    let medium = Simulated::plain(&crashed);
                    medium.poison(*line, 1);
                    let pool = open(&medium).unwrap();
                    let found = names(&pool);
                    let story = format!("{choice:?}, point {number}, {again:?}, {line:#x} lost");
                    assert!(found[0] != found[1], "{story}: {found:?}");
                    let damage = pool.check(&mut |_, _| ()).unwrap().damage;
                    assert!(damage.is_empty(), "{story}: {damage:?}");
                    looked += 1;
                }
            }
        }
    }
    println!("{looked} second crashes with a line lost");
    assert!(looked > 100, "{looked}");
}
