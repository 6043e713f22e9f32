//! Commits of SQLite, each durable.

use std::io;

use rusqlite::Connection;

use super::stage::Stage;
use crate::calls::{Calls, Name};
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};

const INSERT: &str = "INSERT INTO item (text) VALUES (?1)";

struct Commits {
    database: Connection,
    text: String,
}

impl Step for Commits {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let mut insert = self.database.prepare_cached(INSERT).map_err(io::Error::other)?;
        insert.execute([&self.text]).map(drop).map_err(io::Error::other)
    }
}

/// Each thread commits to a database of its own; nobody where SQLite does not get there.
pub fn commits<C: Calls>(
    stage: &mut Stage<C>,
    cell: &Cell,
) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
    let mut all = Vec::new();
    for _ in 0..cell.threads {
        let name = Name::new(&format!("database{}", stage.number()))?;
        let Some(database) = stage.calls.database(&name)? else { return Ok(None) };
        let set_up = || -> rusqlite::Result<String> {
            let mode =
                database.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
            database.pragma_update(None, "synchronous", "FULL")?;
            database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, text TEXT)", [])?;
            Ok(mode)
        };
        let mode = set_up().map_err(io::Error::other)?;
        if mode != "wal" {
            return Err(io::Error::other(format!("SQLite has no WAL there, but {mode}")));
        }
        let text = "x".repeat(cell.workload.size as usize);
        all.push(worker(Commits { database, text }));
    }
    Ok(Some(all))
}
