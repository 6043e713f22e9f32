//! Random places of large files: read and written anew.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::stage::Stage;
use crate::calls::{Calls, For};
use crate::plan::Cell;
use crate::random::Random;
use crate::worker::{Step, Worker, worker};
use crate::workload::Mode;

/// The pieces of a file that a thread takes.
struct Pieces {
    places: Range<u64>,
    random: Random,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Of a file of `file_bytes` bytes; in a shared one a part of its own, where `apart`.
    fn new(cell: &Cell, thread: usize, file_bytes: u64, apart: bool) -> Self {
        let size = cell.workload.size;
        let all = file_bytes / size;
        let (thread_number, threads) = (thread as u64, cell.threads as u64);
        let places = match cell.mode {
            Mode::Shared if apart => {
                all * thread_number / threads..all * (thread_number + 1) / threads
            }
            _ => 0..all,
        };
        Self { places, random: Random::new(thread_number), bytes: vec![0xc3; size as usize] }
    }

    #[inline]
    fn any(&mut self) -> u64 {
        let place = self.places.start + self.random.below(self.places.end - self.places.start);
        place * self.bytes.len() as u64
    }
}

struct Overwrite<C: Calls> {
    calls: Arc<C>,
    file: C::File,
    pieces: Pieces,
}

impl<C: Calls> Step for Overwrite<C> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let at = self.pieces.any();
        self.calls.write_at(&self.file, at, &self.pieces.bytes)?;
        self.calls.persist(&self.file)
    }
}

struct Read<C: Calls> {
    calls: Arc<C>,
    file: C::File,
    pieces: Pieces,
}

impl<C: Calls> Step for Read<C> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let at = self.pieces.any();
        self.calls.read_at(&self.file, at, &mut self.pieces.bytes)
    }
}

/// Writes; in one file each thread to places of its own.
pub fn overwrite<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let each = |thread| {
        let (file, bytes) = stage.data_file(cell, thread, For::Writing)?;
        let pieces = Pieces::new(cell, thread, bytes, true);
        Ok(worker(Overwrite { calls: Arc::clone(&stage.calls), file, pieces }))
    };
    (0..cell.threads).map(each).collect()
}

/// Reads.
pub fn read<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let each = |thread| {
        let (file, bytes) = stage.data_file(cell, thread, For::Reading)?;
        let pieces = Pieces::new(cell, thread, bytes, false);
        Ok(worker(Read { calls: Arc::clone(&stage.calls), file, pieces }))
    };
    (0..cell.threads).map(each).collect()
}
