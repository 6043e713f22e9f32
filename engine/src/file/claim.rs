//! Claims: a file that one user has to itself, as somebody's memory.
//!
//! Guarantees: while a file is claimed nobody writes to it, changes its size, or makes holes in it but who has claimed it, and then it only grows; its
//! pages stay where they are, as those of a file that is mapped do. It can be read, renamed, linked and removed: what is removed ends with the
//! claim, for who claims a file holds it. After a crash nothing is claimed.

use lode_pmem::Medium;

use super::write::regular;
use crate::inode::State;
use crate::{Error, FILE_MAX, Handle, Host, Op, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Claims a file for the caller alone, until [`Pool::end_claim`].
    ///
    /// # Errors
    /// [`Error::Busy`] while it is claimed by another, or a program has pages staged for it; [`Error::Invalid`] for what is no regular file.
    pub fn claim(&self, file: &Handle<H>) -> Result<()> {
        self.store.writable()?;
        let mut state = file.node.write(&self.store)?;
        unclaimed(&state)?;
        regular(&state)?;
        if state.file()?.maps.as_deref().is_some_and(|maps| !maps.staged.is_empty()) {
            return Err(Error::Busy);
        }
        let maps = state.maps_mut()?;
        // From here on it changes as a file that is mapped does.
        maps.count = maps.count.checked_add(1).ok_or(Error::Invalid)?;
        maps.claimed = true;
        Ok(())
    }

    /// Ends a [`Pool::claim`]. The caller's maps of the file have ended before.
    pub fn end_claim(&self, file: &Handle<H>) {
        let Ok(mut state) = file.node.write(&self.store) else { return };
        let Ok(Some(maps)) = state.file_mut().map(|file| file.maps.as_deref_mut()) else { return };
        if core::mem::take(&mut maps.claimed) {
            self.end_map(&file.node, &mut state);
        }
    }

    /// Makes a file that the caller has claimed `to` bytes long, and backs what is new with pages of zeros, in one
    /// transaction. One that is as long stays as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is not claimed; [`Error::FileTooLarge`]; [`Error::NoSpace`], and nothing has changed.
    pub fn grow_claimed(&self, file: &Handle<H>, to: u64) -> Result<()> {
        self.count(Op::Fallocate);
        self.store.before_operation()?;
        if to > FILE_MAX {
            return Err(Error::FileTooLarge);
        }
        let node = &file.node;
        let mut state = node.write(&self.store)?;
        if unclaimed(&state).is_ok() {
            return Err(Error::Invalid);
        }
        let from = state.size;
        if from >= to { Ok(()) } else { self.allocate(node, &mut state, (from, to), false) }
    }
}

/// Whether a file may be changed by anybody.
///
/// # Errors
/// [`Error::Busy`].
#[inline]
pub(super) fn unclaimed(state: &State) -> Result<()> {
    let is_claimed =
        state.file().is_ok_and(|file| file.maps.as_deref().is_some_and(|it| it.claimed));
    if is_claimed { Err(Error::Busy) } else { Ok(()) }
}
