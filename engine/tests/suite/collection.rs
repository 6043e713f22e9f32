//! Collection of logs loses nothing: not what was collected around, not across openings.

use lode_engine::{
    Fallocate, FormatOptions, NewInode, Op, OpenOptions, Pool, SetAttr, XattrChange, XattrWhen,
    mode,
};
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

/// What was replaced stays replaced when the page that did it is gone; and what ended that in turn ends it, too: nothing
/// comes back after a crash.
#[test]
fn what_was_replaced_and_then_ended_stays_ended() {
    let memory = Memory::new(32 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let options = OpenOptions::default();
    let pool = Pool::open(memory.clone(), TestHost::new(1), &options).unwrap();
    let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    // (Every other page: each has a record of its own.)
    let write = |page: u64, byte: u8| pool.write(ino, page * 8192, &[byte; 4096]).unwrap();
    let set = |number: u64, value: Option<&[u8]>| {
        let (name, when) = (format!("user.{number}"), XattrWhen::Always);
        pool.setxattr(ino, &XattrChange { name: name.as_bytes(), value, when }).unwrap();
    };
    // What comes next has pages of its own.
    let begin_page = || {
        let pages = || pool.dump_inode(ino).unwrap().log_pages.len();
        let before = pages();
        for turn in 0.. {
            if pages() != before {
                return;
            }
            let mode = Some(0o600 | turn & 7);
            pool.setattr(ino, &SetAttr { mode, ..SetAttr::default() }).unwrap();
        }
    };
    let some = || (0..150_u64).map(|number| number * 6);
    (0..1000).for_each(|page| write(page, 1));
    (0..30).for_each(|number| set(number, Some(b"first")));
    begin_page();
    some().for_each(|page| write(page, 2));
    (0..30).step_by(3).for_each(|number| set(number, Some(b"second")));
    begin_page();
    some().for_each(|page| pool.fallocate(ino, Fallocate::Punch, page * 8192, 4096).unwrap());
    (0..30).step_by(3).for_each(|number| set(number, None));
    begin_page();
    (1000..1400).for_each(|page| write(page, 3));
    let ops = pool.stats().ops;
    let collected = [Op::CollectFast, Op::CollectThorough].map(|op| ops[op as usize]);
    assert!(collected[0] > 0 && collected[1] == 0, "fast, thorough: {collected:?}");
    let crashed = memory.copy();
    pool.close().unwrap();
    drop(pool);
    for image in [memory, crashed] {
        let pool = Pool::open(image, TestHost::new(1), &options).unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
        for page in 0..1400 {
            let mut found = [9; 4096];
            pool.read(ino, page * 8192, &mut found).unwrap();
            let wanted = match page {
                page if some().any(|gone| gone == page) => 0,
                0..1000 => 1,
                _ => 3,
            };
            assert_eq!(found, [wanted; 4096], "page {page}");
        }
        for number in 0..30 {
            let found = pool.getxattr(ino, format!("user.{number}").as_bytes());
            assert_eq!(found.is_ok(), number % 3 != 0, "user.{number}: {found:?}");
        }
    }
}
