//! Looking: at attributes, at what is open, at directories.

use std::io;
use std::sync::Arc;

use super::stage::{Stage, crowd, own};
use crate::calls::{Calls, For, Name};
use crate::plan::Cell;
use crate::random::Random;
use crate::worker::{Step, Worker, worker};

/// Files or names in a directory that is looked into.
const FEW: usize = 1000;

struct Stat<C: Calls> {
    calls: Arc<C>,
    names: Vec<Name>,
    random: Random,
}

impl<C: Calls> Stat<C> {
    /// Any of the names, and whom to ask.
    #[inline]
    fn any(&mut self) -> io::Result<(&C, &Name)> {
        let number = self.random.below(self.names.len() as u64) as usize;
        let name = self.names.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok((&self.calls, name))
    }
}

impl<C: Calls> Step for Stat<C> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let (calls, name) = self.any()?;
        calls.stat(name).map(|_| ())
    }
}

struct OpenClose<C: Calls>(Stat<C>);

impl<C: Calls> Step for OpenClose<C> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let (calls, name) = self.0.any()?;
        calls.open(name, For::Reading).map(drop)
    }
}

struct Readdir<C: Calls> {
    calls: Arc<C>,
    dir: Name,
}

impl<C: Calls> Step for Readdir<C> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        match self.calls.list(&self.dir)? {
            names if names >= FEW as u64 => Ok(()),
            names => Err(io::Error::other(format!("only {names} names were listed"))),
        }
    }
}

/// Directories in a new one, each with [`FEW`] files: the paths of each.
fn directories<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<(Name, Vec<Name>)>> {
    let top = format!("s{}", stage.number());
    stage.calls.mkdir(&Name::new(&top)?)?;
    let count = own(cell, cell.threads - 1) + 1;
    (0..count)
        .map(|number| {
            let dir = Name::new(&format!("{top}/d{number}"))?;
            stage.calls.mkdir(&dir)?;
            let names = Name::each(FEW, |name| format!("{top}/d{number}/f{name:04}"))?;
            names.iter().try_for_each(|name| stage.calls.create(name).map(drop))?;
            Ok((dir, names))
        })
        .collect()
}

/// Looks at attributes.
pub fn stat<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let all = directories(stage, cell)?;
    let each = |thread| {
        let (_, names) = all.get(own(cell, thread)).ok_or(io::ErrorKind::NotFound)?;
        let (calls, names) = (Arc::clone(&stage.calls), names.clone());
        Ok(worker(Stat { calls, names, random: Random::new(thread as u64) }))
    };
    (0..cell.threads).map(each).collect()
}

/// Opens and closes.
pub fn open_close<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let each = |thread| {
        let (number, _) = stage.crowded(cell, thread)?;
        let names = crowd(number)?;
        let calls = Arc::clone(&stage.calls);
        let random = Random::new(thread as u64);
        Ok(worker(OpenClose(Stat { calls, names, random })))
    };
    (0..cell.threads).map(each).collect()
}

/// Lists directories.
pub fn readdir<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    let all = directories(stage, cell)?;
    let each = |thread| {
        let (dir, _) = all.get(own(cell, thread)).ok_or(io::ErrorKind::NotFound)?;
        Ok(worker(Readdir { calls: Arc::clone(&stage.calls), dir: dir.clone() }))
    };
    (0..cell.threads).map(each).collect()
}
