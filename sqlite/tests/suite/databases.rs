//! What SQLite makes of what the VFS promises, and databases in their different lives.

use std::fs;

use crate::common::{Place, PoolFile, check_integrity, value};
use lode::{Pool, PoolOptions};
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// Where `Stats::ops` counts files that were made, and syncs.
const CREATE: usize = 3;
const FSYNC: usize = 18;

/// Rows of 1 KiB, numbered.
fn fill(db: &Connection, rows: u32) {
    db.execute_batch(&format!(
        "CREATE TABLE t(x INTEGER PRIMARY KEY, data BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO t SELECT i, randomblob(1000) FROM n"
    ))
    .unwrap();
}

fn code<T>(done: rusqlite::Result<T>) -> (ErrorCode, i32) {
    let error = done.map(drop).unwrap_err();
    let found = error.sqlite_error().unwrap();
    (found.code, found.extended_code)
}

/// Sequential, safe append: a journal says how long it is by its length, from the start. Powersafe
/// overwrite: it has no sectors to fill up.
#[test]
fn journals_are_made_as_the_vfs_promises_allow() {
    let place = Place::new(32);
    for uri in ["file:a", "file:b?psow=0"] {
        let db = place.open(uri);
        fill(&db, 200);
        let synced = place.pool.stats().unwrap().ops[FSYNC];
        db.execute_batch("BEGIN; UPDATE t SET data = zeroblob(1000)").unwrap();
        // Pages of the database are written in the middle, the journal before them.
        db.cache_flush().unwrap();
        assert_eq!(place.pool.stats().unwrap().ops[FSYNC], synced, "nothing waits for a sync");
        let journal = place.pool.read(format!("{}-journal", &uri[5..6])).unwrap();
        assert_eq!(&journal[..8], b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7");
        assert_eq!(&journal[8..12], [0xff; 4], "so many pages as there are");
        assert_eq!(&journal[20..24], [0, 0, 2, 0], "its header takes 512 bytes");
        assert!(journal.len() > 100_000, "{} bytes", journal.len());
        let written = place.pool.read(&uri[5..6]).unwrap();
        assert!(written.iter().filter(|byte| **byte == 0).count() > 150_000);
        db.execute_batch("ROLLBACK").unwrap();
        assert_eq!(value::<i64>(&db, "SELECT count(*) FROM t WHERE data = zeroblob(1000)"), 0);
        check_integrity(&db);
    }
}

/// Atomic: a transaction that changes one page of 2 KiB needs no journal, where SQLite is built to
/// see that. One that changes two, or a larger page, has one.
#[test]
fn a_transaction_of_one_small_page_makes_no_file() {
    let place = Place::new(32);
    let probe = place.pool.stats().unwrap().ops[CREATE];
    place.pool.create_new("probe").unwrap();
    assert_eq!(place.pool.stats().unwrap().ops[CREATE], probe + 1);
    for (size, files) in [(512, 0), (1024, 0), (2048, 0), (4096, 1), (65_536, 1)] {
        let db = place.open(&format!("db{size}"));
        let built: bool = value(&db, "SELECT sqlite_compileoption_used('ENABLE_ATOMIC_WRITE')");
        assert!(built, "see .cargo/config.toml");
        db.execute_batch(&format!(
            "PRAGMA page_size = {size}; CREATE TABLE t(x); CREATE TABLE u(x);
             INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)"
        ))
        .unwrap();
        for (sql, files) in [
            ("UPDATE t SET x = x + 1", files),
            ("BEGIN; UPDATE t SET x = x + 1; UPDATE u SET x = x + 1; COMMIT", 1),
        ] {
            let before = place.pool.stats().unwrap().ops[CREATE];
            db.execute_batch(sql).unwrap();
            let made = place.pool.stats().unwrap().ops[CREATE] - before;
            assert_eq!(made, files, "{sql}, pages of {size}");
        }
        // Other connections see that it has changed.
        let other = place.open(&format!("db{size}"));
        assert_eq!(value::<i64>(&other, "SELECT x FROM t"), 3);
        db.execute_batch("UPDATE t SET x = 10").unwrap();
        assert_eq!(value::<i64>(&other, "SELECT x FROM t"), 10);
    }
}

#[test]
fn names_and_uris_lead_to_files_of_the_pool() {
    let place = Place::new(32);
    place.pool.create_dir("dir").unwrap();
    place.pool.symlink("dir/real", "link").unwrap();
    for (name, path) in [
        ("plain", "/plain"),
        ("/rooted", "/rooted"),
        ("dir/./below", "/dir/below"),
        ("file:uri", "/uri"),
        ("file:///dir/uri?cache=private", "/dir/uri"),
        ("file:dir/%41?mode=rwc", "/dir/A"),
        ("link", "/dir/real"),
        ("with space-and-dashes", "/with space-and-dashes"),
    ] {
        let db = place.open(name);
        db.execute_batch("CREATE TABLE t(x); BEGIN; INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(db.path().unwrap(), path);
        assert!(place.pool.exists(path) && place.pool.exists(format!("{path}-journal")), "{name}");
        db.execute_batch("COMMIT").unwrap();
        assert!(!place.pool.exists(format!("{path}-journal")));
    }
    let not_followed = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    assert!(place.open_with("link", not_followed).is_err());
    assert!(place.open_with("dir/real", not_followed).is_ok());
    let read = place.open("file:plain?mode=ro");
    assert_eq!(value::<i64>(&read, "SELECT count(*) FROM t"), 1);
    assert_eq!(code(read.execute_batch("DELETE FROM t")).0, ErrorCode::ReadOnly);
    assert_eq!(
        code(place.open_with("file:none?mode=rw", OpenFlags::default())).0,
        ErrorCode::CannotOpen
    );
    assert_eq!(code(place.open_with("dir", OpenFlags::default())).0, ErrorCode::CannotOpen);
    let unchanging = place.open("file:plain?immutable=1");
    assert_eq!(value::<i64>(&unchanging, "SELECT count(*) FROM t"), 1);
    assert_eq!(value::<i64>(&read, "PRAGMA mmap_size = 1000000"), 0);
}

#[test]
fn the_log_stays_where_that_is_asked_for_and_goes_with_the_last_connection_else() {
    let place = Place::new(32);
    for keep in [false, true] {
        let (one, two) = (place.open("db"), place.open("db"));
        one.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t(x)").unwrap();
        one.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(value::<i64>(&two, "SELECT min(x) FROM t"), 1);
        let wanted = i32::from(keep);
        // SAFETY: the connection is open, and the operation takes a number.
        unsafe {
            let (main, op) = (c"main".as_ptr(), libsqlite3_sys::SQLITE_FCNTL_PERSIST_WAL);
            for db in [&one, &two] {
                let mut wanted = wanted;
                let wanted = (&raw mut wanted).cast();
                libsqlite3_sys::sqlite3_file_control(db.handle(), main, op, wanted);
            }
        }
        drop(one);
        assert!(place.pool.exists("db-wal"));
        assert_eq!(value::<i64>(&two, "SELECT min(x) FROM t"), 1);
        drop(two);
        assert_eq!(place.pool.exists("db-wal"), keep);
        assert!(!place.pool.exists("db-shm"), "the index is no file");
    }
}

#[test]
fn a_pool_that_is_full_is_not_harmed() {
    let place = Place::new(16);
    for mode in ["DELETE", "WAL"] {
        place.pool.write("ballast", vec![1; 2 << 20]).unwrap();
        let db = place.open(mode);
        db.execute_batch(&format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t(x INTEGER PRIMARY KEY, data)"
        ))
        .unwrap();
        let mut rows = 0;
        let full = loop {
            match db.execute("INSERT INTO t VALUES (NULL, randomblob(100000))", ()) {
                Ok(_) => rows += 1,
                Err(error) => break error,
            }
            assert!(rows < 1000);
        };
        assert_eq!(full.sqlite_error_code(), Some(ErrorCode::DiskFull), "{mode}");
        check_integrity(&db);
        assert_eq!(value::<i64>(&db, "SELECT count(*) FROM t"), rows);
        place.pool.remove_file("ballast").unwrap();
        db.execute_batch("DELETE FROM t WHERE x % 2").unwrap();
        db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO t VALUES (1, 'room')")
            .unwrap();
        check_integrity(&db);
        drop(db);
        place.pool.remove_file(mode).unwrap();
    }
}

/// A copy of the pool as it is now, which a crash might have left; opened to be read.
fn copy_read_only(file: &PoolFile) -> Place {
    let copy = file.dir.path().join("copy");
    fs::copy(&file.path, &copy).unwrap();
    Place::over(PoolOptions::new().read_only(true).open(&copy).unwrap())
}

#[test]
fn databases_of_a_read_only_pool_are_read() {
    let file = PoolFile::new(48);
    let place = file.open();
    let (deleting, logging) = (place.open("deleting"), place.open("logging"));
    fill(&deleting, 300);
    logging.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    fill(&logging, 300);
    let read = |place: &Place, name: &str, rows: i64| {
        let db = place.open(name);
        assert_eq!(value::<i64>(&db, "SELECT count(*) FROM t"), rows);
        check_integrity(&db);
        // More than is kept in memory is sorted in a temporary file.
        db.execute_batch("PRAGMA cache_size = 5; PRAGMA temp_store = FILE").unwrap();
        let sorted = "SELECT count(*) FROM (SELECT x, row_number() OVER (ORDER BY data) FROM t)";
        assert_eq!(value::<i64>(&db, sorted), rows);
        db.execute_batch("CREATE TEMP TABLE u AS SELECT * FROM t").unwrap();
        assert_eq!(code(db.execute_batch("DELETE FROM t")).0, ErrorCode::ReadOnly);
    };
    // With what is in the log.
    let copy = copy_read_only(&file);
    assert!(copy.pool.metadata("logging-wal").unwrap().len() > 0);
    read(&copy, "logging", 300);
    read(&copy, "deleting", 300);
    copy.close();
    // What was cut off has to be undone, and can't be: nothing half-done is shown.
    deleting.execute_batch("PRAGMA cache_size = 5; BEGIN; DELETE FROM t WHERE x > 100").unwrap();
    deleting.execute_batch("UPDATE t SET data = 1").unwrap();
    deleting.cache_flush().unwrap();
    let copy = copy_read_only(&file);
    let db = copy.open("deleting");
    let refused = code(db.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0)));
    assert_eq!(refused.1, libsqlite3_sys::SQLITE_READONLY_ROLLBACK);
    drop(db);
    copy.close();
    // A copy that is opened to be changed undoes it.
    let again = file.dir.path().join("again");
    fs::copy(&file.path, &again).unwrap();
    let copy = Place::over(Pool::open(&again).unwrap());
    let db = copy.open("deleting");
    assert_eq!(value::<i64>(&db, "SELECT count(*) FROM t WHERE length(data) = 1000"), 300);
    check_integrity(&db);
    assert!(!copy.pool.exists("deleting-journal"));
    // Without a log.
    deleting.execute_batch("ROLLBACK").unwrap();
    drop((deleting, logging));
    assert!(!place.pool.exists("logging-wal"));
    place.close();
    let place = Place::over(PoolOptions::new().read_only(true).open(&file.path).unwrap());
    read(&place, "logging", 300);
    read(&place, "deleting", 300);
}

#[test]
fn a_database_of_100_megabytes_is_vacuumed() {
    let place = Place::new(320);
    let db = place.open("large");
    db.execute_batch("PRAGMA cache_size = 200").unwrap();
    fill(&db, 100_000);
    let len = || place.pool.metadata("large").unwrap().len();
    let before = len();
    assert!(before > 100_000_000, "{before}");
    let sum = "SELECT sum(x), count(*), sum(length(data)) FROM t";
    db.execute_batch("DELETE FROM t WHERE x % 3").unwrap();
    let rows = |db: &Connection| {
        db.query_row(sum, (), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap()
    };
    let kept = rows(&db);
    db.execute_batch("VACUUM INTO 'small'; VACUUM").unwrap();
    assert!(len() < before * 2 / 5, "{} of {before}", len());
    assert_eq!(rows(&db), kept);
    assert_eq!(rows(&place.open("small")), kept);
    check_integrity(&db);
    check_integrity(&place.open("small"));
    // What it grew by is given back.
    let free = place.pool.statfs().unwrap().pages_free;
    drop(db);
    for name in place.names() {
        place.pool.remove_file(name).unwrap();
    }
    assert!(place.pool.statfs().unwrap().pages_free > free + 2 * 7000);
}
