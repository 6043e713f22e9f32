//! Writing: all of a call is one transaction, durable when it returns.

use lode_pmem::Medium;

use super::change::Change;
use super::claim::unclaimed;
use super::fresh::Source;
use crate::index::hash;
use crate::inode::{Node, State, Terms};
use crate::space::Run;
use crate::{Error, FILE_MAX, Host, Ino, Op, Pool, Result, mode};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Writes all of `data` at `offset`, atomically and durably (relaxed mode: durably).
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
        let may = |terms: Terms| terms.plain_mode.is_some_and(&is_plain);
        if self.write_beside(node, Some(offset), data, may)? {
            self.count(Op::Write);
            return Ok(true);
        }
        let has_it = |state: &State| {
            let wanted = hash(self.store.secret, name);
            state.xattrs.candidates(wanted).next().is_some()
        };
        let may =
            |state: &State| is_plain(state.mode) && !(state.xattrs.len() > 0 && has_it(state));
        let written = self.write_node_if(node, Some(offset), data, may);
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
        self.count(Op::Write);
        self.store.before_operation()?;
        if self.write_beside(node, offset, data, |_| true)? {
            return Ok(offset.unwrap_or_default());
        }
        let written = self.write_node_if(node, offset, data, |_| true)?;
        written.ok_or(Error::Invalid)
    }

    /// The same, if it may be, which is asked with the inode locked.
    #[inline]
    fn write_node_if(
        &self,
        node: &Node<H>,
        offset: Option<u64>,
        data: &[u8],
        may: impl FnOnce(&State) -> bool,
    ) -> Result<Option<u64>> {
        let wanted = node.is_wanted();
        // (Who only looks at it goes on beside who writes to it, and is met by nobody.)
        let met = wanted && node.is_written();
        let mut stored = self.store_unlocked(node, offset, data, wanted)?;
        let written = self.write_stored(node, (offset, met), data, may, &mut stored);
        if let Some(run) = stored {
            self.store.give(run);
        }
        let Some((offset, wants_journal)) = written? else { return Ok(None) };
        if wants_journal {
            // (Without one it goes on as before. What is wrong with the medium is met again.)
            let _ = self.store.make_sectors();
        }
        Ok(Some(offset))
    }

    /// The same, with its bytes in pages already, or not, and the inode written to by others just then, or not. Also says whether a sector journal
    /// is wanted.
    #[inline]
    fn write_stored(
        &self,
        node: &Node<H>,
        (offset, met): (Option<u64>, bool),
        data: &[u8],
        may: impl FnOnce(&State) -> bool,
        stored: &mut Option<Run>,
    ) -> Result<Option<(u64, bool)>> {
        let mut state = node.write_soon(&self.store, self.store.host.spins())?;
        if !may(&state) {
            return Ok(None);
        }
        let (offset, size) = (offset.unwrap_or(state.size), state.size);
        self.write_locked(node, &mut state, offset, data, stored)?;
        let within = offset.saturating_add(data.len() as u64) <= size;
        let bytes = (offset, data.len() as u64, within);
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
