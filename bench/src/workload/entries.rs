//! Names that come and go, in directories that have many.

use std::io;
use std::sync::Arc;

use super::stage::Stage;
use crate::calls::{Calls, Name};
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};

/// Names that are made or removed in a row.
const BATCH: usize = 256;

/// A thread's names in a crowded directory.
struct Names<C: Calls> {
    calls: Arc<C>,
    dir: Arc<C::Dir>,
    names: Vec<Name>,
}

impl<C: Calls> Names<C> {
    fn new(stage: &mut Stage<C>, cell: &Cell, thread: usize) -> io::Result<Self> {
        let (number, dir) = stage.crowded(cell, thread)?;
        let fresh = stage.number();
        let names = Name::each(BATCH, |name| format!("n{number}/t{fresh}-{name:03}"))?;
        Ok(Self { calls: Arc::clone(&stage.calls), dir, names })
    }

    #[inline]
    fn name(&self, number: u64) -> io::Result<&Name> {
        // (A compare that is never taken: the batch has as many operations as there are names.)
        self.names.get(number as usize).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    #[inline]
    fn create(&self, number: u64) -> io::Result<()> {
        let file = self.calls.create(self.name(number)?)?;
        self.calls.persist(&file)?;
        drop(file);
        self.calls.persist_names(&self.dir)
    }

    #[inline]
    fn unlink(&self, number: u64) -> io::Result<()> {
        self.calls.unlink(self.name(number)?)?;
        self.calls.persist_names(&self.dir)
    }

    /// The names below `count`, or the rest.
    fn part(&self, from: u64, to: u64) -> &[Name] {
        self.names.get(from as usize..to as usize).unwrap_or_default()
    }
}

fn all<C: Calls, S: Step + 'static>(
    stage: &mut Stage<C>,
    cell: &Cell,
    step: impl Fn(Names<C>) -> io::Result<S>,
) -> io::Result<Vec<Box<dyn Worker>>> {
    let each = |thread| Ok(worker(step(Names::new(stage, cell, thread)?)?));
    (0..cell.threads).map(each).collect()
}

struct Create<C: Calls>(Names<C>);

impl<C: Calls> Step for Create<C> {
    fn batch(&self) -> u64 {
        BATCH as u64
    }
    fn prepare(&mut self, done: u64) -> io::Result<()> {
        self.0.part(0, done).iter().try_for_each(|name| self.0.calls.unlink(name))
    }
    fn step(&mut self, number: u64) -> io::Result<()> {
        self.0.create(number)
    }
}

/// Makes files.
pub fn create<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, |names| Ok(Create(names)))
}

struct Unlink<C: Calls>(Names<C>);

impl<C: Calls> Step for Unlink<C> {
    fn batch(&self) -> u64 {
        BATCH as u64
    }
    fn prepare(&mut self, done: u64) -> io::Result<()> {
        self.0.part(0, done).iter().try_for_each(|name| self.0.calls.create(name).map(drop))
    }
    fn step(&mut self, number: u64) -> io::Result<()> {
        self.0.unlink(number)
    }
}

/// Removes files.
pub fn unlink<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, |names| {
        names.names.iter().try_for_each(|name| names.calls.create(name).map(drop))?;
        Ok(Unlink(names))
    })
}

struct CreateUnlink<C: Calls>(Names<C>);

impl<C: Calls> Step for CreateUnlink<C> {
    fn step(&mut self, number: u64) -> io::Result<()> {
        let number = number % BATCH as u64;
        self.0.create(number)?;
        self.0.unlink(number)
    }
}

/// Makes and removes files.
pub fn create_unlink<C: Calls>(
    stage: &mut Stage<C>,
    cell: &Cell,
) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, |names| Ok(CreateUnlink(names)))
}

struct Mkdir<C: Calls>(Names<C>);

impl<C: Calls> Step for Mkdir<C> {
    fn batch(&self) -> u64 {
        BATCH as u64
    }
    fn prepare(&mut self, done: u64) -> io::Result<()> {
        self.0.part(0, done).iter().try_for_each(|name| self.0.calls.rmdir(name))
    }
    fn step(&mut self, number: u64) -> io::Result<()> {
        self.0.calls.mkdir(self.0.name(number)?)?;
        self.0.calls.persist_names(&self.0.dir)
    }
}

/// Makes directories.
pub fn mkdir<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, |names| Ok(Mkdir(names)))
}

/// Of the thread's names, the first half is there, or the second.
struct Rename<C: Calls>(Names<C>);

impl<C: Calls> Step for Rename<C> {
    fn step(&mut self, number: u64) -> io::Result<()> {
        const HALF: u64 = BATCH as u64 / 2;
        let (place, turn) = (number % HALF, number / HALF % 2);
        let (from, to) = (place + turn * HALF, place + (1 - turn) * HALF);
        self.0.calls.rename(self.0.name(from)?, self.0.name(to)?)?;
        self.0.calls.persist_names(&self.0.dir)
    }
    fn prepare(&mut self, done: u64) -> io::Result<()> {
        // Operations begin again at 0: so must the names.
        const HALF: u64 = BATCH as u64 / 2;
        let (place, turn) = (done % HALF, done / HALF % 2);
        let moved = if turn == 0 { 0..place } else { place..HALF };
        for place in moved {
            self.0.calls.rename(self.0.name(place + HALF)?, self.0.name(place)?)?;
        }
        Ok(())
    }
}

/// Renames files.
pub fn rename<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    all(stage, cell, |names| {
        let half = names.part(0, BATCH as u64 / 2);
        half.iter().try_for_each(|name| names.calls.create(name).map(drop))?;
        Ok(Rename(names))
    })
}
