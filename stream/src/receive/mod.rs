//! Applying a stream to a pool, wholly or not at all.
//!
//! Guarantees: whatever the bytes are, there is an error or what was sent; nobody else sees anything of it before the
//! end of the stream, which is one atomic step; what was received before a crash is not needed again; giving it up
//! makes the pool what it was.
//!
//! `note` is how far it has come, kept by the pool with its mark; `begin` looks if a stream fits the pool; `apply`
//! makes one change. Each change can be made twice: a crash may come before it is noted.

mod apply;
mod begin;
mod note;
#[cfg(test)]
mod tests;

use std::io::Read;

use lode_engine::{Host, Pool, SnapshotId};
use lode_pmem::Medium;

use crate::error::{Doing, shown};
use crate::wire::{Change, FRAME_HEAD, Header, MAGIC, check_frame, frame_len, read_all};
use crate::{Error, Result};
use apply::Tree;
pub use begin::Begun;
use note::Note;

/// Frames after which background work of the pool is done.
const MAINTAIN_EVERY: u64 = 4096;

/// How far a pool has received a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// Name of the snapshot.
    pub name: Vec<u8>,
    /// Which one it is.
    pub id: SnapshotId,
    /// Which one it is the difference to.
    pub older: Option<SnapshotId>,
    /// Where the stream is to go on, in bytes from its beginning.
    pub offset: u64,
}

/// What is being received into a pool that is open in whatever way, if anything is.
///
/// # Errors
/// [`Error::Pool`].
pub fn point_of<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<Option<Point>> {
    let Some(mark) = pool.receiving().doing("looking into", b"")? else { return Ok(None) };
    let note = Note::parse(&mark.note).unwrap_or_default();
    let (older, offset) = (note.older, note.offset);
    Ok(Some(Point { name: mark.name, id: mark.id, older, offset }))
}

/// How a stream, or a part of it, begins.
pub struct Start {
    /// Its first bytes.
    first: [u8; MAGIC.len()],
    /// Its header, if it is a whole one.
    header: Option<Header>,
}

impl Start {
    /// Reads it.
    ///
    /// # Errors
    /// Those of [`Header::read`].
    pub fn read(from: &mut dyn Read) -> Result<Self> {
        let mut first = [0; MAGIC.len()];
        read_all(from, &mut first, 0)?;
        let header = match first {
            MAGIC => Some(Header::read_behind_magic(from)?),
            _ => None,
        };
        Ok(Self { first, header })
    }

    /// Reads how the next stream begins, behind the end of another; `None` where nothing comes.
    ///
    /// # Errors
    /// [`Error::Behind`] where something else comes; those of [`Header::read`].
    pub fn read_next(from: &mut dyn Read) -> Result<Option<Self>> {
        let mut first = Vec::new();
        from.take(MAGIC.len() as u64).read_to_end(&mut first)?;
        if first.is_empty() {
            return Ok(None);
        }
        if !MAGIC.starts_with(&first) {
            return Err(Error::Behind);
        }
        let rest = MAGIC.get(first.len()..).unwrap_or_default();
        if !rest.is_empty() {
            return Err(Error::Cut { offset: 0 });
        }
        Ok(Some(Self { first: MAGIC, header: Some(Header::read_behind_magic(from)?) }))
    }

    /// Reads the rest of a whole stream, to its end, that is not to be applied.
    ///
    /// # Errors
    /// [`Error::Cut`], [`Error::Damaged`], [`Error::Read`].
    pub fn skip(&self, from: &mut dyn Read) -> Result<()> {
        let Some(header) = &self.header else { return Ok(()) };
        let (bytes, chain) = header.encode();
        let (mut at, mut contents) = ((bytes.len() as u64, chain), Vec::new());
        loop {
            let kind = read_frame(from, (&mut at, 0), None, &mut contents)?;
            if matches!(Change::parse(kind, &contents), Some(Change::End { .. })) {
                return Ok(());
            }
        }
    }

    /// What it is a stream of, if this is the beginning of one.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }
}

/// Applies a stream.
pub struct Receiver<'p, M: Medium, H: Host> {
    pool: &'p Pool<M, H>,
    tree: Tree<'p, M, H>,
    /// What is noted.
    note: Note,
    /// How far the stream was read, and the checksum of that.
    at: (u64, u32),
    /// Bytes of the next frame that were read.
    first: Option<[u8; MAGIC.len()]>,
}

impl<M: Medium, H: Host> Receiver<'_, M, H> {
    /// Where the stream is to go on if it ends now, in bytes from its beginning.
    pub fn offset(&self) -> u64 {
        self.note.offset
    }

    /// Applies the rest of the stream. `each` hears after each frame how far it has come, and says whether it is to
    /// go on.
    ///
    /// # Errors
    /// [`Error::Cut`] and [`Error::Interrupted`], after both of which it can go on; all others but
    /// [`Error::Read`] come again with the same stream.
    pub fn run(&mut self, from: &mut dyn Read, each: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let mut contents = Vec::new();
        loop {
            if !each(self.at.0) {
                return Err(Error::Interrupted { offset: self.note.offset });
            }
            let before = self.at.0;
            let kind = self.frame(from, &mut contents)?;
            // Up to there it was received before: the same frame ended there, under the same checksum.
            let noted = self.note.offset;
            let ends_there = self.at == (noted, self.note.chain);
            if before < noted && self.at.0 >= noted && !ends_there {
                return Err(self.damaged("it is another stream than the one before"));
            }
            if self.at.0 <= noted {
                continue;
            }
            let change = Change::parse(kind, &contents);
            let change = change.ok_or_else(|| self.damaged("a frame makes no sense"))?;
            if let Change::End { frames } = change {
                return self.end(frames);
            }
            self.tree.apply(&change, self.note.offset)?;
            let (offset, chain) = self.at;
            self.note = Note { offset, chain, frames: self.note.frames + 1, ..self.note.clone() };
            self.pool
                .note_receiving(&self.note.encode())
                .doing("noting what was received of", b"")?;
            if self.note.frames.is_multiple_of(MAINTAIN_EVERY) {
                self.pool.maintain().doing("tidying", b"")?;
            }
        }
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { offset: self.at.0, what }
    }

    /// Reads the next frame; returns its kind.
    fn frame(&mut self, from: &mut dyn Read, contents: &mut Vec<u8>) -> Result<u8> {
        let first = self.first.take();
        read_frame(from, (&mut self.at, self.note.offset), first, contents)
    }

    fn end(&mut self, frames: u64) -> Result<()> {
        if frames != self.note.frames {
            return Err(self.damaged("it has another number of frames than it says"));
        }
        self.pool.finish_receiving().doing("making the snapshot of", b"")
    }
}

/// Reads a frame, of which some bytes may be there, and moves on to its end; returns its kind. What is cut off goes on
/// at `noted`.
fn read_frame(
    from: &mut dyn Read,
    (at, noted): (&mut (u64, u32), u64),
    first: Option<[u8; MAGIC.len()]>,
    contents: &mut Vec<u8>,
) -> Result<u8> {
    let mut head = [0; FRAME_HEAD];
    let mut empty = &mut head[..];
    if let Some(first) = first {
        let (front, rest) = empty.split_at_mut(first.len());
        front.copy_from_slice(&first);
        empty = rest;
    }
    let (offset, chain) = *at;
    let damaged = |what| Error::Damaged { offset, what };
    read_all(from, empty, noted)?;
    let len = frame_len(&head).map_err(damaged)?;
    contents.resize(len, 0);
    read_all(from, contents, noted)?;
    let chain = check_frame(chain, &head, contents).map_err(damaged)?;
    *at = (offset + (FRAME_HEAD + len) as u64, chain);
    Ok(head[0])
}

/// The name of a snapshot for a message.
fn name_shown(name: &[u8]) -> String {
    shown(name).split_off(1)
}
