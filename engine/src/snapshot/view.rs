//! Looking into snapshots.
//!
//! An inode as a snapshot has it is an inode with a number of its own: that of the inode, and in the bits above which
//! snapshot it is. All that reads takes such numbers, and gives them for what a directory of a snapshot leads to;
//! whatever would change something fails with [`Error::ReadOnly`]. These numbers hold for this opening only.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::inode::Node;
use crate::{Error, Host, Ino, Pool, Result, VIEW, VIEW_BITS};

const _: () = assert!(crate::layout::POOL_PAGES_MOST * 8 <= VIEW);

/// Which view an inode is in.
pub(super) fn index_of(ino: Ino) -> Option<usize> {
    usize::try_from((ino >> VIEW_BITS).checked_sub(1)?).ok()
}

/// The epoch at whose end an inode is seen by this number, by the views that there are.
fn epoch_in(views: &[u32], ino: Ino) -> Result<u32> {
    let epoch = index_of(ino).and_then(|at| views.get(at)).copied();
    epoch.filter(|it| *it != 0).ok_or(Error::Stale)
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// The root directory as this snapshot has it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of this name.
    pub fn snapshot_root(&self, name: &[u8]) -> Result<Ino> {
        let view = self.view_of(self.epoch_of(name)?)?.ok_or(Error::NotFound)?;
        Ok(self.root() | view)
    }

    /// What numbers of inodes in the snapshot of this epoch have besides; `None` where there is none, or none any more.
    pub(crate) fn view_of(&self, epoch: u32) -> Result<Option<Ino>> {
        let mut views = self.store.snapshots.views.write();
        if !self.store.snapshots.epochs()?.contains(&epoch) {
            return Ok(None);
        }
        let at = match views.iter().position(|view| *view == epoch) {
            Some(at) => at,
            None => {
                views.try_reserve(1)?;
                views.push(epoch);
                views.len() - 1
            }
        };
        Ok(Some((at as u64 + 1) << VIEW_BITS))
    }

    /// The name of the snapshot that an inode's number is in; `None` of one that is in none, or in one without a name.
    ///
    /// # Errors
    /// Those of reading the list of snapshots.
    pub fn snapshot_of(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let Ok(epoch) = self.epoch_of_view(ino) else { return Ok(None) };
        let mut named = self.snapshot_names()?.into_iter();
        Ok(named.find(|(_, ended)| *ended == epoch).map(|(name, _)| name))
    }

    /// Numbers of inodes that were given so far, those in snapshots too, are less than this.
    pub fn ino_end(&self) -> Ino {
        (self.store.snapshots.views.read().len() as u64 + 1) << VIEW_BITS
    }

    /// Whether this is the number of an inode in a snapshot.
    pub fn is_in_snapshot(ino: Ino) -> bool {
        ino >= VIEW
    }

    /// The epoch at whose end an inode is seen by this number.
    ///
    /// # Errors
    /// [`Error::Stale`] of what is in no snapshot.
    pub(crate) fn epoch_of_view(&self, ino: Ino) -> Result<u32> {
        epoch_in(&self.store.snapshots.views.read(), ino)
    }

    /// An inode as a snapshot has it.
    #[cold]
    pub(crate) fn view_node(&self, ino: Ino) -> Result<Arc<Node<H>>> {
        let views = self.store.snapshots.views.read();
        let epoch = epoch_in(&views, ino)?;
        let (now, view) = (ino & (VIEW - 1), ino & !(VIEW - 1));
        let node = self.nodes.get_view(&self.store, ino, view)?;
        if !node.is_loaded() {
            // While the inode is locked as it is now, its log is not collected.
            let alive = match self.nodes.get(&self.store, now) {
                Err(Error::Stale) => None,
                alive => Some(alive?),
            };
            let _still = match alive.as_ref().map(|alive| alive.read(&self.store)) {
                Some(Ok(still)) => Some(still),
                Some(Err(Error::NoMemory)) => return Err(Error::NoMemory),
                // It is gone, or nobody can read it.
                _ => None,
            };
            node.load_as_of(&self.store, epoch).map_err(|error| match error {
                Error::Stale => self.why_absent(now),
                error => error,
            })?;
        }
        Ok(node)
    }
}
