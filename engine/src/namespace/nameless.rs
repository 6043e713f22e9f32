//! Files without a name (`O_TMPFILE`): made so, linked later or never.
//!
//! Such a file is an inode like any other whose link count is 0. While it is open it can be
//! given a name, atomically with all that was written; when the last who has it open is gone, it
//! ends. A crash ends it, too: recovery takes an inode without links for one that never came to be.

use alloc::sync::Arc;

use lode_pmem::Medium;

use super::create::Birth;
use super::remove::note_drop;
use crate::inode::{Node, State, head_of_word};
use crate::store::Purpose;
use crate::{Attr, Error, Host, Ino, NewInode, Op, Pool, Result, XattrChange, mode};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a regular file without a name, with extended attributes; `dir` is the directory
    /// it is made for. The caller has it open, as by [`Pool::acquire`], and ends that by
    /// [`Pool::release`]. [`Pool::link`] gives it a name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no regular file; those of [`Pool::create_with`].
    pub fn create_nameless(
        &self,
        dir: Ino,
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.count(Op::Tmpfile);
        let NewInode { mode, uid, gid, .. } = *new;
        if mode > mode::ALL || mode & mode::TYPE != mode::FILE {
            return Err(Error::Invalid);
        }
        self.store.before_operation()?;
        {
            let node = self.node(dir)?;
            if node.is_view() {
                return Err(Error::ReadOnly);
            }
            let parent = node.read(&self.store)?;
            parent.directory()?;
            if parent.is_dead() {
                return Err(Error::NotFound);
            }
        }
        let extra = head_of_word(u64::from(self.page_class as u8));
        let birth = Birth { mode, links: 0, uid, gid, extra, rdev: 0, target: &[], xattrs };
        let slot = self.store.take_slot()?;
        let ino = slot.ino();
        let born = self.give_birth_in(None, slot, &birth);
        let mut node = born.inspect_err(|_| self.store.table.give_slot(ino))?;
        self.store.table.count_used(&node.slot, true);
        let state = Node::newborn(&mut node)?;
        let (attr, tail) = (state.attr(), state.log.tail.last_seal);
        if let Err(node) = self.nodes.insert(&self.store, node, tail) {
            // Nobody would find it.
            node.opens.forget();
            self.end_nameless(&node)?;
            self.bury_if_dead(&node);
            return Err(Error::NoMemory);
        }
        Ok(attr)
    }

    /// Stores the death of a file without a name that nobody has open any more. (Without it,
    /// recovery would walk the log of a file whose pages may be others' by then.)
    pub(crate) fn end_nameless(&self, node: &Arc<Node<H>>) -> Result<()> {
        let is_list = node.ino() == self.store.snapshots.home();
        if is_list || node.is_view() || !node.is_nameless() {
            return Ok(());
        }
        self.store.before_operation()?;
        let mut state = node.write(&self.store)?;
        if !state.is_nameless() || node.opens.count() > 0 {
            return Ok(());
        }
        self.store_end(node, &mut state)
    }

    fn store_end(&self, node: &Node<H>, state: &mut State) -> Result<()> {
        let plan = self.plan_drop(state);
        state.log.reserve(&self.store, &plan, Purpose::Frees)?;
        let time_ns = self.now_ns();
        let mut tx = self.begin_plans(&[plan], self.death_lines(state))?;
        let dropped = self.store_drop(&mut tx, state, time_ns);
        let epoch = tx.epoch();
        tx.commit()?;
        note_drop(node, state, dropped, (epoch, time_ns));
        self.tidy_dropped(node, state);
        Ok(())
    }
}
