//! Who has to undo what a crash cut off, where several connections come to it at once.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::common::raw::Raw;
use crate::common::{Place, check_integrity};
use libsqlite3_sys::{
    SQLITE_BUSY, SQLITE_FCNTL_LOCKSTATE, SQLITE_LOCK_EXCLUSIVE, SQLITE_LOCK_NONE,
    SQLITE_LOCK_SHARED, SQLITE_OK,
};
use rusqlite::ErrorCode;

/// That somebody is going to write tells others that a journal is being written, and has not to be undone.
#[test]
fn who_wants_a_hot_journal_and_does_not_get_it_is_not_taken_for_a_writer() {
    let place = Place::new(16);
    let [mut one, mut two, mut three] = [(); 3].map(|()| Raw::database(&place, "db"));
    assert_eq!(one.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(two.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    assert_eq!(one.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_BUSY);
    let mut level = -1;
    assert_eq!(one.control(SQLITE_FCNTL_LOCKSTATE, &mut level), SQLITE_OK);
    assert_eq!(level, SQLITE_LOCK_SHARED);
    assert!(!two.is_reserved());
    assert_eq!(three.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    for other in [&mut two, &mut three] {
        assert_eq!(other.unlock(SQLITE_LOCK_NONE), SQLITE_OK);
    }
    assert_eq!(one.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK);
}

/// One reads all the time, one tries to undo what was cut off, and a third comes to it.
#[test]
fn a_hot_journal_that_others_are_about_to_undo_is_not_passed_over() {
    const TRIES: u32 = 6000;
    const PAUSE: u32 = 50;
    let place = Place::new(64);
    let db = place.open("db");
    db.execute_batch(
        "PRAGMA cache_size = 5; CREATE TABLE t(x INTEGER PRIMARY KEY, y INTEGER, data BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
             INSERT INTO t SELECT i, 1, zeroblob(1000) FROM n;
         BEGIN; UPDATE t SET y = 2",
    )
    .unwrap();
    db.cache_flush().unwrap();
    // As a crash would leave them.
    place.pool.write("cut", place.pool.read("db").unwrap()).unwrap();
    place.pool.write("cut-journal", place.pool.read("db-journal").unwrap()).unwrap();
    let sum = || {
        let db = place.open("cut");
        db.busy_timeout(Duration::ZERO).unwrap();
        db.query_row("SELECT sum(y) FROM t", (), |row| row.get::<_, i64>(0))
    };
    let mut reader = Raw::database(&place, "cut");
    assert_eq!(reader.lock(SQLITE_LOCK_SHARED), SQLITE_OK);
    let pause = || (0..PAUSE).for_each(|_| spin_loop());
    let done = AtomicBool::new(false);
    let found: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Raw::database(&place, "cut");
            while !done.load(Relaxed) {
                if other.lock(SQLITE_LOCK_SHARED) == SQLITE_OK {
                    assert_eq!(other.lock(SQLITE_LOCK_EXCLUSIVE), SQLITE_BUSY);
                }
                // As long as the third one needs from its first lock to its look at this one's.
                pause();
                assert_eq!(other.unlock(SQLITE_LOCK_NONE), SQLITE_OK);
                pause();
            }
        });
        let found = (0..TRIES).map(|_| sum()).collect();
        done.store(true, Relaxed);
        found
    });
    let read: Vec<_> = found.iter().filter_map(|found| found.as_ref().ok()).collect();
    assert!(read.is_empty(), "read as {read:?}");
    for error in found.iter().filter_map(|found| found.as_ref().err()) {
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    }
    drop(reader);
    assert_eq!(sum().unwrap(), 100);
    assert!(!place.pool.exists("cut-journal"));
    check_integrity(&place.open("cut"));
}
