//! A mixed load has the same results, row by row, in a pool and with SQLite's own VFS on files of the
//! system.

use crate::common::{Place, scratch};
use lode_testkit::rng::Rng;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Tables of all kinds that this SQLite has.
const TABLES: &str = "
CREATE TABLE z1(a INTEGER, b INTEGER, c TEXT);
CREATE TABLE z2(a INTEGER PRIMARY KEY, b INTEGER UNIQUE, c TEXT) WITHOUT ROWID;
CREATE INDEX z1_b ON z1(b);
CREATE INDEX z1_c ON z1(c COLLATE NOCASE) WHERE a % 2;
CREATE TABLE big(a INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE log(what TEXT, a INTEGER, b INTEGER);
CREATE VIEW v AS SELECT z1.a, z2.c FROM z1 JOIN z2 ON z1.a = z2.a;
CREATE TRIGGER z1_up AFTER UPDATE ON z1 BEGIN INSERT INTO log VALUES ('up', old.b, new.b); END;
CREATE VIRTUAL TABLE words USING fts5(text);
CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1, y0, y1);
";

/// What is asked at the end of each part.
const QUESTIONS: [&str; 12] = [
    "SELECT count(*), sum(a), sum(b), min(c), max(c) FROM z1",
    "SELECT * FROM z2 ORDER BY c DESC, a LIMIT 50",
    "SELECT a, count(*), group_concat(b, '/') FROM z1 WHERE b BETWEEN 100 AND 300 GROUP BY a % 7",
    "SELECT v.a, v.c FROM v ORDER BY 1, 2 LIMIT 40",
    "SELECT c, b, rank() OVER (PARTITION BY a % 5 ORDER BY b, c) FROM z1 ORDER BY c, b, a LIMIT 60",
    "SELECT a, length(data), hex(substr(data, 1, 20)), sum(length(data)) OVER () FROM big ORDER BY a",
    "SELECT what, count(*), sum(a - b) FROM log GROUP BY what",
    "SELECT rowid, highlight(words, 0, '<', '>') FROM words('seven OR t*') ORDER BY rank, rowid",
    "SELECT id FROM boxes WHERE x0 < 50 AND y1 > 20 ORDER BY id",
    "WITH RECURSIVE f(i, s) AS (SELECT 1, '' UNION ALL SELECT i + 1, s || char(64 + i) FROM f
        WHERE i < 20) SELECT json_group_array(s) FROM f",
    "SELECT a, c FROM z1 WHERE c LIKE '%four%' ORDER BY c, a LIMIT 30",
    "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
];

fn words(number: u64) -> String {
    const NAMES: [&str; 10] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let digits = number.to_string();
    let names: Vec<&str> = digits.bytes().map(|digit| NAMES[usize::from(digit - b'0')]).collect();
    names.join(" ")
}

/// One statement at random.
fn statement(bits: &mut Rng) -> String {
    let (a, b, c) = (bits.below(500), bits.below(1000), words(bits.below(100_000)));
    match bits.below(24) {
        0..=4 => format!("INSERT INTO z1 VALUES ({a}, {b}, '{c}')"),
        5..=6 => format!("INSERT OR REPLACE INTO z2 VALUES ({a}, {b}, '{c}')"),
        7 => format!(
            "INSERT INTO z2 VALUES ({a}, {b}, '{c}') ON CONFLICT DO UPDATE SET c = c || excluded.c"
        ),
        8..=9 => format!("UPDATE z1 SET b = b + 1, c = '{c}' WHERE a = {a}"),
        10 => format!("UPDATE z1 SET b = b + 1 WHERE b < {}", b / 20),
        11 => format!("DELETE FROM z1 WHERE a = {a} RETURNING b, c"),
        12 => format!("DELETE FROM z2 WHERE b BETWEEN {b} AND {}", b + 30),
        13 => format!("INSERT OR REPLACE INTO big VALUES ({}, zeroblob({}))", a % 40, b * 90),
        14 => format!("UPDATE big SET data = CAST('{c}' AS BLOB) || data WHERE a % 3 = {}", a % 3),
        15 => format!("INSERT INTO words VALUES ('{c}')"),
        16 => format!("DELETE FROM words WHERE rowid = {}", a % 90),
        17 => format!("INSERT OR REPLACE INTO boxes VALUES ({a}, {b}, {}, {a}, {})", b + 5, a + 9),
        18 => "SAVEPOINT s".to_owned(),
        19 => "ROLLBACK TO s".to_owned(),
        20 => "RELEASE s".to_owned(),
        21 => "BEGIN".to_owned(),
        22 => "COMMIT".to_owned(),
        _ => "ROLLBACK".to_owned(),
    }
}

/// Rows of a statement as text, or its error.
fn run(db: &Connection, sql: &str) -> Vec<String> {
    let rows = || -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare(sql)?;
        let count = statement.column_count();
        let mut rows = statement.query(())?;
        let mut text = Vec::new();
        while let Some(row) = rows.next()? {
            let column = |at| match row.get_ref(at).unwrap() {
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                other => format!("{other:?}"),
            };
            text.push((0..count).map(column).collect::<Vec<_>>().join("|"));
        }
        text.push(format!("{} changes", db.changes()));
        Ok(text)
    };
    rows().unwrap_or_else(|error| vec![error.to_string()])
}

/// Does the same in both; each statement has to say the same.
fn compare(pool: &Connection, system: &Connection, sql: &str) {
    let (found, wanted) = (run(pool, sql), run(system, sql));
    assert!(found == wanted, "{sql}:\nin the pool {found:#?}\nin the system {wanted:#?}");
}

fn mixed_load(settings: &str, seed: u64) {
    let (place, dir) = (Place::new(128), scratch());
    let mut pool = place.open("db");
    let mut system = Connection::open(dir.path().join("db")).unwrap();
    let both = |pool: &Connection, system: &Connection| {
        for db in [pool, system] {
            db.execute_batch(settings).unwrap();
        }
    };
    both(&pool, &system);
    for db in [&pool, &system] {
        db.execute_batch(TABLES).unwrap();
    }
    let mut bits = Rng::new(seed);
    for part in 0..4 {
        for _ in 0..250 {
            compare(&pool, &system, &statement(&mut bits));
        }
        for question in QUESTIONS {
            compare(&pool, &system, question);
        }
        let upkeep = ["ANALYZE", "PRAGMA incremental_vacuum", "VACUUM", "REINDEX"];
        // (An open transaction refuses some of them: in both.)
        compare(&pool, &system, upkeep[part]);
        for sql in ["COMMIT", upkeep[part], "PRAGMA integrity_check", "PRAGMA page_count"] {
            compare(&pool, &system, sql);
        }
        // What was closed is the same when it is opened again.
        drop((pool, system));
        pool = place.open("db");
        system = Connection::open(dir.path().join("db")).unwrap();
        both(&pool, &system);
    }
    let mut names = place.names();
    names.retain(|name| !name.ends_with("-wal"));
    let mut others: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm"))
        .collect();
    others.sort();
    assert_eq!(names, others, "the same files are left");
}

#[test]
fn a_mixed_load_gives_the_same_rows_with_journals() {
    for (seed, mode) in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"].iter().enumerate() {
        mixed_load(&format!("PRAGMA journal_mode = {mode}; PRAGMA cache_size = 20"), seed as u64);
    }
}

#[test]
fn a_mixed_load_gives_the_same_rows_with_logs_and_other_settings() {
    for (seed, settings) in [
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20",
        "PRAGMA page_size = 512; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA cache_size = 20",
        "PRAGMA page_size = 65536; PRAGMA journal_mode = WAL; PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA page_size = 2048; PRAGMA auto_vacuum = FULL; PRAGMA secure_delete = ON",
    ]
    .iter()
    .enumerate()
    {
        mixed_load(settings, 10 + seed as u64);
    }
}

/// Sorting and indexing more than there is memory for, with several threads, goes through temporary
/// files.
#[test]
fn what_is_sorted_in_temporary_files_is_sorted_the_same() {
    let (place, dir) = (Place::new(256), scratch());
    let pool = place.open("db");
    let system = Connection::open(dir.path().join("db")).unwrap();
    for db in [&pool, &system] {
        db.execute_batch(
            "PRAGMA temp_store = FILE; PRAGMA cache_size = 10; PRAGMA threads = 4;
             CREATE TABLE t(x, data);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
                 INSERT INTO t SELECT i * 7919 % 30011, printf('%0400d', i * 104729 % 30011) FROM n;
             CREATE INDEX t_data ON t(data, x);",
        )
        .unwrap();
    }
    compare(&pool, &system, "PRAGMA integrity_check");
    compare(&pool, &system, "SELECT x FROM t ORDER BY substr(data, 3), x LIMIT 5000 OFFSET 12000");
    compare(&pool, &system, "SELECT x, count(*) OVER (ORDER BY data DESC ROWS 3 PRECEDING) FROM t");
    let made = place.pool.stats().unwrap().ops[4];
    assert!(made > 0, "no temporary file was made");
    assert_eq!(place.names(), ["db"]);
}
