//! A log whose end is lost is damaged for who looks into a snapshot, too.

use lode_engine::{Error, FormatOptions, NewInode, OpenOptions, Pool, SetAttr, mode};
use lode_testkit::format::Survey;
use lode_testkit::{Memory, TestHost};

#[test]
fn a_snapshot_does_not_show_an_inode_as_it_was_before_a_record_that_is_lost() {
    let memory = Memory::new(4 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let open = || Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap();
    let pool = open();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 1, gid: 1, rdev: 0 };
    let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
    pool.setattr(ino, &SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
    pool.create_snapshot(b"kept").unwrap();
    pool.close().unwrap();
    drop(pool);
    let survey = Survey::of(&memory.image());
    let log = survey.logs.iter().find(|log| log.ino == ino).unwrap();
    let run = log.runs.iter().rfind(|run| run.valid > 0).unwrap();
    memory.put(run.at(run.valid - 1) as u64, &[0; 64]);
    let pool = open();
    let root = pool.snapshot_root(b"kept").unwrap();
    for dir in [root, pool.root()] {
        let found = pool.lookup(dir, b"file").map(|attr| attr.mode);
        assert!(matches!(found, Err(Error::Corrupt(_))), "{found:?}");
    }
}
