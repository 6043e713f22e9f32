//! Transfers between accounts, each of which leaves a row with a checksum: from what is there it can be
//! told which of them happened, and whether each did so wholly.

use lode_testkit::rng::Rng;
use rusqlite::{Connection, params};

const ACCOUNTS: u64 = 60;
const RICHES: i64 = 1000;
/// A writer's older transfers are folded into the accounts.
const KEPT: u64 = 120;

/// How databases are used.
#[derive(Debug)]
pub struct Way {
    pub journal: &'static str,
    pub synchronous: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// So many writers of one database.
    Writers(u64),
    /// Each transfer goes from one database to another.
    TwoDatabases,
    /// Each changes one page of 2 KiB, which SQLite writes without a journal.
    OnePage,
}

const fn way(journal: &'static str, synchronous: &'static str, kind: Kind) -> Way {
    Way { journal, synchronous, kind }
}

/// All that a crash must not harm. (With `OFF` SQLite makes no super-journal: then a transaction over two
/// databases is two.)
pub const WAYS: [Way; 13] = [
    way("DELETE", "FULL", Kind::Writers(1)),
    way("WAL", "NORMAL", Kind::Writers(1)),
    way("TRUNCATE", "NORMAL", Kind::Writers(1)),
    way("PERSIST", "FULL", Kind::Writers(2)),
    way("WAL", "FULL", Kind::Writers(2)),
    way("DELETE", "EXTRA", Kind::TwoDatabases),
    way("PERSIST", "OFF", Kind::Writers(1)),
    way("DELETE", "FULL", Kind::OnePage),
    way("WAL", "OFF", Kind::Writers(2)),
    way("DELETE", "OFF", Kind::Writers(2)),
    way("TRUNCATE", "FULL", Kind::TwoDatabases),
    way("TRUNCATE", "OFF", Kind::Writers(2)),
    way("PERSIST", "NORMAL", Kind::TwoDatabases),
];

impl Way {
    pub fn writers(&self) -> u64 {
        if let Kind::Writers(count) = self.kind { count } else { 1 }
    }

    fn page_size(&self) -> u32 {
        if self.kind == Kind::OnePage { 2048 } else { 4096 }
    }
}

/// A connection's settings, and its other database where there are two.
pub fn settle(db: &Connection, way: &Way, name: &str) {
    let Way { journal, synchronous, .. } = way;
    db.execute_batch(&format!("PRAGMA page_size = {}", way.page_size())).unwrap();
    if way.kind == Kind::TwoDatabases {
        db.execute_batch(&format!("ATTACH 'file:{name}-other' AS other")).unwrap();
    }
    if way.kind == Kind::TwoDatabases {
        db.execute_batch(&format!("PRAGMA other.synchronous = {synchronous}")).unwrap();
    }
    // So little memory that pages are written in the middle of transactions.
    db.execute_batch(&format!(
        "PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous};
         PRAGMA cache_size = 8; PRAGMA wal_autocheckpoint = 40;"
    ))
    .unwrap();
    let mode: String = db.query_row("PRAGMA journal_mode", (), |row| row.get(0)).unwrap();
    assert_eq!(mode.to_uppercase(), *journal);
}

/// Makes the tables.
pub fn prepare(db: &Connection, way: &Way) {
    if way.kind == Kind::OnePage {
        let sql = "CREATE TABLE slot(number INT, data BLOB, sum INT);
                   INSERT INTO slot VALUES (0, x'', 0)";
        db.execute_batch(sql).unwrap();
        return;
    }
    let both = [Some("main"), (way.kind == Kind::TwoDatabases).then_some("other")];
    for schema in both.into_iter().flatten() {
        db.execute_batch(&format!(
            "BEGIN;
             CREATE TABLE {schema}.account(id INTEGER PRIMARY KEY, balance INT, base INT, pad BLOB);
             CREATE TABLE {schema}.change(writer INT, number INT, debit INT, credit INT, amount INT,
                 data BLOB, sum INT, PRIMARY KEY (writer, number));
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {ACCOUNTS})
                 INSERT INTO {schema}.account SELECT i, {RICHES}, {RICHES}, zeroblob(700) FROM n;
             COMMIT"
        ))
        .unwrap();
    }
}

fn sum(data: &[u8]) -> i64 {
    data.iter().fold(7, |sum: i64, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
}

fn bytes(bits: &mut Rng, most: u64) -> Vec<u8> {
    let len = bits.below(most);
    (0..len).map(|_| bits.bits() as u8).collect()
}

/// Transfer `number` of a writer; it is committed when this returns.
pub fn step(db: &Connection, way: &Way, writer: u64, number: u64) -> rusqlite::Result<()> {
    let mut bits = Rng::new(writer << 40 | number);
    if way.kind == Kind::OnePage {
        let data = bytes(&mut bits, 1500);
        let sql = "UPDATE slot SET number = ?, data = ?, sum = ?";
        return db.execute(sql, params![number, data, sum(&data)]).map(drop);
    }
    let (debit, credit) = (bits.below(ACCOUNTS), bits.below(ACCOUNTS));
    let amount = bits.below(50);
    let data = bytes(&mut bits, if number.is_multiple_of(8) { 60_000 } else { 3000 });
    let other = if way.kind == Kind::TwoDatabases { "other" } else { "main" };
    db.execute_batch("BEGIN IMMEDIATE")?;
    let run = |sql: &str, params: &[&dyn rusqlite::ToSql]| db.execute(sql, params).map(drop);
    run("UPDATE main.account SET balance = balance - ? WHERE id = ?", &[&amount, &debit])?;
    if number.is_multiple_of(5) {
        // What did not happen.
        db.execute_batch("SAVEPOINT s; UPDATE account SET balance = 0, pad = randomblob(900)")?;
        db.execute_batch("DELETE FROM change; ROLLBACK TO s; RELEASE s")?;
    }
    let up = format!("UPDATE {other}.account SET balance = balance + ? WHERE id = ?");
    run(&up, &[&amount, &credit])?;
    let both = [Some("main"), (other == "other").then_some(other)];
    for schema in both.into_iter().flatten() {
        let insert = format!("INSERT INTO {schema}.change VALUES (?, ?, ?, ?, ?, ?, ?)");
        run(&insert, &[&writer, &number, &debit, &credit, &amount, &data, &sum(&data)])?;
        if number.is_multiple_of(50) {
            fold(db, way, schema, writer, number.saturating_sub(KEPT))?;
        }
    }
    db.execute_batch("COMMIT")
}

/// Balances as the changes say, from `base`.
fn told(way: &Way, schema: &str, wheres: &str) -> String {
    let of = |side: &str| {
        format!("(SELECT coalesce(sum(amount), 0) FROM {schema}.change WHERE {side} = id {wheres})")
    };
    match (way.kind, schema) {
        (Kind::TwoDatabases, "main") => format!("base - {}", of("debit")),
        (Kind::TwoDatabases, _) => format!("base + {}", of("credit")),
        _ => format!("base + {} - {}", of("credit"), of("debit")),
    }
}

/// Removes a writer's transfers up to a number, and keeps what they came to.
fn fold(db: &Connection, way: &Way, schema: &str, writer: u64, up_to: u64) -> rusqlite::Result<()> {
    let old = format!("writer = {writer} AND number <= {up_to}");
    let told = told(way, schema, &format!("AND {old}"));
    db.execute_batch(&format!(
        "UPDATE {schema}.account SET base = {told}; DELETE FROM {schema}.change WHERE {old}"
    ))
}

/// Everything fits together. Returns each writer's last transfer.
pub fn judge(db: &Connection, way: &Way) -> Vec<u64> {
    super::check_integrity(db);
    if way.kind == Kind::OnePage {
        let row = db.query_row("SELECT number, data, sum FROM slot", (), |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(2)?))
        });
        let (number, data, told) = row.unwrap();
        assert!(number == 0 || told == sum(&data), "the row is of transfer {number} in part");
        return vec![number];
    }
    let both = [Some("main"), (way.kind == Kind::TwoDatabases).then_some("other")];
    let mut riches = 0;
    let mut last: Option<Vec<u64>> = None;
    for schema in both.into_iter().flatten() {
        let one = |sql: &str| super::value::<i64>(db, &sql.replace("{s}", schema));
        assert_eq!(super::value::<String>(db, &format!("PRAGMA {schema}.integrity_check")), "ok");
        riches += one("SELECT sum(balance) FROM {s}.account")
            - one("SELECT count(*) FROM {s}.account") * RICHES;
        let told = told(way, schema, "");
        let wrong = one(&format!("SELECT count(*) FROM {schema}.account WHERE balance <> {told}"));
        assert_eq!(wrong, 0, "balances that are not what the transfers say");
        let found: Vec<u64> =
            (0..way.writers()).map(|writer| changes(db, schema, writer)).collect();
        assert!(last.is_none_or(|last| last == found), "one database is ahead of the other");
        last = Some(found);
    }
    assert_eq!(riches, 0, "money was made or lost");
    last.unwrap()
}

/// A writer's transfers are whole, and none is missing. Returns the last.
fn changes(db: &Connection, schema: &str, writer: u64) -> u64 {
    let sql =
        format!("SELECT number, data, sum FROM {schema}.change WHERE writer = ? ORDER BY number");
    let mut rows = db.prepare(&sql).unwrap();
    let mut rows = rows.query([writer]).unwrap();
    let mut last = None;
    while let Some(row) = rows.next().unwrap() {
        let number: u64 = row.get(0).unwrap();
        let data: Vec<u8> = row.get(1).unwrap();
        assert_eq!(row.get::<_, i64>(2).unwrap(), sum(&data), "transfer {number}");
        assert!(last.is_none_or(|last| last + 1 == number), "transfer {number} after {last:?}");
        last = Some(number);
    }
    last.unwrap_or(0)
}
