//! A file of a gibibyte told in advance gets one aligned extent, and keeps it.

use lode_engine::{Fallocate, FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const GIB: u64 = 1 << 30;

#[test]
fn a_gibibyte_extent_is_aligned_and_overwrites_keep_it() {
    let memory = Memory::new(3 * GIB);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let options = OpenOptions::default();
    let pool = Pool::open(memory.clone(), TestHost::new(1), &options).unwrap();
    let file = pool.create(pool.root(), b"giant", &NEW).unwrap().ino;
    pool.fallocate(file, Fallocate::Allocate { keep_size: false }, 0, GIB).unwrap();
    let extents = pool.dump_inode(file).unwrap().extents;
    let [extent] = extents.as_slice() else { panic!("{extents:?}") };
    assert_eq!((extent.class, extent.bytes, extent.pool_offset % GIB), (2, GIB, 0));
    for (offset, len) in [(100, 17), (4096, 4096), (GIB / 2 + 5, 100_000), (GIB - 3, 3)] {
        pool.write(file, offset, &vec![7; len]).unwrap();
    }
    assert_eq!(pool.dump_inode(file).unwrap().extents, extents);
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open(memory, TestHost::new(1), &options).unwrap();
    assert_eq!(pool.dump_inode(file).unwrap().extents, extents);
    let mut found = vec![0; 100_002];
    pool.read(file, GIB / 2 + 4, &mut found).unwrap();
    assert!(found[0] == 0 && found[100_001] == 0 && found[1..100_001].iter().all(|&b| b == 7));
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}
