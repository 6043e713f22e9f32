//! The changes that make names and inodes fit: each one transaction, as all others.

use lode_pmem::Medium;

use crate::inode::{find_entry, valid_name};
use crate::layout::Body;
use crate::store::Purpose;
use crate::{Error, Host, Ino, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Removes an entry, whatever it leads to; the inode, if there is one, keeps its link count.
    pub(super) fn remove_wrong_entry(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.store.before_operation()?;
        let node = self.node(dir)?;
        let mut parent = node.write(&self.store)?;
        let (entry, add) = find_entry(&self.store, &parent, name)?.ok_or(Error::NotFound)?;
        let plan = parent.log.plan([1]);
        parent.log.reserve(&self.store, &plan, Purpose::Frees)?;
        let time_ns = self.now_ns();
        let mut tx = self.begin_plans(&[plan], 0)?;
        let placed = self.store_del(&mut tx, &mut parent, &add, time_ns);
        tx.commit()?;
        node.slot.set_tail(parent.log.tail.last_seal);
        self.remove_entry(&mut parent, (name, entry.cookie), placed.ordinal, time_ns);
        self.tidy(&node.slot, &mut parent);
        Ok(())
    }

    /// Says how many links an inode has, and which directory is a directory's parent.
    pub(super) fn set_links(&self, ino: Ino, links: u32, parent: Ino) -> Result<()> {
        self.store.before_operation()?;
        let node = self.node(ino)?;
        let mut state = node.write(&self.store)?;
        let plan = state.log.plan([1]);
        state.log.reserve(&self.store, &plan, Purpose::Frees)?;
        let ctime_ns = self.now_ns();
        let mut tx = self.begin_plans(&[plan], 0)?;
        let record = Body::Links { links, parent, ctime_ns };
        let placed = state.log.append(&mut tx, &self.store, &record);
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        state.set_links(placed.ordinal, links, parent, ctime_ns);
        self.tidy(&node.slot, &mut state);
        Ok(())
    }

    /// Gives an inode a name, and says that it has so many links.
    pub(super) fn attach(&self, ino: Ino, links: u32, dir: Ino, name: &[u8]) -> Result<()> {
        self.store.before_operation()?;
        let (dir_node, node) = (self.node(dir)?, self.node(ino)?);
        valid_name(&self.store.geometry, name)?;
        let mut locked = self.lock_all([Some(&*dir_node), Some(&*node)])?;
        let [Some(parent), Some(child)] = &mut locked else { return Err(Error::Invalid) };
        self.may_enter(parent, name)?;
        self.add_name((&node, child, links), (&dir_node, parent), name)
    }
}
