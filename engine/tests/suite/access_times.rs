//! Access times as each way to keep them has it: never, relative to changes and the day, always.

use lode_engine::{AccessTimes, FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_testkit::{Memory, TestHost};

const HOUR_NS: i64 = 3_600_000_000_000;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };

/// Looks at a file, a directory and a link at `now_ns`; the access times that they have then.
fn look(pool: &lode_testkit::fs::TestPool, host: &TestHost, now_ns: i64) -> [i64; 3] {
    host.set_now(now_ns);
    let root = pool.root();
    let of = |name: &[u8]| pool.lookup(root, name).unwrap().ino;
    let (file, link) = (of(b"file"), of(b"link"));
    pool.read(file, 0, &mut [0; 4]).unwrap();
    pool.readlink(link).unwrap();
    pool.readdir(root, 0, &mut |_| true).unwrap();
    [file, root, link].map(|ino| pool.getattr(ino).unwrap().atime_ns)
}

#[test]
fn they_move_after_a_change_after_a_day_or_always() {
    let all = [AccessTimes::Never, AccessTimes::Relative, AccessTimes::Always];
    for atime in all {
        let (memory, host) = (Memory::new(1 << 20), TestHost::new(1));
        host.set_now(HOUR_NS);
        Pool::format(memory.clone(), host.clone(), &FormatOptions::default()).unwrap();
        let options = OpenOptions { atime, ..OpenOptions::default() };
        let pool = Pool::open(memory.clone(), host.clone(), &options).unwrap();
        let file = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
        pool.write(file, 0, b"text").unwrap();
        pool.symlink(pool.root(), b"link", b"file", 0, 0).unwrap();
        let made = look(&pool, &host, HOUR_NS);
        // Hours, and whether the time is to move then.
        for (hours, relative) in [(2, true), (3, false), (25, false), (26, true), (27, false)] {
            let before = look_at(&pool);
            let seen = look(&pool, &host, hours * HOUR_NS);
            let moves = atime == AccessTimes::Always || relative && atime == AccessTimes::Relative;
            let wanted = if moves { [hours * HOUR_NS; 3] } else { before };
            assert_eq!(seen, wanted, "{atime:?} after {hours} hours");
        }
        if atime == AccessTimes::Never {
            assert_eq!(look_at(&pool), made);
        }
        // Quietly, never.
        let before = look_at(&pool);
        host.set_now(99 * HOUR_NS);
        pool.read_quietly(file, 0, &mut [0; 4]).unwrap();
        assert_eq!(look_at(&pool), before);
        // And as the medium has it.
        pool.close().unwrap();
        let pool = Pool::open(memory.copy(), host.clone(), &options).unwrap();
        assert_eq!(look_at(&pool), before, "{atime:?}");
    }
}

/// The access times of the file, the directory and the link.
fn look_at(pool: &lode_testkit::fs::TestPool) -> [i64; 3] {
    let root = pool.root();
    let of = |name: &[u8]| pool.lookup(root, name).unwrap().ino;
    [of(b"file"), root, of(b"link")].map(|ino| pool.getattr(ino).unwrap().atime_ns)
}
