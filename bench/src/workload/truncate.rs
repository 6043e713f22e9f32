//! Files that are cut.

use std::io;
use std::sync::Arc;

use super::stage::Stage;
use crate::calls::{Calls, Name};
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};

const PAGE: u64 = 4096;
/// Pages of a whole file.
const PAGES: u64 = 512;

struct Truncate<C: Calls> {
    calls: Arc<C>,
    file: C::File,
    bytes: Vec<u8>,
}

impl<C: Calls> Step for Truncate<C> {
    fn batch(&self) -> u64 {
        PAGES
    }
    fn prepare(&mut self, done: u64) -> io::Result<()> {
        let at = (PAGES - done.min(PAGES)) * PAGE;
        let cut = self.bytes.get(at as usize..).unwrap_or_default();
        self.calls.write_at(&self.file, at, cut)?;
        self.calls.persist(&self.file)
    }
    fn step(&mut self, number: u64) -> io::Result<()> {
        self.calls.set_len(&self.file, (PAGES - 1 - number) * PAGE)?;
        self.calls.persist(&self.file)
    }
}

/// Cuts a page after the other off files.
pub fn truncate<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let each = |_| {
        let calls = Arc::clone(&stage.calls);
        let file = calls.create(&Name::new(&format!("c{}", stage.number()))?)?;
        let bytes = vec![0x3c; (PAGES * PAGE) as usize];
        calls.write_at(&file, 0, &bytes)?;
        Ok(worker(Truncate { calls, file, bytes }))
    };
    (0..cell.threads).map(each).collect()
}
