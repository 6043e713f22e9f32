//! The change of a level, from one closed pool to another.
//!
//! What the superblocks say of the level is the last thing that is stored, in the two steps of any update
//! of theirs. A crash before that leaves the pool at its old level, one after it at the new one. The opening
//! that follows reads all logs, as after a crash, and leaves a new checkpoint.

use alloc::boxed::Box;

use lode_pmem::{Door, Medium};

use super::distance::choose;
use super::places::Places;
use super::progress::{Part, Progress};
use crate::layout::Superblock;
use crate::recovery::stands_recovery;
use crate::space::Run;
use crate::store::{Store, write_superblock};
use crate::{
    DEAD_ZONE, Error, Host, OpenOptions, Outcome, PAGE_BYTES, Pool, Protection, Result, What,
};

/// Bytes of a step of the scrub before level full is left.
const SCRUB_STEP: u64 = 4 << 20;
const LOST: &str = "file data is damaged, and would be taken for good at another level";

impl<M: Medium, H: Host> Pool<M, H> {
    /// Gives a pool that nobody has open another protection level, and leaves it closed. Says whether it had
    /// another one before. `dead_zone`, in bytes, is as for [`crate::FormatOptions`]; where nothing is said a pool that has second
    /// copies keeps what it has at least, and another one gets the usual one. `progress` gets steps
    /// done, which never become fewer, and steps in all, as many as are done only at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage: then nothing was written but what opening a pool writes.
    /// [`Error::Lent`] while programs have memory of the pool, [`Error::Media`] for file data that is lost and would have to move or get checksums,
    /// [`Error::NoSpace`] where there is no room for second copies, or for checksums and parity, `NotAPool(TooSmall)` where the
    /// pool is too small for them to be as far apart, [`Error::NotSupported`] where its inode tables are in the way,
    /// [`Error::Invalid`] where the second copies that it has are not so far apart. Then the
    /// pool is at the level that it had; on the way from `none` to `full` it may be at `metadata`. Those of [`Pool::open`] and
    /// [`Pool::close`].
    pub fn protect(
        medium: M,
        host: H,
        protection: Protection,
        dead_zone: impl Into<Option<u64>>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<bool> {
        Self::change_level(medium, host, protection, dead_zone.into(), progress)
    }

    fn change_level(
        medium: M,
        host: H,
        protection: Protection,
        dead_zone: Option<u64>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<bool> {
        let (door, host, _) = stands_recovery(Door::new(medium), host)?;
        let pool = Self::open_door(door.with_wear()?, host, &OpenOptions::default())?;
        if pool.store.lent.any() {
            // Nor can what programs have.
            pool.close()?;
            return Err(Error::Lent);
        }
        let before = pool.info()?.protection;
        if before == protection {
            pool.close()?;
            return Ok(false);
        }
        let dead_zone = match pool.dead_zone_for(dead_zone) {
            Ok(dead_zone) => dead_zone,
            Err(error) => {
                pool.close()?;
                return Err(error);
            }
        };
        let progress = &mut Progress::new(before, protection, progress);
        progress.begin(Part::Check);
        let report = pool.check(&mut |done, all| progress.set(done, all))?;
        if let Some(damage) = report.damage.first() {
            // (Closed, it still knows what it keeps for snapshots: an opening by the logs would forget what can't be read of that.)
            pool.close()?;
            return Err(Error::Corrupt(*damage));
        }
        if before == Protection::Full {
            pool.leave_full(progress)?;
        }
        let mut pool = pool;
        if before == Protection::None {
            pool = pool.with_copies(dead_zone, progress)?;
        }
        pool = match protection {
            Protection::Full => pool.with_strips(dead_zone, progress)?,
            // The second copies are there, and only what is kept of file data goes.
            Protection::Metadata if before == Protection::Full => {
                pool.say(&|superblock| superblock.protection = Protection::Metadata)?
            }
            Protection::Metadata => pool,
            Protection::None => pool.say(&|superblock| {
                (superblock.protection, superblock.twin_log2) = (Protection::None, 0);
            })?,
        };
        pool.close()?;
        progress.end();
        Ok(true)
    }

    /// The dead zone that this pool is to have when its level changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a larger one than that of the second copies that it has, which stay where they are.
    fn dead_zone_for(&self, asked: Option<u64>) -> Result<u64> {
        let own = match self.store.geometry.twin_pages {
            0 => None,
            pages => Some((pages - 1) * PAGE_BYTES),
        };
        match (asked, own) {
            (Some(asked), Some(own)) if asked > own => Err(Error::Invalid),
            (Some(asked), _) => Ok(asked),
            (None, own) => Ok(own.unwrap_or(DEAD_ZONE)),
        }
    }

    /// Makes sure of file data while something can tell whether it is right: what is lost must not be taken for good.
    fn leave_full(&self, progress: &mut Progress<'_>) -> Result<()> {
        progress.begin(Part::Scrub);
        let mut scrub = self.begin_scrub()?;
        while !scrub.is_over() {
            self.scrub(&mut scrub, SCRUB_STEP)?;
            progress.set(scrub.done(), scrub.all());
        }
        let findings = scrub.take_findings();
        let data = findings
            .iter()
            .find(|found| found.what == What::Data && found.outcome != Outcome::Repaired);
        match data {
            Some(found) => Err(Error::corrupt_inode(LOST, found.at, found.ino)),
            // What waits would be believed without its checksums.
            None => self.empty_journals(),
        }
    }

    /// The same pool with second copies of its metadata.
    fn with_copies(self, dead_zone: u64, progress: &mut Progress<'_>) -> Result<Self> {
        progress.begin(Part::MoveForCopies);
        let chosen = choose(&self, dead_zone)
            .and_then(|log2| Ok((log2, Places::new(self.store.geometry, 1 << log2)?)));
        let (log2, places) = match chosen {
            Ok(chosen) => chosen,
            Err(error) => return self.left_alone(error),
        };
        let (pool, places) = self.make_places(places, progress)?;
        match places.and_then(|places| pool.store_copies(&places, progress)) {
            Ok(()) => pool.say(&|superblock| {
                (superblock.protection, superblock.twin_log2) = (Protection::Metadata, log2);
                superblock.piece_log2 = superblock.piece_log2.min(log2);
            }),
            Err(error) => pool.left_alone(error),
        }
    }

    /// The same pool, which has second copies, with checksums and parity of file data.
    fn with_strips(self, dead_zone: u64, progress: &mut Progress<'_>) -> Result<Self> {
        progress.begin(Part::MoveForTables);
        let (planned, places) = match self.tables(dead_zone) {
            Ok(tables) => tables,
            Err(error) => return self.left_alone(error),
        };
        let (mut pool, places) = self.make_places(places, progress)?;
        match places.and_then(|_| pool.store_strips(&planned, progress)) {
            Ok(()) => pool.say(&|superblock| {
                superblock.protection = Protection::Full;
                superblock.strip_log2 = planned.strip_log2;
                superblock.group_log2 = planned.group_log2;
                superblock.group_before = planned.group_before;
            }),
            Err(error) => pool.left_alone(error),
        }
    }

    /// What was held is free again only in an opening that looks for it.
    fn left_alone(self, error: Error) -> Result<Self> {
        self.open_again()?.close()?;
        Err(error)
    }

    /// Stores second copies of all metadata in their places.
    fn store_copies(&self, places: &Places, progress: &mut Progress<'_>) -> Result<()> {
        progress.begin(Part::Copies);
        let inodes = self.inodes()?;
        let fixed = places.fixed();
        let lanes = Run { page: 1, pages: fixed.pages - 1 };
        self.copy(lanes, places.twin(lanes))?;
        let told = &mut |done| progress.set(done, inodes.len() as u64);
        self.for_each_metadata(&inodes, told, &mut |run| self.copy(run, places.twin(run)))
    }

    /// Copies pages, as they are.
    pub(super) fn copy(&self, from: Run, to: Run) -> Result<()> {
        let mut bytes = Box::new([0u8; PAGE_BYTES as usize]);
        for step in 0..from.pages {
            self.store.door.load((from.page + step) * PAGE_BYTES, bytes.as_mut_slice())?;
            let mut window = self.store.door.window(PAGE_BYTES, self.store.counters());
            window.copy_nt((to.page + step) * PAGE_BYTES, bytes.as_slice());
        }
        Ok(())
    }

    /// Says in the superblocks which level the pool has, once what that level needs is durable; opens it anew.
    fn say(self, change: &dyn Fn(&mut Superblock)) -> Result<Self> {
        let store: Store<M, H> = *self.store;
        store.set_writable(false);
        // With this, all that was stored before is durable: copies, and what a check has mended.
        store.raise_session(|_| ())?;
        let (door, counters) = (&store.door, store.counters());
        let mut superblock: Box<Superblock> = Box::new(store.superblock.lock().clone());
        (superblock.strip_log2, superblock.group_log2) = (0, 0);
        superblock.group_before = 0;
        change(&mut superblock);
        superblock.update += 1;
        write_superblock(door, &store.host, &superblock, counters)?;
        reopen(store)
    }

    /// The same pool as after a crash now.
    pub(super) fn open_again(self) -> Result<Self> {
        self.store.set_writable(false);
        reopen(*self.store)
    }
}

fn reopen<M: Medium, H: Host>(store: Store<M, H>) -> Result<Pool<M, H>> {
    let Store { door, host, .. } = store;
    Pool::open_door(door, host, &OpenOptions::default())
}
