//! A fence that fails promises nothing: the operation fails, the pool takes no more changes, and
//! whatever had been acknowledged before is there when the pool is opened again.

use lode_engine::{Error, FormatOptions, Handle, NewInode, OpenOptions, Pool, RenameMode, mode};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PAGE: u64 = 4096;

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

/// One step of a life in the sector journal, in two lanes that take turns.
fn sectors_step(
    pool: &TestPool,
    file: &Handle<TestHost>,
    (fill, number): (u8, u64),
) -> Result<(), Error> {
    match number % 5 {
        0 => pool.write(file.ino(), 9 * PAGE + 3, &[fill; 100]),
        1 => pool.write_sectors_held(file, 2 * PAGE, &[fill; 2 * PAGE as usize]),
        2 => pool.write_sectors_held(file, 0, &[fill; PAGE as usize]),
        _ => pool.write_sectors_held(file, 512, &[fill; PAGE as usize]),
    }
}

#[test]
fn behind_a_write_of_sectors_whose_fence_fails_nothing_is_written() {
    for fences in 0..60 {
        let memory = Memory::new(16 << 20);
        let format = FormatOptions { lanes: 2, ..FormatOptions::default() };
        Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
        let host = TestHost::with_cpus(2, 2);
        let pool = Pool::open(memory.clone(), host, &OpenOptions::default()).unwrap();
        let ino = pool.create(pool.root(), b"a", &NEW).unwrap().ino;
        pool.write(ino, 0, &[1; 16 * PAGE as usize]).unwrap();
        let file = pool.hold(ino).unwrap();
        sectors_step(&pool, &file, (1, 1)).unwrap();
        memory.fail_fences_after(fences);
        let step = |number| sectors_step(&pool, &file, (number as u8 + 2, number));
        let failed = (0..).find(|&number| step(number).is_err()).unwrap();
        for number in failed..failed + 5 {
            // (Who failed by the log before anything could be seen of it tries again.)
            let again = step(number);
            let may_be = [Err(Error::ReadOnly), Err(Error::Unwritten)];
            assert!(may_be.contains(&again), "{fences}: {again:?}");
        }
        memory.fail_fences_after(u64::MAX);
        assert_eq!(step(failed), Err(Error::ReadOnly), "{fences}");
        drop((file, pool));
        let pool = Pool::open(memory.copy(), TestHost::new(3), &OpenOptions::default()).unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{fences}");
        // What was acknowledged last is there, or what was tried behind it.
        let mut byte = [0];
        pool.read(ino, 512, &mut byte).unwrap();
        let last = (0..failed).rfind(|number| number % 5 > 1).map_or(1, |number| number as u8 + 2);
        let tried = failed as u8 + 2..failed as u8 + 7;
        assert!(byte[0] == last || tried.contains(&byte[0]), "{fences}: {byte:?}");
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
