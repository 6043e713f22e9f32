//! Writing: all of a call is one transaction, durable when it returns.

use lode_pmem::Medium;

use super::beside::Wants;
use super::change::Change;
use super::claim::unclaimed;
use super::fresh::Source;
use crate::index::hash;
use crate::inode::{Node, State, Terms};
use crate::space::Run;
use crate::{Error, FILE_MAX, Host, Ino, Op, Pool, Result, mode};

/// Which files alone are written to: who writes to others has something else to do first.
pub(super) struct Plain<'p> {
    /// Those of such modes,
    is_plain: &'p dyn Fn(u32) -> bool,
    /// and without an extended attribute of this name, as far as hashes tell.
    name: &'p [u8],
}

impl Plain<'_> {
    /// Whether a file is one.
    fn is(&self, state: &State, secret: [u64; 2]) -> bool {
        let has_it = || state.xattrs.candidates(hash(secret, self.name)).next().is_some();
        (self.is_plain)(state.mode) && !(state.xattrs.len() > 0 && has_it())
    }

    /// Whether it is known to be one by who goes side by side with others.
    pub(super) fn is_known(&self, terms: Terms) -> bool {
        terms.plain_mode.is_some_and(self.is_plain)
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Writes all of `data` at `offset`, atomically and durably (relaxed mode: durably). The times of a file that several threads overwrite again
    /// and again may be some milliseconds older than its last write.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.write_node(&*self.node(ino)?, Some(offset), data).map(|_| ())
    }

    /// The same, if the file's mode `is_plain` and it has no extended attribute of this name, as far as hashes
    /// tell; else nothing is done. Says whether it was. (In one step: who would look first would find the inode, and lock it, twice.)
    pub fn write_plain(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        is_plain: impl Fn(u32) -> bool,
        name: &[u8],
    ) -> Result<bool> {
        self.store.before_operation()?;
        let node = &*self.node(ino)?;
        let plain = Plain { is_plain: &is_plain, name };
        if self.write_beside(node, Some(offset), data, Some(&plain))? {
            return Ok(true);
        }
        let written = self.write_if(node, Some(offset), data, Some(&plain));
        if !matches!(written, Ok(None)) {
            self.count(Op::Write);
        }
        written.map(|written| written.is_some())
    }

    /// Writes all of `data` at the end of the file; returns the offset it went to.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
        self.write_node(&*self.node(ino)?, None, data)
    }

    /// Writes at `offset`, or at the end; returns where.
    pub(crate) fn write_node(
        &self,
        node: &Node<H>,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<u64> {
        self.store.before_operation()?;
        if self.write_beside(node, offset, data, None)? {
            return Ok(offset.unwrap_or_default());
        }
        self.count(Op::Write);
        let written = self.write_if(node, offset, data, None)?;
        written.ok_or(Error::Invalid)
    }

    /// The same by the log, if the file is one of those, which is asked with the inode locked.
    #[inline]
    fn write_if(
        &self,
        node: &Node<H>,
        offset: Option<u64>,
        data: &[u8],
        only: Option<&Plain<'_>>,
    ) -> Result<Option<u64>> {
        let wanted = node.is_wanted();
        // (Who only looks at it goes on beside who writes to it, and is met by nobody.)
        let met = wanted && node.is_written();
        let mut stored = self.store_unlocked(node, offset, data, wanted)?;
        let written = self.write_stored(node, (offset, met), data, only, &mut stored);
        if let Some(run) = stored {
            self.store.give(run);
        }
        let Some((offset, wants)) = written? else { return Ok(None) };
        if wants == Wants::SectorJournal {
            // (Without one it goes on as before: nobody asked for it.)
            let _ = self.store.make_sectors();
        }
        Ok(Some(offset))
    }

    /// The same, with its bytes in pages already, or not, and the inode written to by others just then, or not. Also says what is
    /// wanted once it isn't locked.
    #[inline]
    fn write_stored(
        &self,
        node: &Node<H>,
        (offset, met): (Option<u64>, bool),
        data: &[u8],
        only: Option<&Plain<'_>>,
        stored: &mut Option<Run>,
    ) -> Result<Option<(u64, Wants)>> {
        let mut state = node.write_soon(&self.store, self.store.host.spins())?;
        if only.is_some_and(|it| !it.is(&state, self.store.secret)) {
            return Ok(None);
        }
        let (offset, size) = (offset.unwrap_or(state.size), state.size);
        self.write_locked(node, &mut state, offset, data, stored)?;
        let is_within = offset.saturating_add(data.len() as u64) <= size;
        // (Of what attributes it has those know nothing who go side by side.)
        let may = is_within && (only.is_none() || state.xattrs.len() == 0);
        let bytes = (offset, data.len() as u64, may);
        Ok(Some((offset, self.note_meeting(node, &mut state, bytes, met)?)))
    }

    fn write_locked(
        &self,
        node: &Node<H>,
        state: &mut State,
        offset: u64,
        data: &[u8],
        stored: &mut Option<Run>,
    ) -> Result<()> {
        regular(state)?;
        unclaimed(state)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= FILE_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        if self.write_whole(node, state, offset, data, stored)? {
            return Ok(());
        }
        // (It may need the space.)
        if let Some(run) = stored.take() {
            self.store.give(run);
        }
        let source = Source::Bytes { data, offset };
        let mut change = Change::new(source, state, state.size.max(end));
        self.make(node, state, &mut change, &mut |state, rules, change| {
            change.write(state, rules, offset, end)
        })
    }

    /// Everything returned is durable already: says whether the inode is there.
    pub fn fsync(&self, ino: Ino) -> Result<()> {
        self.count(Op::Fsync);
        self.node(ino)?.read(&self.store).map(|_| ())
    }
}

/// Fails unless this is a regular file.
pub(super) fn regular(state: &State) -> Result<()> {
    match state.kind() {
        mode::FILE => Ok(()),
        mode::DIRECTORY => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}
