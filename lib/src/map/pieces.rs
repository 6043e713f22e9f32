//! The memory of a kept heap: its file, mapped in pieces, of which one more is made each time that it grows.
//!
//! So what has an address keeps it for as long as the heap is open; the next opening has others.

use std::sync::Arc;

use lode_kept::{CHUNK_BYTES, Memory};
use lode_pmem::{Lent, MediaError, View};
use parking_lot::RwLock;

use super::attached::Link;
use super::{Map, MapOptions, PAGE, cause};
use crate::error::{Cause, Error};
use crate::file::File;

type Outcome<T> = std::result::Result<T, Cause>;

/// The maps of a heap's file, each behind the one before; they stay until the heap is closed.
#[derive(Default)]
pub(super) struct Maps(RwLock<All>);

#[derive(Default)]
struct All {
    pieces: Vec<Piece>,
    /// The pool's owner is gone.
    is_over: bool,
}

/// A part of the file that is mapped in one piece.
struct Piece {
    at: u64,
    bytes: u64,
    shown: Shown,
}

/// Who has mapped it.
enum Shown {
    Own(Map),
    Lent(Box<Lent>),
}

impl Piece {
    fn view(&self) -> &View {
        match &self.shown {
            Shown::Own(map) => map.view(),
            Shown::Lent(lent) => lent.view(),
        }
    }
}

impl Maps {
    /// Does `work` with the view that all of these bytes are in, and where in it they begin.
    pub(super) fn with<T>(
        &self,
        (at, bytes): (u64, u64),
        work: impl FnOnce(&View, u64) -> std::result::Result<T, MediaError>,
    ) -> Outcome<T> {
        let all = self.0.read();
        if all.is_over {
            return Err(Cause::OwnerGone);
        }
        let behind = all.pieces.partition_point(|piece| piece.at <= at);
        let piece = behind.checked_sub(1).and_then(|last| all.pieces.get(last));
        let fits = |piece: &&Piece| {
            let from = at - piece.at;
            let is_inside = from.checked_add(bytes).is_some_and(|end| end <= piece.bytes);
            is_inside && from < piece.bytes
        };
        let piece = piece.filter(fits).ok_or(Cause::Number(libc::EFAULT))?;
        work(piece.view(), at - piece.at).map_err(cause)
    }

    /// Where the byte at this offset is.
    pub(super) fn address(&self, at: u64) -> Option<*mut u8> {
        self.with((at, 0), |view, from| Ok(view.as_ptr().wrapping_add(from as usize))).ok()
    }

    /// The offset of what is at this address.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        self.0.read().pieces.iter().find_map(|piece| {
            let inside = address.checked_sub(piece.view().as_ptr() as u64)?;
            (inside < piece.bytes).then_some(piece.at + inside)
        })
    }

    /// From now on there is nothing to be done with them; `let_go` gets those that another process has lent. Calls that have begun are done.
    pub(super) fn end(&self, let_go: impl Fn(&Lent)) {
        let mut all = self.0.write();
        all.is_over = true;
        for piece in &all.pieces {
            if let Shown::Lent(lent) = &piece.shown {
                let_go(lent);
            }
        }
    }

    /// Whether that has come.
    pub(super) fn are_over(&self) -> bool {
        self.0.read().is_over
    }

    fn push(&self, piece: Piece) -> Outcome<()> {
        let mut all = self.0.write();
        // (Nobody knows of it yet: it ends with this.)
        if all.is_over {
            return Err(Cause::OwnerGone);
        }
        all.pieces.push(piece);
        Ok(())
    }
}

/// Whose file it is.
pub(super) enum Backing {
    /// Of a pool that this process has open.
    Own(File),
    /// Of one that another process has.
    Other(Arc<Link>),
}

/// The memory of a heap.
pub(super) struct Pieces {
    backing: Backing,
    maps: Arc<Maps>,
    /// That are mapped.
    bytes: u64,
}

impl Pieces {
    /// Nothing yet of this file, to be in `maps`.
    pub(super) fn new(backing: Backing, maps: &Arc<Maps>) -> Self {
        Self { backing, maps: Arc::clone(maps), bytes: 0 }
    }

    /// Maps what there is of the file, of `len` bytes: whole chunks, so that none begins in one piece and ends in another.
    pub(super) fn map_all(&mut self, len: u64) -> Outcome<()> {
        let whole = if len < CHUNK_BYTES { PAGE } else { CHUNK_BYTES };
        match len - len % whole {
            0 => Ok(()),
            bytes => self.map_to(bytes),
        }
    }

    fn map_to(&mut self, to: u64) -> Outcome<()> {
        let (at, bytes) = (self.bytes, to - self.bytes);
        let options = MapOptions { write: true, populate: false };
        let shown = match &self.backing {
            Backing::Own(file) => {
                Shown::Own(file.map(at, bytes, &options).map_err(Error::into_cause)?)
            }
            Backing::Other(link) => Shown::Lent(Box::new(link.map(to, bytes)?)),
        };
        self.maps.push(Piece { at, bytes, shown })?;
        self.bytes = to;
        Ok(())
    }

    fn extend(&self, to: u64) -> Outcome<()> {
        match &self.backing {
            Backing::Own(file) => {
                let open = &file.open;
                Ok(open.writable()?.grow_claimed(open.held()?, to)?)
            }
            Backing::Other(link) => link.grow(to),
        }
    }
}

impl Memory for Pieces {
    type Error = Cause;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Outcome<()> {
        self.maps.with((at, into.len() as u64), |view, from| view.load(from, into))
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.maps.with((at, bytes.len() as u64), |view, from| view.store(from, bytes))
    }

    fn write_back(&self, at: u64, bytes: u64) -> Outcome<()> {
        self.maps.with((at, bytes), |view, from| view.write_back(from, bytes))
    }

    fn fence(&self, parts: &[(u64, u64)]) -> Outcome<()> {
        for (at, bytes) in parts {
            let is_all = self.maps.with((*at, *bytes), |view, from| {
                view.fence(from, *bytes)?;
                Ok(view.fences_all())
            })?;
            if is_all {
                return Ok(());
            }
        }
        Ok(())
    }

    fn grow(&mut self, bytes: u64) -> Outcome<()> {
        // The more there is the more is added at once: each time is a map.
        let wanted = bytes.max(self.bytes.saturating_add(self.bytes / 8));
        let whole = |bytes: u64| bytes.checked_next_multiple_of(CHUNK_BYTES);
        let least = whole(bytes).ok_or(Cause::Number(libc::EFBIG))?;
        let wanted = whole(wanted).unwrap_or(least);
        if self.extend(wanted).is_ok() {
            return self.map_to(wanted);
        }
        self.extend(least)?;
        self.map_to(least)
    }

    fn is_seam(&self, at: u64) -> bool {
        at > 0 && self.maps.0.read().pieces.iter().any(|piece| piece.at == at)
    }
}
