//! Filebench's personalities, as threads that make the calls themselves.
//!
//! An operation is one call of a list that each thread goes through again and again, on files
//! that it picks at random from a set whose number stays as it is. What a call has written is
//! made durable by it: that is what all subjects are asked for.

use std::io;
use std::sync::Arc;

use super::stage::{Stage, own};
use crate::calls::{Calls, For, Name};
use crate::plan::Cell;
use crate::random::Random;
use crate::worker::{Step, Worker, worker};

/// A list of calls, and the files they are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Personality {
    /// Files of all threads together.
    pub files: usize,
    /// Bytes of a file on average: half of it to one and a half.
    pub file_bytes: u64,
    /// Directories that the files are in.
    pub directories: usize,
    /// Bytes that one read asks for.
    pub read_bytes: usize,
    /// Bytes that one write brings.
    pub write_bytes: usize,
    /// The calls.
    pub calls: &'static [Call],
}

/// A call; reading and writing a whole file are several calls of the system, and one here, as
/// Filebench counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Removes any file.
    Delete,
    /// Makes one and opens it.
    Create,
    /// Opens any file to read and write it.
    Open,
    /// Opens any file to read it.
    OpenToRead,
    /// Writes the whole file that is open.
    WriteWhole,
    /// Writes behind its end.
    Append,
    /// Reads it wholly.
    ReadWhole,
    /// Reads from a random place of it.
    ReadAny,
    /// Writes to a random place of it.
    WriteAny,
    /// Closes it.
    Close,
    /// Looks at any file.
    Stat,
    /// Writes behind the end of the log.
    Log,
}

/// One thread.
pub(super) struct Thread<C: Calls> {
    calls: Arc<C>,
    of: Personality,
    names: Vec<Name>,
    sizes: Vec<u64>,
    dirs: Vec<Arc<C::Dir>>,
    /// Numbers of the files that are there, and of those that are not.
    there: Vec<usize>,
    free: Vec<usize>,
    log: C::File,
    log_name: Name,
    open: Option<C::File>,
    /// The file that is open, or was last.
    current: usize,
    next: usize,
    bytes: Vec<u8>,
    random: Random,
    /// What it has made stays when it ends.
    leaves: bool,
}

/// One file in so many of the set is not there, so that there is something to make.
const FREE_PART: usize = 8;

impl<C: Calls> Thread<C> {
    /// Nothing is made yet but the log; the set has room for `count` files.
    pub(super) fn new(
        stage: &Stage<C>,
        (thread, count): (usize, usize),
        of: &Personality,
        (top, dirs): Place<C>,
    ) -> io::Result<Self> {
        let width = of.directories;
        let names =
            Name::each(count, |file| format!("{top}/d{}/t{thread}-{file:05}", file % width))?;
        let log_name = Name::new(&format!("{top}/log{thread}"))?;
        drop(stage.calls.create(&log_name)?);
        let log = stage.calls.open(&log_name, For::Appending)?;
        let most = of.file_bytes as usize * 2;
        Ok(Self {
            calls: Arc::clone(&stage.calls),
            of: *of,
            sizes: vec![0; count],
            names,
            dirs,
            there: Vec::with_capacity(count),
            free: (0..count).collect(),
            log,
            log_name,
            open: None,
            current: 0,
            next: 0,
            bytes: vec![0x42; most.max(of.read_bytes).max(of.write_bytes)],
            random: Random::new(thread as u64),
            leaves: false,
        })
    }

    /// One whose files stay when it ends.
    pub(super) fn leaving(mut self) -> Self {
        self.leaves = true;
        self
    }

    /// Makes one file more, and writes it.
    pub(super) fn add(&mut self) -> io::Result<()> {
        self.make()?;
        self.write_whole()?;
        self.open = None;
        Ok(())
    }

    /// Gives a file another name of the set, in this or another directory.
    pub(super) fn rename(&mut self) -> io::Result<()> {
        let from = Self::take(&mut self.random, &mut self.there)?;
        let to = Self::take(&mut self.random, &mut self.free)?;
        self.calls.rename(self.name(from)?, self.name(to)?)?;
        self.persist_names(from)?;
        self.persist_names(to)?;
        self.there.push(to);
        self.free.push(from);
        let size = self.sizes.get(from).copied().unwrap_or_default();
        if let Some(moved) = self.sizes.get_mut(to) {
            *moved = size;
        }
        Ok(())
    }

    /// How many calls its list has.
    pub(super) fn list_len(&self) -> usize {
        self.of.calls.len()
    }

    /// Takes one out of a list; its order does not matter.
    fn take(random: &mut Random, list: &mut Vec<usize>) -> io::Result<usize> {
        let place = random.below(list.len() as u64) as usize;
        if place >= list.len() {
            return Err(io::Error::other("the set of files has run out"));
        }
        Ok(list.swap_remove(place))
    }

    fn name(&self, file: usize) -> io::Result<&Name> {
        self.names.get(file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self) -> io::Result<&C::File> {
        self.open.as_ref().ok_or_else(|| io::Error::other("no file is open"))
    }

    fn persist_names(&self, file: usize) -> io::Result<()> {
        let dir = self.dirs.get(file % self.dirs.len().max(1)).ok_or(io::ErrorKind::NotFound)?;
        self.calls.persist_names(dir)
    }

    /// Makes a file that is not there, and opens it.
    fn make(&mut self) -> io::Result<()> {
        self.current = Self::take(&mut self.random, &mut self.free)?;
        self.open = Some(self.calls.create(self.name(self.current)?)?);
        self.there.push(self.current);
        self.set_size(0);
        Ok(())
    }

    fn any(&mut self) -> io::Result<usize> {
        let place = self.random.below(self.there.len() as u64) as usize;
        let file = self.there.get(place).copied();
        file.ok_or_else(|| io::Error::other("the set of files has run out"))
    }

    fn open_any(&mut self, what_for: For) -> io::Result<()> {
        self.current = self.any()?;
        self.open = Some(self.calls.open(self.name(self.current)?, what_for)?);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.sizes.get(self.current).copied().unwrap_or_default()
    }

    fn set_size(&mut self, bytes: u64) {
        if let Some(size) = self.sizes.get_mut(self.current) {
            *size = bytes;
        }
    }

    fn write_whole(&mut self) -> io::Result<()> {
        let mean = self.of.file_bytes;
        let bytes = mean / 2 + self.random.below(mean);
        let mut at = 0;
        while at < bytes {
            let piece = (bytes - at).min(self.of.write_bytes as u64);
            let data = self.bytes.get(..piece as usize).unwrap_or_default();
            self.calls.write_at(self.file()?, at, data)?;
            at += piece;
        }
        self.set_size(bytes);
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let (at, len) = (self.size(), self.of.write_bytes);
        let data = self.bytes.get(..len).unwrap_or_default();
        self.calls.write_at(self.file()?, at, data)?;
        self.calls.persist(self.file()?)?;
        self.set_size(at + len as u64);
        Ok(())
    }

    fn read_whole(&mut self) -> io::Result<()> {
        let (bytes, most) = (self.size(), self.of.read_bytes as u64);
        let mut at = 0;
        while at < bytes {
            let piece = (bytes - at).min(most);
            let Self { calls, open: Some(file), bytes: buffer, .. } = self else {
                return Err(io::Error::other("no file is open"));
            };
            let into = buffer.get_mut(..piece as usize).unwrap_or_default();
            calls.read_at(file, at, into)?;
            at += piece;
        }
        Ok(())
    }

    /// A random place for so many bytes of the file that is open.
    fn place(&mut self, bytes: usize) -> u64 {
        let places = self.size() / bytes.max(1) as u64;
        self.random.below(places) * bytes as u64
    }

    fn read_any(&mut self) -> io::Result<()> {
        let at = self.place(self.of.read_bytes);
        let Self { calls, open: Some(file), bytes, of, .. } = self else {
            return Err(io::Error::other("no file is open"));
        };
        calls.read_at(file, at, bytes.get_mut(..of.read_bytes).unwrap_or_default())
    }

    fn write_any(&mut self) -> io::Result<()> {
        let at = self.place(self.of.write_bytes);
        let data = self.bytes.get(..self.of.write_bytes).unwrap_or_default();
        self.calls.write_at(self.file()?, at, data)?;
        self.calls.persist(self.file()?)
    }

    pub(super) fn delete(&mut self) -> io::Result<()> {
        let file = Self::take(&mut self.random, &mut self.there)?;
        self.calls.unlink(self.name(file)?)?;
        self.persist_names(file)?;
        self.free.push(file);
        Ok(())
    }

    fn call(&mut self, call: Call) -> io::Result<()> {
        match call {
            Call::Delete => self.delete(),
            Call::Create => {
                self.make()?;
                self.calls.persist(self.file()?)?;
                self.persist_names(self.current)
            }
            Call::Open => self.open_any(For::Writing),
            Call::OpenToRead => self.open_any(For::Reading),
            Call::WriteWhole => {
                self.write_whole()?;
                self.calls.persist(self.file()?)
            }
            Call::Append => self.append(),
            Call::ReadWhole => self.read_whole(),
            Call::ReadAny => self.read_any(),
            Call::WriteAny => self.write_any(),
            Call::Close => {
                self.open = None;
                Ok(())
            }
            Call::Stat => {
                let file = self.any()?;
                self.calls.stat(self.name(file)?).map(|_| ())
            }
            Call::Log => {
                let data = self.bytes.get(..self.of.write_bytes).unwrap_or_default();
                self.calls.append(&self.log, data)?;
                self.calls.persist(&self.log)
            }
        }
    }
}

impl<C: Calls> Step for Thread<C> {
    fn prepare(&mut self, _done: u64) -> io::Result<()> {
        // It would grow for ever.
        self.calls.set_len(&self.log, 0)
    }

    fn step(&mut self, _number: u64) -> io::Result<()> {
        let list = self.of.calls;
        let call = list.get(self.next).copied().unwrap_or(Call::Close);
        self.next = (self.next + 1) % list.len();
        self.call(call)
    }
}

impl<C: Calls> Drop for Thread<C> {
    fn drop(&mut self) {
        self.open = None;
        if self.leaves {
            return;
        }
        // What can't be removed goes with its file system.
        for file in std::mem::take(&mut self.there) {
            let _ = self.name(file).and_then(|name| self.calls.unlink(name));
        }
        let _ = self.calls.unlink(&self.log_name);
    }
}

/// A directory of the root, and those in it that are to hold files.
type Place<C> = (String, Vec<Arc<<C as Calls>::Dir>>);

/// Makes them.
pub(super) fn place<C: Calls>(stage: &mut Stage<C>, of: &Personality) -> io::Result<Place<C>> {
    let top = format!("p{}", stage.number());
    stage.calls.mkdir(&Name::new(&top)?)?;
    let each = |dir| {
        let at = Name::new(&format!("{top}/d{dir}"))?;
        stage.calls.mkdir(&at)?;
        Ok(Arc::new(stage.calls.open_dir(&at)?))
    };
    let dirs = (0..of.directories).map(each).collect::<io::Result<_>>()?;
    Ok((top, dirs))
}

/// The threads of a personality.
///
/// # Errors
/// Where the subject fails.
pub fn threads<C: Calls>(
    stage: &mut Stage<C>,
    cell: &Cell,
    of: &Personality,
) -> io::Result<Vec<Box<dyn Worker>>> {
    let mut places = Vec::new();
    for _ in 0..=own(cell, cell.threads - 1) {
        places.push(place(stage, of)?);
    }
    let count = (of.files / cell.threads).max(FREE_PART);
    let each = |thread| {
        let (top, dirs) = places.get(own(cell, thread)).ok_or(io::ErrorKind::NotFound)?;
        let place = (top.clone(), dirs.clone());
        let mut made = Thread::new(stage, (thread, count), of, place)?;
        for _ in 0..count - count / FREE_PART {
            made.add()?;
        }
        Ok(worker(made))
    };
    (0..cell.threads).map(each).collect()
}
