//! What SQLite asks of a VFS, call by call, without SQLite in between.

use std::ffi::{CStr, CString, c_int};
use std::ptr::null_mut;

use crate::common::raw::{DATABASE, JOURNAL, MADE, Raw, vfs};
use crate::common::{Place, PoolFile};
use libsqlite3_sys as ffi;
use lode::PoolOptions;

fn delete(place: &Place, name: &str, sync: bool) -> c_int {
    let (vfs, name) = (vfs(place), CString::new(name).unwrap());
    // SAFETY: the VFS is registered.
    unsafe { (*vfs).xDelete.unwrap()(vfs, name.as_ptr(), sync.into()) }
}

fn access(place: &Place, name: &str, wanted: c_int) -> bool {
    let (vfs, name) = (vfs(place), CString::new(name).unwrap());
    let mut result = -1;
    // SAFETY: the VFS is registered.
    let code = unsafe { (*vfs).xAccess.unwrap()(vfs, name.as_ptr(), wanted, &mut result) };
    assert_eq!(code, ffi::SQLITE_OK);
    result == 1
}

#[test]
fn reading_behind_the_end_gives_zeros_and_says_so() {
    let place = Place::new(16);
    let mut file = Raw::database(&place, "db");
    assert_eq!(file.read(4, 0), (ffi::SQLITE_IOERR_SHORT_READ, vec![0; 4]));
    assert_eq!(file.write(b"abcdef", 0), ffi::SQLITE_OK);
    assert_eq!(file.read(4, 2), (ffi::SQLITE_OK, b"cdef".to_vec()));
    assert_eq!(file.read(4, 4), (ffi::SQLITE_IOERR_SHORT_READ, b"ef\0\0".to_vec()));
    assert_eq!(file.write(b"z", 9000), ffi::SQLITE_OK);
    assert_eq!(file.read(2, 8999), (ffi::SQLITE_OK, b"\0z".to_vec()));
    assert_eq!(file.size(), 9001);
    assert_eq!(file.read(1, -1).0, ffi::SQLITE_IOERR_READ);
    assert_eq!(file.write(b"x", -1), ffi::SQLITE_IOERR_WRITE);
    assert_eq!(file.truncate(-1), ffi::SQLITE_IOERR_TRUNCATE);
}

#[test]
fn truncating_cuts_and_grows() {
    let place = Place::new(16);
    let mut file = Raw::database(&place, "db");
    assert_eq!(file.write(&[1; 10_000], 0), ffi::SQLITE_OK);
    assert_eq!(file.truncate(5000), ffi::SQLITE_OK);
    assert_eq!((file.size(), place.pool.metadata("db").unwrap().len()), (5000, 5000));
    assert_eq!(file.truncate(8000), ffi::SQLITE_OK);
    assert_eq!(file.read(3000, 5000), (ffi::SQLITE_OK, vec![0; 3000]));
}

#[test]
fn files_open_as_the_flags_say() {
    let place = Place::new(16);
    let open = |name, flags| Raw::open(&place, Some(name), flags);
    let read = ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_MAIN_DB;
    let exclusive = DATABASE | ffi::SQLITE_OPEN_EXCLUSIVE;
    assert_eq!(open("db", read).err(), Some(ffi::SQLITE_CANTOPEN));
    let write = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_MAIN_DB;
    assert_eq!(open("db", write).err(), Some(ffi::SQLITE_CANTOPEN));
    assert_eq!(open("no/db", DATABASE).err(), Some(ffi::SQLITE_CANTOPEN));
    assert_eq!(open("db", DATABASE).unwrap().flags, DATABASE);
    assert_eq!(open("db", exclusive).err(), Some(ffi::SQLITE_CANTOPEN));
    assert_eq!(open("other", exclusive).unwrap().flags, exclusive);
    let mut file = open("db", read).unwrap();
    assert_eq!(file.flags, read);
    assert_eq!(file.write(b"x", 0), ffi::SQLITE_IOERR_WRITE);
    place.pool.create_dir("dir").unwrap();
    assert_eq!(open("dir", DATABASE).err(), Some(ffi::SQLITE_CANTOPEN_ISDIR));
    assert_eq!(open("dir", read).err(), Some(ffi::SQLITE_CANTOPEN_ISDIR));
    place.pool.symlink("db", "link").unwrap();
    let bare = DATABASE | ffi::SQLITE_OPEN_NOFOLLOW;
    assert_eq!(open("link", bare).err(), Some(ffi::SQLITE_CANTOPEN_SYMLINK));
    assert!(open("link", DATABASE).is_ok());
    assert!(open("db", bare).is_ok());
}

#[test]
fn temporary_files_have_no_name_and_leave_nothing() {
    let place = Place::new(16);
    let before = place.pool.statfs().unwrap().pages_free;
    let flags = MADE | ffi::SQLITE_OPEN_TEMP_DB | ffi::SQLITE_OPEN_DELETEONCLOSE;
    for name in [None, Some("tmp")] {
        let mut file = Raw::open(&place, name, flags | ffi::SQLITE_OPEN_EXCLUSIVE).unwrap();
        assert_eq!(file.write(&[7; 1 << 20], 0), ffi::SQLITE_OK);
        assert_eq!(file.read(1, (1 << 20) - 1), (ffi::SQLITE_OK, vec![7]));
        assert_eq!(place.names(), [""; 0]);
        // Nobody else has it: locks are there for the asking.
        assert_eq!(file.lock(ffi::SQLITE_LOCK_SHARED), ffi::SQLITE_OK);
        assert_eq!(file.lock(ffi::SQLITE_LOCK_EXCLUSIVE), ffi::SQLITE_OK);
        assert_eq!(file.unlock(ffi::SQLITE_LOCK_NONE), ffi::SQLITE_OK);
    }
    let after = place.pool.statfs().unwrap().pages_free;
    // Of the 512 that were written; some are for inodes now.
    assert!(after + 64 > before, "{after} free pages of {before}");
}

#[test]
fn who_may_read_a_journal_is_who_may_read_the_database() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::over(PoolOptions::new().umask(0o077).in_memory(16 << 20).unwrap());
    drop(Raw::database(&place, "db"));
    assert_eq!(place.pool.metadata("db").unwrap().permissions().mode() & 0o777, 0o600);
    place.pool.set_permissions("db", PermissionsExt::from_mode(0o640)).unwrap();
    place.pool.chown("db", Some(123), Some(456)).unwrap();
    for (name, flags) in [("db-journal", JOURNAL), ("db-wal", MADE | ffi::SQLITE_OPEN_WAL)] {
        drop(Raw::open(&place, Some(name), flags).unwrap());
        let found = place.pool.metadata(name).unwrap();
        let rights = (found.permissions().mode() & 0o777, found.uid(), found.gid());
        assert_eq!(rights, (0o640, 123, 456), "{name}");
    }
}

#[test]
fn what_is_deleted_is_gone_with_and_without_a_sync_of_its_directory() {
    let place = Place::new(16);
    for sync in [false, true] {
        let mut file = Raw::open(&place, Some("db-journal"), JOURNAL).unwrap();
        assert!(!access(&place, "db-journal", ffi::SQLITE_ACCESS_EXISTS), "it is empty");
        assert_eq!(file.write(b"x", 0), ffi::SQLITE_OK);
        assert!(access(&place, "db-journal", ffi::SQLITE_ACCESS_EXISTS));
        assert!(access(&place, "db-journal", ffi::SQLITE_ACCESS_READWRITE));
        assert_eq!(delete(&place, "db-journal", sync), ffi::SQLITE_OK);
        assert!(!access(&place, "db-journal", ffi::SQLITE_ACCESS_EXISTS));
        // Who has it open has it still: "undeletable when open" is not claimed.
        assert_eq!(file.read(1, 0), (ffi::SQLITE_OK, b"x".to_vec()));
        let undeletable = ffi::SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN;
        assert_eq!(file.characteristics() & undeletable, 0);
        assert_eq!(delete(&place, "db-journal", sync), ffi::SQLITE_IOERR_DELETE_NOENT);
    }
    place.pool.create_dir("dir").unwrap();
    assert_eq!(delete(&place, "dir", true), ffi::SQLITE_IOERR_DELETE);
}

#[test]
fn connections_lock_each_other_out_whatever_name_and_vfs_they_come_by() {
    use ffi::{
        SQLITE_BUSY, SQLITE_LOCK_EXCLUSIVE, SQLITE_LOCK_NONE, SQLITE_LOCK_PENDING,
        SQLITE_LOCK_RESERVED, SQLITE_LOCK_SHARED, SQLITE_OK,
    };
    let place = Place::new(16);
    let again = Place::over(place.pool.clone());
    let mut one = Raw::database(&place, "db");
    place.pool.hard_link("db", "name").unwrap();
    let mut two = Raw::database(&again, "name");
    let mut stranger = Raw::database(&place, "other");
    assert_eq!(one.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(two.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(one.lock(SQLITE_LOCK_RESERVED), SQLITE_OK);
    assert!(one.is_reserved() && two.is_reserved() && !stranger.is_reserved());
    assert_eq!(two.lock(SQLITE_LOCK_RESERVED), SQLITE_BUSY);
    assert_eq!(one.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_BUSY);
    let mut level = -1;
    assert_eq!(one.control(ffi::SQLITE_FCNTL_LOCKSTATE, &mut level), SQLITE_OK);
    assert_eq!(level, SQLITE_LOCK_PENDING);
    // One that came and went takes nothing with it.
    drop(Raw::database(&place, "db"));
    let mut three = Raw::database(&place, "db");
    assert_eq!(three.lock(SQLITE_LOCK_SHARED), SQLITE_BUSY, "a writer waits");
    assert_eq!(two.unlock(SQLITE_LOCK_NONE), SQLITE_OK);
    assert_eq!(one.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK);
    assert_eq!(two.lock(SQLITE_LOCK_SHARED), SQLITE_BUSY);
    assert_eq!(stranger.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(stranger.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK);
    // Closing gives back what was held.
    drop(one);
    assert_eq!(two.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(two.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK, "also at once, for a hot journal");
    assert_eq!(two.unlock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(three.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
}

#[test]
fn the_index_of_a_log_is_shared_and_ends_with_its_last_user() {
    let place = Place::new(16);
    let (mut one, mut two) = (Raw::database(&place, "db"), Raw::database(&place, "db"));
    let mut stranger = Raw::database(&place, "other");
    assert!(one.map(0, false).is_null());
    assert!(!one.map(2, true).is_null(), "those before it, too");
    let (here, there) = (one.map(1, true), two.map(1, false));
    assert_eq!(here, there);
    assert_eq!(here.align_offset(8), 0);
    assert!(stranger.map(1, false).is_null());
    // SAFETY: the memory is so large, and nobody else uses it.
    unsafe {
        assert!((0..32 << 10).all(|at| *here.add(at) == 0));
        *here.add((32 << 10) - 1) = 5;
    }
    one.unmap();
    // SAFETY: the other has it still.
    assert_eq!(unsafe { *there.add((32 << 10) - 1) }, 5);
    two.unmap();
    let anew = one.map(1, true);
    // SAFETY: it was just made.
    assert_eq!(unsafe { *anew.add((32 << 10) - 1) }, 0, "what was before is gone");
    // A journal has none.
    let mut journal = Raw::open(&place, Some("db-journal"), JOURNAL).unwrap();
    assert_eq!(journal.shm(0, 1, ffi::SQLITE_SHM_LOCK), ffi::SQLITE_IOERR_SHMLOCK);
}

#[test]
fn locks_of_the_index_are_shared_or_exclusive() {
    use ffi::{SQLITE_BUSY, SQLITE_OK};
    const SHARE: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
    const TAKE: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE;
    const UNSHARE: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;
    const LEAVE: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE;
    let place = Place::new(16);
    let (mut one, mut two) = (Raw::database(&place, "db"), Raw::database(&place, "db"));
    assert_eq!(one.shm(0, 1, SHARE), ffi::SQLITE_IOERR_SHMLOCK, "it has no memory yet");
    one.map(0, true);
    two.map(0, true);
    assert_eq!(one.shm(3, 1, SHARE), SQLITE_OK);
    assert_eq!(one.shm(3, 1, SHARE), SQLITE_OK, "once more is the same");
    assert_eq!(two.shm(3, 1, SHARE), SQLITE_OK);
    assert_eq!(two.shm(0, 8, TAKE), SQLITE_BUSY);
    assert_eq!(two.shm(3, 1, UNSHARE), SQLITE_OK);
    assert_eq!(two.shm(0, 8, TAKE), SQLITE_BUSY, "one of them is shared");
    assert_eq!(two.shm(4, 4, TAKE), SQLITE_OK);
    assert_eq!(one.shm(7, 1, SHARE), SQLITE_BUSY);
    assert_eq!(one.shm(2, 1, TAKE), SQLITE_OK);
    assert_eq!(one.shm(2, 1, LEAVE), SQLITE_OK);
    assert_eq!(one.shm(3, 1, UNSHARE), SQLITE_OK);
    assert_eq!(one.shm(3, 1, UNSHARE), SQLITE_OK, "what it does not hold it does not give back");
    assert_eq!(two.shm(0, 4, TAKE), SQLITE_OK);
    assert_eq!(two.shm(0, 8, LEAVE), SQLITE_OK);
    assert_eq!(one.shm(0, 8, TAKE), SQLITE_OK);
    // A connection that goes away holds nothing.
    drop(one);
    assert_eq!(two.shm(0, 8, TAKE), SQLITE_OK);
    for (from, count) in [(0, 9), (8, 1), (-1, 1), (0, 0), (c_int::MAX, 1)] {
        assert_eq!(two.shm(from, count, TAKE), ffi::SQLITE_IOERR_SHMLOCK, "{from}, {count}");
    }
}

#[test]
fn questions_and_hints_are_answered() {
    let place = Place::new(16);
    let mut file = Raw::database(&place, "db");
    for (op, bit) in [
        (ffi::SQLITE_FCNTL_PERSIST_WAL, 0),
        (ffi::SQLITE_FCNTL_POWERSAFE_OVERWRITE, ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE),
    ] {
        for wanted in [1, 0, 1] {
            let (mut set, mut told) = (wanted, -1);
            assert_eq!(file.control(op, &mut set), ffi::SQLITE_OK);
            assert_eq!(file.control(op, &mut told), ffi::SQLITE_OK);
            assert_eq!(told, wanted);
            assert!(bit == 0 || (file.characteristics() & bit != 0) == (wanted == 1));
        }
    }
    let mut name: *mut std::ffi::c_char = null_mut();
    assert_eq!(file.control(ffi::SQLITE_FCNTL_VFSNAME, &mut name), ffi::SQLITE_OK);
    // SAFETY: it is a string from SQLite's allocator, and nobody else's.
    unsafe {
        assert_eq!(CStr::from_ptr(name), place.vfs.name());
        ffi::sqlite3_free(name.cast());
    }
    let mut mapped = 1_i64 << 30;
    assert_eq!(file.control(ffi::SQLITE_FCNTL_MMAP_SIZE, &mut mapped), ffi::SQLITE_OK);
    assert_eq!(mapped, 0);
    let mut moved = -1;
    assert_eq!(file.control(ffi::SQLITE_FCNTL_HAS_MOVED, &mut moved), ffi::SQLITE_OK);
    assert_eq!(moved, 0);
    place.pool.rename("db", "elsewhere").unwrap();
    assert_eq!(file.control(ffi::SQLITE_FCNTL_HAS_MOVED, &mut moved), ffi::SQLITE_OK);
    assert_eq!(moved, 1);
    drop(Raw::database(&place, "db"));
    assert_eq!(file.control(ffi::SQLITE_FCNTL_HAS_MOVED, &mut moved), ffi::SQLITE_OK);
    assert_eq!(moved, 1, "another has its name");
    assert_eq!(file.control(12_345, &mut moved), ffi::SQLITE_NOTFOUND);
}

#[test]
fn a_full_pool_is_said_to_be_full_and_the_size_hint_says_so_before_anything_is_written() {
    let place = Place::new(16);
    let mut file = Raw::database(&place, "db");
    let mut size = 64_i64 << 20;
    assert_eq!(file.control(ffi::SQLITE_FCNTL_SIZE_HINT, &mut size), ffi::SQLITE_FULL);
    assert_eq!(file.size(), 0);
    let mut size = 1_i64 << 20;
    assert_eq!(file.control(ffi::SQLITE_FCNTL_SIZE_HINT, &mut size), ffi::SQLITE_OK);
    assert_eq!(file.size(), 0, "room is no length");
    assert!(place.pool.metadata("db").unwrap().blocks() * 512 >= 1 << 20);
    let mut at = 0;
    let code = loop {
        match file.write(&[1; 64 << 10], at) {
            ffi::SQLITE_OK => at += 64 << 10,
            code => break code,
        }
        // What is written in part is not written.
        assert_eq!(file.size(), at);
    };
    assert_eq!(code, ffi::SQLITE_FULL);
    let mut last = 0;
    assert_eq!(file.control(ffi::SQLITE_FCNTL_LAST_ERRNO, &mut last), ffi::SQLITE_OK);
    assert_eq!(last, 28, "ENOSPC");
}

/// What "atomic" is said of: an aligned write of 2 KiB or less is there wholly or not at all also where
/// the pool has no room left.
#[test]
fn small_writes_are_never_cut_short() {
    let atomic = [
        (ffi::SQLITE_IOCAP_ATOMIC512, 512),
        (ffi::SQLITE_IOCAP_ATOMIC1K, 1024),
        (ffi::SQLITE_IOCAP_ATOMIC2K, 2048),
    ];
    let place = Place::new(8);
    let mut filler = Raw::database(&place, "filler");
    let mut file = Raw::database(&place, "db");
    assert_eq!(file.write(&[0; 128 << 10], 0), ffi::SQLITE_OK);
    let mut at = 0;
    for step in [64 << 10, 4 << 10, 512] {
        while filler.write(&vec![1; step], at) == ffi::SQLITE_OK {
            at += step as i64;
        }
    }
    let mut refused = 0;
    for round in 1..=60 {
        for (bit, size) in atomic {
            assert_ne!(file.characteristics() & bit, 0);
            for at in (0..128 << 10).step_by(size) {
                let (_, before) = file.read(size, at as i64);
                let new = vec![round; size];
                let code = file.write(&new, at as i64);
                let (_, after) = file.read(size, at as i64);
                let wanted = if code == ffi::SQLITE_OK { &new } else { &before };
                assert!(after == *wanted, "{size} bytes at {at}: code {code}");
                refused += usize::from(code != ffi::SQLITE_OK);
                // Growth finds no room either, and leaves nothing.
                let end = file.size();
                if at == 0 && file.write(&new, end) != ffi::SQLITE_OK {
                    assert_eq!(file.size(), end);
                }
            }
        }
    }
    println!("{refused} small writes were refused");
    let large = ffi::SQLITE_IOCAP_ATOMIC | ffi::SQLITE_IOCAP_ATOMIC4K | ffi::SQLITE_IOCAP_ATOMIC64K;
    assert_eq!(file.characteristics() & large, 0);
}

#[test]
fn the_clock_and_random_bits_are_the_systems() {
    let place = Place::new(16);
    let vfs = vfs(&place);
    // SAFETY: the VFS is registered; each call has the places it asks for.
    unsafe {
        let (mut ms, mut days) = (0, 0.0);
        assert_eq!((*vfs).xCurrentTimeInt64.unwrap()(vfs, &mut ms), ffi::SQLITE_OK);
        assert_eq!((*vfs).xCurrentTime.unwrap()(vfs, &mut days), ffi::SQLITE_OK);
        assert!((days * 86_400_000.0 - ms as f64).abs() < 60_000.0);
        let (mut one, mut two) = ([0_u8; 32], [0_u8; 32]);
        for bytes in [&mut one, &mut two] {
            assert_eq!((*vfs).xRandomness.unwrap()(vfs, 32, bytes.as_mut_ptr().cast()), 32);
        }
        assert_ne!(one, two);
        let begin = std::time::Instant::now();
        assert_eq!((*vfs).xSleep.unwrap()(vfs, 2000), 2000);
        assert!(begin.elapsed().as_micros() >= 2000);
    }
    let db = place.open("db");
    let off = "SELECT abs(unixepoch('now') - ?)";
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(db.query_row(off, [now], |row| row.get::<_, i64>(0)).unwrap() < 60);
}

#[test]
fn a_pool_whose_overwrites_may_be_torn_is_refused() {
    let pool = lode::PoolOptions::new().relaxed(true).in_memory(16 << 20).unwrap();
    let refused = lode_sqlite::register(&pool, &crate::common::fresh_name()).unwrap_err();
    assert!(matches!(refused, lode_sqlite::Error::Relaxed), "{refused}");
}

#[test]
fn names_of_vfss_are_their_own_and_a_pool_is_free_when_its_vfs_is_gone() {
    let place = Place::new(16);
    let name = place.vfs.name().to_str().unwrap().to_owned();
    let taken = lode_sqlite::register(&place.pool, &name).unwrap_err();
    assert!(matches!(taken, lode_sqlite::Error::Taken(_)), "{taken}");
    for bad in ["", "a\0b"] {
        let bad = lode_sqlite::register(&place.pool, bad).unwrap_err();
        assert!(matches!(bad, lode_sqlite::Error::BadName(_)), "{bad}");
    }
    let unix = lode_sqlite::register(&place.pool, "unix").unwrap_err();
    assert!(matches!(unix, lode_sqlite::Error::Taken(_)));

    let db = place.open("db");
    db.execute_batch("CREATE TABLE t(x)").unwrap();
    let Place { vfs, pool } = place;
    drop(vfs);
    // Who is there goes on; nobody comes.
    db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    assert!(db.execute_batch("ATTACH 'other' AS other").is_err());
    let open =
        |name: &str| rusqlite::Connection::open_with_flags_and_vfs("db", Default::default(), name);
    assert!(open(&name).is_err());
    let again = lode_sqlite::register(&pool, &name).unwrap();
    // Under the name there is the same pool, whose connections meet.
    let other = open(&name).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
    assert!(db.execute_batch("PRAGMA busy_timeout = 0; INSERT INTO t VALUES (3)").is_err());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(crate::common::value::<i64>(&db, "SELECT sum(x) FROM t"), 3);
    drop((other, again));
    assert_eq!(crate::common::value::<i64>(&db, "SELECT count(*) FROM t"), 2);
    drop(db);
    pool.close().unwrap();
}

/// Copies of a pool have the same UUID, and the same inodes: their databases are others all the same.
#[test]
fn copies_of_a_pool_share_no_locks() {
    let file = PoolFile::new(16);
    let place = file.open();
    drop(Raw::database(&place, "db"));
    place.close();
    let copy = file.dir.path().join("copy");
    std::fs::copy(&file.path, &copy).unwrap();
    let (place, other) = (file.open(), Place::over(lode::Pool::open(&copy).unwrap()));
    let mut one = Raw::database(&place, "db");
    let mut two = Raw::database(&other, "db");
    let inode = |place: &Place| place.pool.metadata("db").unwrap().ino();
    assert_eq!(inode(&place), inode(&other));
    for level in [ffi::SQLITE_LOCK_SHARED, ffi::SQLITE_LOCK_EXCLUSIVE] {
        assert_eq!((one.lock(level), two.lock(level)), (ffi::SQLITE_OK, ffi::SQLITE_OK));
    }
}

#[test]
fn a_pool_that_can_not_be_written_gives_read_only_files() {
    let file = PoolFile::new(16);
    let place = file.open();
    assert_eq!(Raw::database(&place, "db").write(b"x", 0), ffi::SQLITE_OK);
    place.close();
    let pool = PoolOptions::new().read_only(true).open(&file.path).unwrap();
    let place = Place::over(pool);
    let read = ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_MAIN_DB;
    assert_eq!(Raw::database(&place, "db").flags, read);
    assert_eq!(Raw::open(&place, Some("new"), DATABASE).err(), Some(ffi::SQLITE_CANTOPEN));
    assert!(!access(&place, "db", ffi::SQLITE_ACCESS_READWRITE));
    assert_eq!(delete(&place, "db", false), ffi::SQLITE_IOERR_DELETE);
    // Temporary files are elsewhere then.
    let flags = MADE | ffi::SQLITE_OPEN_TEMP_DB | ffi::SQLITE_OPEN_DELETEONCLOSE;
    let mut file = Raw::open(&place, None, flags).unwrap();
    assert_eq!(file.write(b"temporary", 3), ffi::SQLITE_OK);
    assert_eq!(file.read(12, 0), (ffi::SQLITE_OK, b"\0\0\0temporary".to_vec()));
    assert_eq!(file.truncate(4), ffi::SQLITE_OK);
    assert_eq!(file.read(6, 0), (ffi::SQLITE_IOERR_SHORT_READ, b"\0\0\0t\0\0".to_vec()));
    assert_eq!(file.size(), 4);
}
