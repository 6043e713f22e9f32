//! Operations whose paths were walked before they begin, as a kernel holds the inodes that a
//! program has opened or walked to: so that each operation is one call of the file system.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use lode_engine::{Attr, Ino, Result};
use lode_model::Loose;
use lode_testkit::fs::{Fs, Held};
use lode_testkit::op::Op;
use lode_testkit::{forward_calls, forward_maps};

/// Where names led to when they were walked: by directory and name.
pub(super) type Known = BTreeMap<(Ino, Vec<u8>), Ino>;

/// A file system in which some names lead to where they led when they were walked.
pub(super) struct Walked<'f> {
    fs: &'f dyn Fs,
    known: &'f Known,
}

impl<'f> Walked<'f> {
    pub(super) fn new(fs: &'f dyn Fs, known: &'f Known) -> Self {
        Self { fs, known }
    }
}

/// Walks every path that the operations walk, as far as it goes now, and holds what is found.
pub(super) fn walk(fs: &dyn Fs, ops: &[Op]) -> Known {
    let mut known = Known::new();
    for (path, whole) in ops.iter().flat_map(Op::paths) {
        let end = if whole { path.0.len() } else { path.0.len().saturating_sub(1) };
        let mut ino = fs.root();
        for name in &path.0[..end] {
            let Ok(child) = fs.lookup(ino, name) else { break };
            if !known.contains_key(&(ino, name.clone())) && fs.acquire(child.ino).is_ok() {
                known.insert((ino, name.clone()), child.ino);
            }
            ino = child.ino;
        }
    }
    known
}

/// Ends what [`walk`] holds.
pub(super) fn release(fs: &dyn Fs, known: &Known) {
    known.values().for_each(|ino| fs.release(*ino));
}

impl Fs for Walked<'_> {
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        match self.known.get(&(dir, name.to_vec())) {
            Some(ino) => self.fs.getattr(*ino),
            None => self.fs.lookup(dir, name),
        }
    }

    forward_calls!(self => self.fs);

    forward_maps!(self => dyn Fs, self.fs);

    fn write_sectors_held(
        &self,
        ino: Ino,
        held: &OnceCell<Held>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        self.fs.write_sectors_held(ino, held, offset, data)
    }
    fn maintain(&self) -> Result<()> {
        self.fs.maintain()
    }
    fn scrub(&self) -> Result<()> {
        self.fs.scrub()
    }
    fn loose(&self, ino: Ino) -> Loose {
        self.fs.loose(ino)
    }
    fn pages_free(&self) -> Option<u64> {
        self.fs.pages_free()
    }
    fn inodes(&self) -> u64 {
        self.fs.inodes()
    }
    fn create_snapshot(&self, name: &[u8]) -> Result<()> {
        self.fs.create_snapshot(name)
    }
    fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        self.fs.delete_snapshot(name)
    }
    fn snapshots(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        self.fs.snapshots()
    }
}
