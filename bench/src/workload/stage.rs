//! The files and directories that workloads find: made when first asked for, and kept, because
//! making them takes longer than most of what is measured with them.

use std::io;
use std::sync::Arc;

use crate::calls::{Calls, For, Mapping, Name};
use crate::plan::Cell;
use crate::workload::Mode;

/// Names in a directory before anything is done there.
pub const NAMES: usize = 10_000;
/// Bytes of all files together that are read and written at random.
pub const DATA_BYTES: u64 = 256 << 20;
/// Bytes that files are filled by.
const PIECE: usize = 1 << 20;
const PAGE: usize = 4096;

/// A subject's root, and what is in it.
pub struct Stage<C: Calls> {
    /// The subject.
    pub calls: Arc<C>,
    /// Directories of [`NAMES`] names.
    crowded: Vec<Arc<C::Dir>>,
    /// Files of [`DATA_BYTES`] bytes together, when they are whole.
    data: usize,
    /// Those of them that are there, also where making them failed.
    data_made: usize,
    /// They were written at random in pieces smaller than they were made of: where that makes new
    /// pages of them, these lie anywhere.
    scattered: bool,
    maps: Vec<Arc<C::Map>>,
    /// For names that are used once.
    next: usize,
}

impl<C: Calls> Stage<C> {
    /// An empty one.
    pub fn new(calls: C) -> Self {
        Self {
            calls: Arc::new(calls),
            crowded: Vec::new(),
            data: 0,
            data_made: 0,
            scattered: false,
            maps: Vec::new(),
            next: 0,
        }
    }

    /// A number that no other file or directory of this stage has.
    pub fn number(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// The crowded directory of thread `thread`, its number and an open handle.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn crowded(&mut self, cell: &Cell, thread: usize) -> io::Result<(usize, Arc<C::Dir>)> {
        let number = own(cell, thread);
        while self.crowded.len() <= number {
            let number = self.crowded.len();
            let at = Name::new(&format!("n{number}"))?;
            there(self.calls.mkdir(&at))?;
            for name in crowd(number)? {
                there(self.calls.create(&name).map(drop))?;
            }
            self.crowded.push(Arc::new(self.calls.open_dir(&at)?));
        }
        let dir = self.crowded.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok((number, Arc::clone(dir)))
    }

    /// Makes the files that are read and written at random, as many as the cell's threads need.
    fn data(&mut self, cell: &Cell) -> io::Result<()> {
        let files = cell.data_files();
        if self.data == files {
            return Ok(());
        }
        self.remove_data()?;
        let made = self.make_data(files);
        if made.is_err() {
            // What stays is removed before it is asked for again.
            let _ = self.remove_data();
        }
        made
    }

    fn make_data(&mut self, files: usize) -> io::Result<()> {
        let bytes = vec![0x5a; PIECE];
        for number in 0..files {
            let file = self.calls.create(&data_name(number)?)?;
            self.data_made = number + 1;
            for at in (0..data_bytes(files)).step_by(PIECE) {
                self.calls.write_at(&file, at, &bytes)?;
            }
            self.calls.persist(&file)?;
        }
        self.data = files;
        Ok(())
    }

    fn remove_data(&mut self) -> io::Result<()> {
        self.maps.clear();
        self.scattered = false;
        self.data = 0;
        while let Some(last) = self.data_made.checked_sub(1) {
            self.calls.unlink(&data_name(last)?)?;
            self.data_made = last;
        }
        Ok(())
    }

    /// The file of thread `thread` that is read and written at random, and its size. Who reads it,
    /// or writes it in large pieces, finds it as it was made, whatever was measured before.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn data_file(
        &mut self,
        cell: &Cell,
        thread: usize,
        what_for: For,
    ) -> io::Result<(C::File, u64)> {
        let in_pieces = what_for == For::Reading || cell.workload.size >= PIECE as u64;
        if thread == 0 && in_pieces && self.scattered {
            self.remove_data()?;
        }
        self.data(cell)?;
        self.scattered |= !in_pieces;
        let file = self.calls.open(&data_name(own(cell, thread))?, what_for)?;
        let bytes = data_bytes(self.data);
        if what_for == For::Reading {
            // As any file that is read often: what the kernel keeps of it, it has.
            let mut piece = vec![0; PIECE];
            for at in (0..bytes).step_by(PIECE) {
                self.calls.read_at(&file, at, &mut piece)?;
            }
        }
        Ok((file, bytes))
    }

    /// The same, mapped.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn data_map(&mut self, cell: &Cell, thread: usize) -> io::Result<(Arc<C::Map>, u64)> {
        if thread == 0 && self.scattered {
            self.remove_data()?;
        }
        self.data(cell)?;
        while self.maps.len() < self.data {
            let map = self.calls.map(&data_name(self.maps.len())?)?;
            // The first look at a page is the kernel's work.
            for at in (0..data_bytes(self.data)).step_by(PAGE) {
                map.load(at, &mut [0; 8])?;
            }
            self.maps.push(Arc::new(map));
        }
        let map = self.maps.get(own(cell, thread)).ok_or(io::ErrorKind::NotFound)?;
        Ok((Arc::clone(map), data_bytes(self.data)))
    }
}

/// Made, now or when it was tried before.
fn there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The number of what thread `thread` works on: the first for all, or its own.
pub fn own(cell: &Cell, thread: usize) -> usize {
    if cell.mode == Mode::Shared { 0 } else { thread }
}

/// The names in the crowded directory `number`.
///
/// # Errors
/// None in fact.
pub fn crowd(number: usize) -> io::Result<Vec<Name>> {
    Name::each(NAMES, |file| format!("n{number}/f{file:05}"))
}

/// Bytes of each of so many files: together [`DATA_BYTES`], or a little less.
fn data_bytes(files: usize) -> u64 {
    let bytes = DATA_BYTES / files.max(1) as u64;
    bytes - bytes % PIECE as u64
}

fn data_name(number: usize) -> io::Result<Name> {
    Name::new(&format!("data{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_as_many_names_as_is_said() {
        assert_eq!(crowd(1).unwrap().len(), NAMES);
    }

    #[test]
    fn files_share_the_bytes_in_whole_pieces() {
        assert_eq!((data_bytes(1), data_bytes(4)), (DATA_BYTES, DATA_BYTES / 4));
        assert_eq!(data_bytes(3) % PIECE as u64, 0);
    }
}
