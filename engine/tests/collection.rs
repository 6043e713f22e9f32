//! Collection of logs loses nothing: not what was collected around, not across openings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use lode_engine::{FormatOptions, NewInode, Op, OpenOptions, Pool, mode};
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };

/// A page of the log whose entries are all removed is unlinked, while the records that
/// removed them stay in a later page: those mean nothing any more, and do no harm.
#[test]
fn a_removal_whose_entry_was_collected_with_its_page_means_nothing() {
    let memory = Memory::new(32 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let options = OpenOptions::default();
    let pool = Pool::open(memory.clone(), TestHost::new(1), &options).unwrap();
    let root = pool.root();
    let name = |number: u32| format!("f{number}").into_bytes();
    for number in 0..400 {
        pool.create(root, &name(number), &NEW).unwrap();
    }
    for number in 62..125 {
        pool.unlink(root, &name(number)).unwrap();
    }
    for number in 400..900 {
        pool.create(root, &name(number), &NEW).unwrap();
    }
    assert!(pool.stats().ops[Op::CollectFast as usize] > 0, "nothing was collected");
    let crashed = memory.copy();
    pool.close().unwrap();
    drop(pool);
    for image in [memory, crashed] {
        let pool = Pool::open(image, TestHost::new(1), &options).unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
        for number in 0..900 {
            let there = pool.lookup(root, &name(number)).is_ok();
            assert_eq!(there, !(62..125).contains(&number), "f{number}");
        }
    }
}
