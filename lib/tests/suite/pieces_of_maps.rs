//! Maps stay in few pieces however they are stored to. (A test of its own: pieces are counted for the whole process.)

use crate::common::PoolFile;
use lode::{Map, MapOptions, OpenOptions};

const PAGE: u64 = 4096;

fn writable() -> MapOptions {
    let mut options = MapOptions::new();
    options.write(true);
    options
}

/// A store of the program's own.
fn put(map: &Map, at: u64, byte: u8) {
    assert!(at < map.len());
    // SAFETY: a byte of a writable map.
    unsafe { map.as_ptr().add(at as usize).write_volatile(byte) };
}

/// A kernel has no endless number of mappings: the more pieces a map is in, the more is moved by one store.
#[test]
fn stores_all_over_a_large_map_leave_it_in_few_pieces() {
    const PAGES: u64 = 40_000;
    let at = PoolFile::new(600);
    let pool = at.open();
    let file = pool.open_with("f", OpenOptions::new().read(true).write(true).create(true)).unwrap();
    file.allocate(0, PAGES * PAGE, false).unwrap();
    let map = file.map(0, PAGES * PAGE, &writable()).unwrap();
    for round in 1..=2 {
        pool.create_snapshot(format!("{round}")).unwrap();
        // Every other page, in an order that is not theirs.
        for step in 0..PAGES / 2 {
            let page = step * 7919 % (PAGES / 2) * 2;
            put(&map, page * PAGE, round);
        }
        if round == 1 {
            let pieces = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
            assert!(pieces < 40_000, "{pieces} mappings");
        }
    }
    let then = pool.snapshot("2").unwrap().open_file("f").unwrap();
    for page in 0..PAGES {
        let mut byte = [0];
        then.read_exact_at(&mut byte, page * PAGE).unwrap();
        assert_eq!(byte[0], 1 - (page % 2) as u8, "page {page}");
    }
}
