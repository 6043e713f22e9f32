//! There may be any number of snapshots.

use lode_engine::{FormatOptions, OpenOptions, Pool};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

fn open(memory: &Memory) -> TestPool {
    Pool::open(memory.clone(), TestHost::new(1), &OpenOptions::default()).unwrap()
}

#[test]
fn there_may_be_more_snapshots_than_a_file_has_room_for_names() {
    const MANY: usize = 6000;
    let name = |number: usize| format!("snapshot-of-day-{number}");
    let memory = Memory::new(32 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = open(&memory);
    for number in 0..MANY {
        pool.create_snapshot(name(number).as_bytes()).unwrap();
    }
    pool.close().unwrap();
    let pool = open(&memory);
    assert_eq!(pool.snapshot_names().unwrap().len(), MANY);
    for number in (0..MANY).step_by(2) {
        pool.delete_snapshot(name(number).as_bytes()).unwrap();
    }
    assert_eq!(pool.snapshot_names().unwrap().len(), MANY / 2);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}
