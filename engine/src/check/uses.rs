//! What each page of a pool is used for: how much protection takes, and what a stray store could reach.

use lode_pmem::Medium;

use crate::space::Run;
use crate::store::Kept;
use crate::{Error, Host, Pool, Result};

/// What pages are used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Use {
    /// The two superblocks.
    Superblocks,
    /// The lane table.
    Lanes,
    /// Inode tables.
    Tables,
    /// Logs of inodes.
    Logs,
    /// File data, journals of it, and long values of attributes.
    Data,
    /// Both checksums of file data.
    Checksums,
    /// Parity of file data.
    Parity,
    /// Nothing of its own, and nobody can have it: bad memory, a last group of pages that is too short for its
    /// tables, and the page that is kept for a copy of a line of the first.
    Unusable,
    /// Memory of programs.
    Lent,
    /// Nothing.
    Free,
}

impl Use {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::Superblocks,
        Self::Lanes,
        Self::Tables,
        Self::Logs,
        Self::Data,
        Self::Checksums,
        Self::Parity,
        Self::Unusable,
        Self::Lent,
        Self::Free,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblocks => "superblocks",
            Self::Lanes => "lane table",
            Self::Tables => "inode tables",
            Self::Logs => "logs",
            Self::Data => "file data",
            Self::Checksums => "checksums",
            Self::Parity => "parity",
            Self::Unusable => "unusable",
            Self::Lent => "lent",
            Self::Free => "free",
        }
    }
}

/// Pages that follow each other, and are used for the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagesUsed {
    /// The first.
    pub page: u64,
    /// How many.
    pub pages: u64,
    /// What for.
    pub used_for: Use,
    /// The first of as many pages that hold the same once more, if there are such.
    pub twin: Option<u64>,
}

/// Takes in what pages are used for.
type Each<'e> = dyn FnMut(PagesUsed) + 'e;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Calls `each` with all pages of the pool, each told once, in no order. What others change meanwhile may be
    /// told wrong; a checkpoint is told as free, as it will be.
    ///
    /// # Errors
    /// Those of an inode that can't be read.
    pub fn for_each_use(&self, each: &mut Each<'_>) -> Result<()> {
        self.fixed_uses(each);
        if let Some(run) = self.store.sector_run() {
            alone(run, Use::Logs, each);
        }
        self.store.table.for_each_piece(&mut |piece| {
            self.metadata(piece.run(), Use::Tables, each);
            Ok(())
        })?;
        for ino in self.inodes()? {
            self.uses_of(ino, each)?;
        }
        self.store.for_each_quarantined(&mut |run| self.metadata(run, Use::Logs, each));
        self.store.snapshots.for_each_item(&mut |item| {
            match (item.kind(), item.run()) {
                (Kept::Log, Some(run)) => self.metadata(run, Use::Logs, each),
                (_, Some(run)) => alone(run, Use::Data, each),
                (_, None) => {}
            }
            Ok(())
        })?;
        for bad in self.store.bad.list()?.iter().filter(|bad| !bad.in_use) {
            alone(Run { page: bad.page, pages: 1 }, Use::Unusable, each);
        }
        self.store.lent.for_each_owed(&mut |run| {
            alone(run, Use::Lent, each);
            Ok(())
        })?;
        self.store.space.for_each_free(&mut |run| {
            alone(run, Use::Free, each);
            Ok(())
        })?;
        if self.opening.clean && self.store.writable().is_err() {
            self.checkpoint.iter().for_each(|run| alone(*run, Use::Free, each));
        }
        Ok(())
    }

    /// What lies where it lies since the pool was made.
    fn fixed_uses(&self, each: &mut Each<'_>) {
        let geometry = self.store.geometry;
        let twin = (geometry.twin_pages != 0).then_some(geometry.twin_pages);
        let (page, used_for) = (0, Use::Superblocks);
        each(PagesUsed { page, pages: 1, used_for, twin: Some(geometry.end_page()) });
        if let Some(twin) = twin {
            alone(Run { page: twin, pages: 1 }, Use::Unusable, each);
        }
        let pages = geometry.first_page() - 1;
        let twin = twin.map(|twin| twin + 1);
        each(PagesUsed { page: 1, pages, used_for: Use::Lanes, twin });
        let strips = geometry.strips;
        for (page, pages) in strips.reserved(geometry.end_page()) {
            match strips.tables_at(page) {
                Some([crcs, parity]) => {
                    let second = page + crcs + parity;
                    let twin = Some(second);
                    each(PagesUsed { page, pages: crcs, used_for: Use::Checksums, twin });
                    alone(Run { page: page + crcs, pages: parity }, Use::Parity, each);
                }
                None => alone(Run { page, pages }, Use::Unusable, each),
            }
        }
    }

    fn metadata(&self, run: Run, used_for: Use, each: &mut Each<'_>) {
        let twin = self.store.twin_run(run).map(|twin| twin.page);
        each(PagesUsed { page: run.page, pages: run.pages, used_for, twin });
    }

    fn uses_of(&self, ino: crate::Ino, each: &mut Each<'_>) -> Result<()> {
        let node = match self.node(ino) {
            Err(Error::Stale) => return Ok(()),
            node => node?,
        };
        let state = match node.read(&self.store) {
            Err(Error::Stale) => return Ok(()),
            state => state?,
        };
        for page in &state.log.pages {
            self.metadata(Run { page: page.page, pages: 1 }, Use::Logs, each);
        }
        state.for_each_data_run(&mut |run| alone(run, Use::Data, each));
        Ok(())
    }
}

fn alone(run: Run, used_for: Use, each: &mut Each<'_>) {
    each(PagesUsed { page: run.page, pages: run.pages, used_for, twin: None });
}
