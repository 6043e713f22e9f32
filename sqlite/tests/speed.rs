//! What a transaction costs in a pool in memory, and on a tmpfs with SQLite's own VFS, whose `fsync` does
//! nothing either:
//!
//!     cargo test --release -p lode-sqlite --test speed -- --ignored --nocapture
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Instant;

use common::{PoolFile, scratch};
use rusqlite::Connection;

const TRANSACTIONS: u32 = 3000;

/// Microseconds for each transaction of so many rows.
fn measure(db: &Connection, mode: &str, rows: u32) -> f64 {
    let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(x INTEGER PRIMARY KEY, data)");
    db.execute_batch(&sql).unwrap();
    let mut insert = db.prepare("INSERT INTO t VALUES (NULL, ?)").unwrap();
    let begin = Instant::now();
    for _ in 0..TRANSACTIONS / rows {
        db.execute_batch("BEGIN").unwrap();
        for _ in 0..rows {
            insert.execute([[7_u8; 200].as_slice()]).unwrap();
        }
        db.execute_batch("COMMIT").unwrap();
    }
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(TRANSACTIONS / rows)
}

#[test]
#[ignore = "measures"]
fn transactions() {
    println!("{:>10} {:>5} {:>10} {:>10}  us a transaction", "journal", "rows", "pool", "tmpfs");
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "WAL"] {
        for rows in [1, 100] {
            let (file, dir) = (PoolFile::new(64), scratch());
            let place = file.open();
            let pool = measure(&place.open("db"), mode, rows);
            let system = Connection::open(dir.path().join("db")).unwrap();
            let system = measure(&system, mode, rows);
            println!("{mode:>10} {rows:>5} {pool:>10.1} {system:>10.1}");
        }
    }
}
