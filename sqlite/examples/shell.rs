//! Runs SQL on a database in a pool: from the command line, or from standard input.
//!
//!     cargo run -p lode-sqlite --example shell -- POOL DATABASE ["SQL" ...]
//!
//! A pool that is not there is made where `--create MEGABYTES` stands before it.

use std::error::Error;
use std::ffi::CString;
use std::io::{self, BufRead, IsTerminal, Write};

use lode::{FormatOptions, Pool, PoolOptions};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, OpenFlags};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let create = match words.first().map(String::as_str) {
        Some("--create") if words.len() > 1 => Some(words.drain(..2).nth(1).unwrap_or_default()),
        _ => None,
    };
    let [path, database, statements @ ..] = &*words else {
        return Err("shell [--create MEGABYTES] POOL DATABASE [\"SQL\" ...]".into());
    };
    let pool = match (Pool::open(path), create) {
        (Err(error), Some(megabytes)) if error.errno() == libc::ENOENT => {
            let bytes = megabytes.parse::<u64>()? << 20;
            PoolOptions::new().create(path, bytes, &FormatOptions::default())?
        }
        (opened, _) => opened?,
    };
    let vfs = lode_sqlite::register(&pool, "pool")?;
    let db = Connection::open_with_flags_and_vfs(database, OpenFlags::default(), vfs.name())?;
    for sql in statements {
        run(&db, sql)?;
    }
    if statements.is_empty() {
        read(&db)?;
    }
    db.close().map_err(|(_, error)| error)?;
    drop(vfs);
    pool.close()?;
    Ok(())
}

/// Runs what standard input says, each statement when it is complete.
fn read(db: &Connection) -> Outcome<()> {
    let talks = io::stdin().is_terminal();
    let ask = |more: bool| {
        if talks {
            print!("{}", if more { "   ...> " } else { "lode> " });
        }
        io::stdout().flush()
    };
    let mut sql = String::new();
    ask(false)?;
    for line in io::stdin().lock().lines() {
        sql.push_str(&line?);
        sql.push('\n');
        if is_complete(&sql)? {
            match run(db, &sql) {
                Err(error) if talks => eprintln!("{error}"),
                done => done?,
            }
            sql.clear();
        }
        ask(!sql.is_empty())?;
    }
    run(db, &sql)
}

/// Whether it ends with the end of a statement.
fn is_complete(sql: &str) -> Outcome<bool> {
    let text = CString::new(sql)?;
    // SAFETY: the text lives as long as the call.
    Ok(unsafe { libsqlite3_sys::sqlite3_complete(text.as_ptr()) } != 0)
}

/// Runs statements, and prints their rows.
fn run(db: &Connection, sql: &str) -> Outcome<()> {
    let mut out = io::stdout().lock();
    let mut batch = Batch::new(db, sql);
    while let Some(mut statement) = batch.next()? {
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                if column > 0 {
                    out.write_all(b"|")?;
                }
                match row.get_ref(column)? {
                    ValueRef::Null => {}
                    ValueRef::Integer(number) => write!(out, "{number}")?,
                    ValueRef::Real(number) => write!(out, "{number}")?,
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => out.write_all(bytes)?,
                }
            }
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}
