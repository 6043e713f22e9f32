//! Files as memory.

use std::io;
use std::sync::Arc;

use super::stage::Stage;
use crate::calls::{Calls, Mapping};
use crate::plan::Cell;
use crate::random::Random;
use crate::worker::{Step, Worker, worker};

struct Mapped<M: Mapping> {
    map: Arc<M>,
    places: u64,
    bytes: Vec<u8>,
    random: Random,
}

impl<M: Mapping> Mapped<M> {
    #[inline]
    fn any(&mut self) -> u64 {
        self.random.below(self.places) * self.bytes.len() as u64
    }
}

struct Store<M: Mapping>(Mapped<M>);

impl<M: Mapping> Step for Store<M> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let at = self.0.any();
        self.0.map.store(at, &self.0.bytes)
    }
}

struct Load<M: Mapping>(Mapped<M>);

impl<M: Mapping> Step for Load<M> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let at = self.0.any();
        self.0.map.load(at, &mut self.0.bytes)
    }
}

fn all<C: Calls, S: Step + 'static>(
    stage: &mut Stage<C>,
    cell: &Cell,
    step: impl Fn(Mapped<C::Map>) -> S,
) -> io::Result<Vec<Box<dyn Worker>>> {
    let size = cell.workload.size;
    let each = |thread| {
        let (map, bytes) = stage.data_map(cell, thread)?;
        let random = Random::new(thread as u64);
        let mapped = Mapped { map, places: bytes / size, bytes: vec![0x99; size as usize], random };
        Ok(worker(step(mapped)))
    };
    (0..cell.threads).map(each).collect()
}

/// Stores, and makes durable.
pub fn store<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, Store)
}

/// Copies out.
pub fn read<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, Load)
}
