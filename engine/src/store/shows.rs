//! All maps of the pool's files: who makes a snapshot keeps programs from storing through them.
//!
//! Guarantees: while somebody holds this for reading no snapshot is made, so that what none sees then is seen by none until
//! it is let go. It is taken behind inodes and before lanes, once by a thread.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Error, Ino, Result, Shown};

/// A map, and its number.
pub(crate) type Show = (u64, Arc<dyn Shown>);

/// What is known of the maps of all files.
#[derive(Default)]
pub(crate) struct Shows {
    shown: Vec<Show>,
    /// The file of each of them.
    files: Vec<Ino>,
    /// The number of the last one.
    last: u64,
    /// Maps of which nobody can say what is to be done about stores.
    bare: u32,
}

impl Shows {
    /// Adds a map of a file; returns its number.
    pub(crate) fn add(&mut self, ino: Ino, shown: &Arc<dyn Shown>) -> Result<u64> {
        self.shown.try_reserve(1)?;
        self.files.try_reserve(1)?;
        self.last += 1;
        self.shown.push((self.last, Arc::clone(shown)));
        self.files.push(ino);
        Ok(self.last)
    }

    /// Takes a map out.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(at) = take(&mut self.shown, number) {
            self.files.swap_remove(at);
        }
    }

    /// The files that are shown, one that has several maps as often.
    pub(crate) fn files(&self) -> Result<Vec<Ino>> {
        let mut files = Vec::new();
        files.try_reserve_exact(self.files.len())?;
        files.extend_from_slice(&self.files);
        Ok(files)
    }

    /// Notes a map that nobody can keep a program from storing through.
    pub(crate) fn add_bare(&mut self) {
        self.bare += 1;
    }

    /// Notes that one of these has ended.
    pub(crate) fn remove_bare(&mut self) {
        self.bare = self.bare.saturating_sub(1);
    }

    /// Whether there is such a map.
    pub(crate) fn has_bare(&self) -> bool {
        self.bare > 0
    }

    /// Keeps programs from storing through any map.
    ///
    /// # Errors
    /// [`Error::Busy`] where there is one that can't be, and what the maps say.
    pub(crate) fn protect(&self) -> Result<()> {
        if self.has_bare() {
            return Err(Error::Busy);
        }
        self.shown.iter().try_for_each(|(_, shown)| shown.protect())
    }
}

/// Takes the map with this number out of a list; says where it was, which is where the last one is now.
pub(crate) fn take(list: &mut Vec<Show>, number: u64) -> Option<usize> {
    let at = list.iter().position(|(other, _)| *other == number)?;
    list.swap_remove(at);
    Some(at)
}
