//! Checksums and parity for file data that is there already.
//!
//! Where their tables are follows from the pool's size and the size of their groups alone. So whatever lies there moves away
//! first, as it does for second copies of metadata; only inode tables can't, and must not be there.

use alloc::boxed::Box;

use lode_pmem::Medium;

use super::distance::pieces;
use super::places::Places;
use super::progress::{Part, Progress};
use crate::layout::{GROUP_LOG2_LEAST, GROUP_LOG2_MOST, Superblock};
use crate::recovery::format::plan_strips;
use crate::space::Run;
use crate::store::Kept;
use crate::{Error, FormatOptions, Host, Ino, PAGE_BYTES, Pool, Protection, Result, Rule};

/// Places in a group that are tried for its tables.
const PLACES_TRIED: usize = 256;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Where tables of checksums and parity can be, and what has to be free for that.
    pub(super) fn tables(&self, dead_zone: u64) -> Result<(Box<Superblock>, Places)> {
        let planned = self.plan_tables(dead_zone)?;
        let geometry = planned.geometry();
        Ok((planned, Places::new(geometry, geometry.twin_pages)?))
    }

    /// Stores checksums and parity of all file data, in the tables that this superblock says, whose places are held. Until
    /// a superblock says so, they are nothing.
    pub(super) fn store_strips(
        &mut self,
        planned: &Superblock,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        progress.begin(Part::Strips);
        // What is journalled would change bytes when it comes home, and has no checksums where it waits.
        self.empty_journals()?;
        // From now on nothing of files changes any more.
        self.store.geometry.strips = planned.geometry().strips;
        let (all, mut done) = (self.data_pages_most(), 0);
        let mut told = |more: u64| {
            done += more;
            progress.set(done, all);
        };
        let mut page = Box::new([0u8; PAGE_BYTES as usize]);
        for ino in self.inodes()? {
            self.store_strips_of(ino, &mut page, &mut told)?;
        }
        if self.store.host.leaves_out(Rule::KeptSummed) {
            return Ok(());
        }
        self.store.snapshots.for_each_item(&mut |item| match item.run() {
            Some(run) if item.kind() == Kept::Data => {
                told(run.pages);
                (run.page..run.end()).try_for_each(|at| self.store_strips_at(at, &mut page))
            }
            _ => Ok(()),
        })
    }

    /// Pages that may be of file data: those that are neither free nor of tables of strips.
    fn data_pages_most(&self) -> u64 {
        let geometry = self.store.geometry;
        let tables = geometry.strips.reserved(geometry.end_page());
        let tables: u64 = tables.map(|(_, pages)| pages).sum();
        geometry.pages.saturating_sub(self.store.space.free_pages() + tables)
    }

    /// Brings home what is journalled, of all files.
    pub(super) fn empty_journals(&self) -> Result<()> {
        for ino in self.inodes()? {
            let node = self.node(ino)?;
            let mut state = node.write(&self.store)?;
            self.empty_journal(&node, &mut state)?;
        }
        Ok(())
    }

    /// A superblock with tables where no inode tables are, nor their twins.
    fn plan_tables(&self, dead_zone: u64) -> Result<Box<Superblock>> {
        let options = FormatOptions { dead_zone, ..FormatOptions::default() };
        let mut planned = Box::new(self.store.superblock.lock().clone());
        planned.protection = Protection::Full;
        plan_strips(&mut planned, &options)?;
        let (first, pieces) = (planned.group_log2, pieces(self)?);
        let larger = first..=GROUP_LOG2_MOST;
        for group_log2 in larger.chain((GROUP_LOG2_LEAST..first).rev()) {
            (planned.group_log2, planned.group_before) = (group_log2, 0);
            let strips = planned.geometry().strips;
            let apart = strips.apart() > dead_zone + PAGE_BYTES;
            if !apart && group_log2 != first {
                continue;
            }
            let (least, most) = (planned.least_before(), strips.most_before());
            let step = ((1 << group_log2) / PLACES_TRIED).max(1);
            for before in (least..=most).step_by(step) {
                planned.group_before = before as u32;
                let geometry = planned.geometry();
                let fits = geometry.strips.pool_pages_least() <= planned.pages;
                let holds = |piece: &Run| geometry.holds_metadata(piece.page, piece.pages);
                if fits && pieces.iter().all(holds) {
                    return Ok(planned);
                }
            }
        }
        Err(Error::NotSupported)
    }

    /// Those of a file and its attributes; `told` gets how many pages that were.
    fn store_strips_of(
        &self,
        ino: Ino,
        page_bytes: &mut [u8; PAGE_BYTES as usize],
        told: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let node = self.node(ino)?;
        let state = node.read(&self.store)?;
        let mut result = Ok(());
        state.for_each_data_run(&mut |run| {
            for page in run.page..run.end() {
                if result.is_ok() {
                    result = self.store_strips_at(page, page_bytes);
                    told(1);
                }
            }
        });
        result
    }

    /// # Errors
    /// [`Error::Media`] for bytes that are lost: nothing can be said of them.
    fn store_strips_at(&self, page: u64, bytes: &mut [u8; PAGE_BYTES as usize]) -> Result<()> {
        let at = page * PAGE_BYTES;
        if let Some(at) = self.store.bad.first(at, PAGE_BYTES) {
            return Err(Error::Media { at });
        }
        self.store.door.load(at, bytes)?;
        self.store.keep_strips(page, bytes, self.store.counters())
    }
}
