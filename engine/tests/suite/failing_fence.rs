//! A fence that fails promises nothing: the operation fails, the pool takes no more changes, and
//! whatever had been acknowledged before is there when the pool is opened again.

use lode_engine::{Error, FormatOptions, NewInode, OpenOptions, Pool, RenameMode, mode};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };

/// One step of a life that uses every kind of fence; says whether it was acknowledged.
fn step(pool: &TestPool, number: u64) -> Result<(), Error> {
    let root = pool.root();
    let name = format!("f{}", number / 4);
    match number % 4 {
        0 => pool.create(root, name.as_bytes(), &NEW).map(|_| ()),
        1 => {
            let file = pool.lookup(root, name.as_bytes())?.ino;
            pool.append(file, &[number as u8; 5000])?;
            pool.write(file, 100, &[number as u8; 50])
        }
        2 => pool.rename(root, name.as_bytes(), root, b"last", RenameMode::Replace),
        _ => pool.maintain(),
    }
}

#[test]
fn an_operation_whose_fence_fails_fails_and_so_do_all_later_ones() {
    for fences in 0..120 {
        let memory = Memory::new(4 << 20);
        let format = FormatOptions { lanes: 1, ..FormatOptions::default() };
        Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
        let pool = Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap();
        memory.fail_fences_after(fences);
        let failed = (0..).find(|&number| step(&pool, number).is_err()).unwrap();
        // Looking is still possible, changing is not.
        let last = pool.lookup(pool.root(), b"last").map(|attr| attr.size);
        let later = pool.create(pool.root(), b"later", &NEW).map(|attr| attr.ino);
        assert!(matches!(later, Err(Error::Unwritten | Error::ReadOnly)), "{fences}: {later:?}");
        assert!(pool.close().is_err() || pool.is_read_only(), "{fences}");
        drop(pool);
        let copy = memory.copy();
        let pool = Pool::open(copy, TestHost::new(3), &OpenOptions::default()).unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{fences}");
        // The one in flight was stored (this memory holds all stores), or was not.
        if failed >= 4 {
            let size = pool.lookup(pool.root(), b"last").unwrap().size;
            assert_eq!((last.unwrap(), size), (5000, 5000), "{fences}");
        }
        // What was tried with a failing fence may be there; what was refused is not.
        let refused = later == Err(Error::ReadOnly);
        assert!(!refused || pool.lookup(pool.root(), b"later").is_err(), "{fences}");
    }
}
