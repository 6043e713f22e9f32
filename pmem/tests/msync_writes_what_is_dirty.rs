//! A fence of an ordinary file cleans the pages that were stored into.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{PAGE, disk};
use lode_pmem::{Counters, Door, FlushStrategy, Line, Mapped, RegionKind, RegionOptions};

fn door(directory: &tempfile::TempDir) -> Option<Door<Mapped>> {
    let path = directory.path().join("pool");
    let region = Mapped::create(path, 64 * PAGE, &RegionOptions::new(), false).unwrap();
    if region.kind() != RegionKind::File {
        eprintln!("skipped: the test directory is no ordinary file system: {region}");
        return None;
    }
    assert_eq!(region.strategy(), FlushStrategy::Msync);
    Some(Door::new(region))
}

/// Dirty bytes of the mapping, says the kernel.
fn dirty_bytes(door: &Door<Mapped>) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", door.medium().as_ptr() as usize);
    let mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let dirty = mapping
        .filter(|line| line.starts_with("Shared_Dirty") || line.starts_with("Private_Dirty"));
    let kib = dirty.take(2).map(|line| line.split_whitespace().nth(1).unwrap());
    kib.map(|kib| kib.parse::<u64>().unwrap() * 1024).sum()
}

#[test]
fn every_kind_of_store_is_written_by_one_call() {
    let directory = disk();
    let Some(door) = door(&directory) else {
        return;
    };
    let counters = Counters::new();
    // Another writer's dirt must not confuse the count: there is none.
    door.fence(&counters).unwrap();
    assert_eq!(door.medium().msync_calls(), 0, "nothing is dirty");
    let stores: [(u64, &dyn Fn()); 6] = [
        (1, &|| door.window(64, &counters).store_line(5 * PAGE, &Line([1; 64]))),
        (1, &|| door.window(8, &counters).store_word(6 * PAGE, 1)),
        (1, &|| door.window(8, &counters).store_word_lazily(7 * PAGE, 1)),
        (2, &|| door.window(100, &counters).store(9 * PAGE - 50, &[1; 100])),
        (3, &|| door.window(2 * PAGE, &counters).copy_nt(20 * PAGE + 3, &[1; 2 * PAGE as usize])),
        (2, &|| door.window(90, &counters).zero_nt(30 * PAGE - 45, 90)),
    ];
    for (i, (pages, store)) in stores.iter().enumerate() {
        store();
        assert_eq!(dirty_bytes(&door), pages * PAGE, "store {i}");
        door.fence(&counters).unwrap();
        assert_eq!(dirty_bytes(&door), 0, "store {i}");
        assert_eq!(door.medium().msync_calls(), i as u64 + 1);
    }
    // Far apart: still one call.
    door.window(8, &counters).store_word(0, 1);
    door.window(8, &counters).store_word(63 * PAGE, 1);
    assert_eq!(dirty_bytes(&door), 2 * PAGE);
    door.fence(&counters).unwrap();
    assert_eq!(dirty_bytes(&door), 0);
    assert_eq!(door.medium().msync_calls(), stores.len() as u64 + 1);
}

#[test]
fn threads_that_fence_together_each_find_their_pages_clean() {
    let directory = disk();
    let Some(door) = door(&directory) else {
        return;
    };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let door = &door;
            scope.spawn(move || {
                let counters = Counters::new();
                for round in 0..10 {
                    let mut window = door.window(8, &counters);
                    window.store_word(thread * PAGE, round);
                    drop(window);
                    door.fence(&counters).unwrap();
                }
            });
        }
    });
    assert_eq!(dirty_bytes(&door), 0);
}
