//! Files that grow.

use std::io;
use std::sync::Arc;

use super::stage::{Stage, own};
use crate::calls::{Calls, For, Name};
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};

/// A file grows to this size, then it is cut to nothing.
const BYTES_MAX: u64 = 32 << 20;
/// And has at most so many appends.
const APPENDS_MAX: u64 = 8192;

struct Append<C: Calls> {
    calls: Arc<C>,
    file: C::File,
    name: Name,
    bytes: Vec<u8>,
    /// This thread cuts the file, and removes it.
    cuts: bool,
}

impl<C: Calls> Drop for Append<C> {
    fn drop(&mut self) {
        if self.cuts {
            // What can't be removed goes with its file system.
            let _ = self.calls.unlink(&self.name);
        }
    }
}

impl<C: Calls> Step for Append<C> {
    fn batch(&self) -> u64 {
        (BYTES_MAX / self.bytes.len().max(1) as u64).min(APPENDS_MAX)
    }
    fn prepare(&mut self, _done: u64) -> io::Result<()> {
        if self.cuts { self.calls.set_len(&self.file, 0) } else { Ok(()) }
    }
    fn step(&mut self, _number: u64) -> io::Result<()> {
        self.calls.append(&self.file, &self.bytes)?;
        self.calls.persist(&self.file)
    }
}

/// Writes behind the ends of files.
pub fn append<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let fresh = stage.number();
    let each = |thread| {
        let file = own(cell, thread);
        let name = Name::new(&format!("a{fresh}-{file}"))?;
        let cuts = file == thread;
        if cuts {
            drop(stage.calls.create(&name)?);
        }
        let calls = Arc::clone(&stage.calls);
        let file = calls.open(&name, For::Appending)?;
        let bytes = vec![0xa5; cell.workload.size as usize];
        Ok(worker(Append { calls, file, name, bytes, cuts }))
    };
    (0..cell.threads).map(each).collect()
}
