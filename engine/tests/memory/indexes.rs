//! What the engine says that its indexes take is what they take, as an allocator counts it.

use lode_engine::{FormatOptions, Ino, NewInode, OpenOptions, PAGE_BYTES, Pool, mode};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

use crate::allocator::{alone, held};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

/// What is said, against what is held besides `before`: in `part` of it at most they differ.
#[track_caller]
fn agrees(pool: &TestPool, before: u64, part: f64) -> u64 {
    let held = held() - before;
    let said = pool.gauges().unwrap().memory;
    let off = (said.total() as f64 - held as f64).abs() / held as f64;
    assert!(off < part, "{held} bytes are held, this was said: {said:?} ({off:.3})");
    said.total()
}

#[test]
fn index_memory_is_told_as_it_grows_and_shrinks() {
    // (What others allocate would be counted, too.)
    let _alone = alone();
    let memory = Memory::new(256 << 20);
    memory.prefault();
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let before = held();
    let pool = Pool::open(memory, TestHost::new(1), &OpenOptions::default()).unwrap();
    let empty = agrees(&pool, before, 0.25);

    let dir = pool.create(pool.root(), b"dir", &NEW_DIR).unwrap().ino;
    let one_entry = pool.gauges().unwrap().memory.entries;
    let name = |number: u32| format!("file-{number}").into_bytes();
    let files: Vec<Ino> =
        (0..20_000).map(|number| pool.create(dir, &name(number), &NEW).unwrap().ino).collect();
    let list = files.capacity() as u64 * 8;
    let many = agrees(&pool, before + list, 0.15);
    let gauges = pool.gauges().unwrap();
    assert_eq!(gauges.inodes_in_memory, 20_002);
    assert!(many > empty + 20_000 * 200, "{empty} {many}");
    assert!(gauges.memory.entries > 20_000 * 32 && gauges.memory.extents == 0, "{gauges:?}");

    // Every other page: an extent each.
    for step in 0..10_000 {
        pool.write(files[0], step * 2 * PAGE_BYTES, &[1; PAGE_BYTES as usize]).unwrap();
    }
    agrees(&pool, before + list, 0.15);
    assert!(pool.gauges().unwrap().memory.extents > 10_000 * 40);

    for number in 0..20_000 {
        pool.unlink(dir, &name(number)).unwrap();
    }
    pool.maintain().unwrap();
    let gauges = pool.gauges().unwrap();
    assert_eq!(gauges.inodes_in_memory, 2);
    assert_eq!((gauges.memory.entries, gauges.memory.extents), (one_entry, 0));
    let left = agrees(&pool, before + list, 0.25);
    assert!(left < many / 2, "{many} before, {left} after all were removed");
}
