//! Connections of many threads to one database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use crate::common::bank::{self, Kind, Way};
use crate::common::{Place, value};
use rusqlite::{ErrorCode, TransactionBehavior};

const WRITERS: u64 = 3;
const TRANSFERS: u64 = 60;

/// Many write and read with a journal; each reader sees whole transactions only.
fn load(way: &Way) {
    let place = Place::new(96);
    let db = place.open("db");
    bank::settle(&db, way, "db");
    bank::prepare(&db, way);
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let db = place.open("db");
                while !done.load(Relaxed) {
                    let sum = "SELECT sum(balance) = 1000 * count(*) FROM account";
                    assert!(value::<bool>(&db, sum), "a reader saw half a transfer");
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        if way.journal == "WAL" {
            scope.spawn(|| {
                let mut db = place.open("db");
                let count = "SELECT count(*) FROM change";
                while !done.load(Relaxed) {
                    // What a transaction has seen it sees until its end.
                    let read = db.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
                    let before: i64 = value(&read, count);
                    thread::yield_now();
                    assert_eq!(value::<i64>(&read, count), before);
                    drop(read);
                    db.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (place, way) = (&place, &way);
                scope.spawn(move || {
                    let db = place.open("db");
                    bank::settle(&db, way, "db");
                    for number in 1..=TRANSFERS {
                        bank::step(&db, way, writer, number).unwrap();
                    }
                })
            })
            .collect();
        // Readers end then, also where a writer failed.
        let failed = writers.into_iter().filter_map(|writer| writer.join().err()).count();
        done.store(true, Relaxed);
        assert_eq!(failed, 0, "writers");
    });
    assert!(reads.load(Relaxed) > 0);
    assert_eq!(bank::judge(&db, way), [TRANSFERS; WRITERS as usize]);
}

#[test]
fn many_write_and_read_with_a_log() {
    load(&Way { journal: "WAL", synchronous: "NORMAL", kind: Kind::Writers(WRITERS) });
}

#[test]
fn many_write_and_read_with_a_journal() {
    for journal in ["DELETE", "PERSIST"] {
        load(&Way { journal, synchronous: "FULL", kind: Kind::Writers(WRITERS) });
    }
}

#[test]
fn who_is_in_the_way_is_told_to_the_busy_handler() {
    let place = Place::new(32);
    for mode in ["DELETE", "WAL"] {
        let (one, two) = (place.open(mode), place.open(mode));
        one.execute_batch(&format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(x)")).unwrap();
        one.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
        // Until it commits others read what was before, and can't write.
        assert_eq!(value::<i64>(&two, "SELECT count(*) FROM t"), 0);
        two.busy_timeout(std::time::Duration::ZERO).unwrap();
        let refused = two.execute_batch("INSERT INTO t VALUES (2)").unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
        two.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
        let waits = thread::spawn(move || {
            two.execute_batch("INSERT INTO t VALUES (2)").unwrap();
            two
        });
        thread::sleep(std::time::Duration::from_millis(30));
        one.execute_batch("COMMIT").unwrap();
        let two = waits.join().unwrap();
        assert_eq!(value::<i64>(&one, "SELECT sum(x) FROM t"), 3);
        // A reader keeps a writer from the database itself, but not from the log.
        one.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        let mut rows = one.prepare("SELECT x FROM t").unwrap();
        let mut rows = rows.query(()).unwrap();
        rows.next().unwrap().unwrap();
        two.busy_timeout(std::time::Duration::ZERO).unwrap();
        let written = two.execute_batch("INSERT INTO t VALUES (3)");
        assert_eq!(written.is_ok(), mode == "WAL", "{written:?}");
    }
}
