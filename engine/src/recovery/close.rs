//! Ending a session.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lode_pmem::Medium;

use super::checkpoint::store_checkpoint;
use crate::inode::{Body, Node};
use crate::store::write_superblock;
use crate::{Error, Host, Pool, Result, Rule};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Ends the session: what was unlinked while open is freed, and a checkpoint written
    /// (PROTOCOL I20). Later changes fail with `ReadOnly`. The caller has ended all other
    /// calls. On a read-only opening, and when called again, it does nothing.
    pub fn close(&self) -> Result<()> {
        match self.store.before_operation() {
            Err(Error::ReadOnly) => return Ok(()),
            result => result?,
        }
        if !self.store.host.leaves_out(Rule::OrphansFreed) {
            self.end_open_files()?;
        }
        self.store.end_snapshots();
        self.store.round()?;
        self.store.end_sectors()?;
        self.store.release_empty_pieces()?;
        // What was freed just now may be bad.
        self.store.keep_bad()?;
        self.store.space.end_keeping();
        let page = store_checkpoint(&self.store)?;
        self.store.set_writable(false);
        // (What is exempt still is found by a recovery.)
        let Some(page) = page.filter(|_| !self.store.has_left_exempt()) else { return Ok(()) };
        // Otherwise a power failure could leave what looks like a damaged checkpoint.
        self.store.door.fence(self.store.counters())?;
        let mut superblock = self.store.superblock.lock();
        superblock.checkpoint = page;
        superblock.checkpoint_session = superblock.session;
        superblock.epoch = self.store.epoch();
        superblock.update += 1;
        write_superblock(&self.store.door, &self.store.host, &superblock, self.store.counters())
    }

    /// Frees what only this session needed: open files without a name, idle journal pages, what
    /// was kept for maps.
    fn end_open_files(&self) -> Result<()> {
        let mut nodes: Vec<Arc<Node<H>>> = Vec::new();
        nodes.try_reserve(self.nodes.len())?;
        let mut result = Ok(());
        self.nodes.for_each(&mut |node| {
            if result.is_ok() {
                result = nodes.try_reserve(1);
            }
            if result.is_ok() && node.is_loaded() {
                nodes.push(node.clone());
            }
        });
        result?;
        for node in nodes {
            node.opens.forget();
            self.end_nameless(&node)?;
            self.bury_if_dead(&node);
            let Ok(mut state) = node.write(&self.store) else { continue };
            self.end_exemption(&node, &mut state);
            if let Body::File(file) = &mut state.body {
                file.end_all_maps(&mut |run| self.store.give(run));
                file.journal.release_idle(&self.store)?;
            }
        }
        Ok(())
    }
}
