//! The ground that logs and operations stand on: the door, the geometry, free space,
//! inode slots, lanes, and what has to wait for a round.

mod bad;
mod chain;
mod held_superblock;
mod lanes;
mod lent;
mod links;
mod room;
mod round;
mod sectors;
mod session;
mod shows;
mod snapshots;
mod space;
mod spread;
mod stripes;
mod superblock;
mod table;
mod twins;
mod tx;

pub(crate) use bad::Looked;
pub(crate) use chain::BadChain;
pub(crate) use lanes::{Held, Lanes};
pub(crate) use lent::Lent;
pub(crate) use links::LinkWord;
pub(crate) use room::Room;
pub(crate) use round::{NO_WATERMARK, read_watermark};
pub(crate) use sectors::Sectors;
pub(crate) use shows::{Show, Shows, take as take_show};
pub(crate) use snapshots::{Item, Kept, Snapshots};
pub(crate) use space::Purpose;
pub(crate) use spread::Spread;
pub(crate) use stripes::Locked;
pub(crate) use superblock::{
    BadParts, read_superblock, repair_locator, write_copies, write_copy, write_locator,
    write_superblock,
};
pub(crate) use table::{Piece, Slot, Table};
pub(crate) use twins::{Owner, Shape};
pub(crate) use tx::Tx;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use lode_pmem::{Counters, Door, Line, Medium, Window};

use held_superblock::HeldSuperblock;

use crate::layout::{Anchor, Geometry, Link, LogSeed, PoolSeed, Superblock, Txid};
use crate::space::Space;
use crate::{Error, Host, PAGE_BYTES, Result, Rule};

/// Stores a word as two halves, each written back.
fn halves<M: Medium>(window: &mut Window<'_, M>, at: u64, value: u64) {
    for (from, half) in [(0, value as u32), (4, (value >> 32) as u32)] {
        window.store(at + from, &half.to_le_bytes());
        window.flush(at + from, 4);
    }
}

/// The bad memory that is known. (Not on its caller's stack.)
#[inline(never)]
fn boxed_bad<H: Host>(superblock: &Superblock, geometry: &Geometry) -> Result<Box<bad::Bad<H>>> {
    Ok(Box::new(bad::Bad::new(&superblock.bad, geometry)?))
}

/// A link, none, or why a word is no link.
pub(crate) type LinkFound = core::result::Result<Option<Link>, &'static str>;

/// What every layer above works with.
pub(crate) struct Store<M: Medium, H: Host> {
    pub(crate) door: Door<M>,
    pub(crate) host: H,
    pub(crate) seed: PoolSeed,
    pub(crate) secret: [u64; 2],
    pub(crate) geometry: Geometry,
    pub(crate) root: u64,
    pub(crate) piece_log2: u8,
    pub(crate) space: Space<H>,
    pub(crate) table: Table<H>,
    pub(crate) lanes: Lanes<H>,
    /// For inodes in memory.
    pub(crate) room: Box<Room>,
    pub(crate) superblock: HeldSuperblock<H>,
    pub(crate) epoch: AtomicU32,
    pub(crate) snapshots: Box<Snapshots<H>>,
    /// The last epoch that counts: later records of a pool that is rolled back did not happen.
    pub(crate) counted: u32,
    /// Transactions that a crash cut off; not empty only in a read-only opening.
    pub(crate) aborted: Vec<Txid>,
    /// Bad memory that is known.
    pub(crate) bad: Box<bad::Bad<H>>,
    /// What programs have.
    pub(crate) lent: Box<Lent<H>>,
    /// Pages of files in memory that are exempt from checksums.
    pub(crate) exempt: Arc<AtomicU64>,
    /// Some could not be made whole: the next opening has to look for them.
    exempt_left: AtomicBool,
    /// The sector journal.
    pub(crate) sectors: Box<Sectors<H>>,
    /// What became of damaged file data.
    pub(crate) repairs: Box<crate::integrity::Repairs>,
    mends: Box<twins::Mends<H>>,
    reuse: Box<round::Reuse<H>>,
    session: AtomicU32,
    raise_due: AtomicBool,
    writable: AtomicBool,
}

/// A sum of two words in memory, from which no bit of one of them can flip unseen.
fn sum_of(first: u64, second: u64) -> u64 {
    !(first ^ second.rotate_left(32))
}

impl<M: Medium, H: Host> Store<M, H> {
    /// A store over a pool with this superblock; nothing is free and no inode known yet.
    #[inline(never)]
    pub(crate) fn new(mut door: Door<M>, host: H, superblock: &Superblock) -> Result<Box<Self>> {
        let geometry = superblock.geometry();
        door.set_twins(geometry.twin_pages * PAGE_BYTES);
        let used = (host.cpus().max(1) as u64).min(u64::from(geometry.lanes)) as usize;
        let seed = superblock.seed();
        let reuse = round::Reuse::boxed(&door, &host, &seed, &geometry, used)?;
        let words = |from: usize| crate::layout::secret_word(&superblock.secret, from);
        let store = Box::new(Self {
            seed,
            secret: [words(0), words(8)],
            root: superblock.root,
            piece_log2: superblock.piece_log2,
            space: Space::new(
                used,
                geometry.first_page(),
                geometry.end_page(),
                geometry.twin_pages,
            )?,
            bad: boxed_bad::<H>(superblock, &geometry)?,
            lent: Box::new(Lent::new()),
            repairs: Box::default(),
            exempt: Arc::default(),
            exempt_left: AtomicBool::new(false),
            mends: Box::default(),
            table: Table::new(geometry.lanes as usize)?,
            lanes: Lanes::new(used, &geometry)?,
            sectors: Sectors::boxed(superblock.sectors, used, geometry.pages)?,
            room: Box::new(Room::of(None)),
            superblock: HeldSuperblock::new(superblock),
            epoch: AtomicU32::new(superblock.epoch),
            snapshots: Box::default(),
            counted: if superblock.rollback == 0 { u32::MAX } else { superblock.rollback },
            aborted: Vec::new(),
            reuse,
            session: AtomicU32::new(superblock.session),
            raise_due: AtomicBool::new(false),
            writable: AtomicBool::new(false),
            geometry,
            door,
            host,
        });
        store.hold_locked();
        Ok(store)
    }

    /// From now on, and by this superblock, records that are born after `epoch` did not happen. (A checkpoint knows
    /// of them.)
    pub(crate) fn look_back(&mut self, superblock: &mut Superblock, epoch: u32) {
        self.counted = epoch;
        (superblock.rollback, superblock.checkpoint) = (epoch, 0);
        let mut held = self.superblock.lock();
        (held.rollback, held.checkpoint) = (epoch, 0);
    }

    /// The lane that suits this thread now.
    #[inline]
    pub(crate) fn lane(&self) -> usize {
        let (cpu, used) = (self.host.cpu(), self.lanes.used());
        // (Nearly always it has a lane of its own: dividing takes as long as a good part of what it is asked for.)
        if cpu < used { cpu } else { cpu % used }
    }

    /// Counters for work outside a transaction.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        self.lanes.counters(self.lane())
    }

    /// Counts where was stored what waits to be counted: each lane is waited for.
    pub(crate) fn count_wear(&self) {
        let mut count = |counters: &Counters| self.door.count_all(counters);
        self.lanes.for_each_held(&mut count);
        self.sectors.for_each_held(&mut count);
    }

    /// Bytes of memory that the counters of wear take.
    pub(crate) fn wear_bytes(&self) -> u64 {
        let lanes = self.lanes.iter().map(|lane| lane.held());
        let alone = lanes.chain(self.sectors.counters()).map(Counters::memory_bytes);
        self.door.wear().memory_bytes() + alone.sum::<u64>()
    }

    /// The epoch that new records are born in.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    /// The seed of one page of a log (`page_nonce` 0: of the inline log in `page`).
    pub(crate) fn log_seed(&self, ino: u64, nonce: u64, page: u64, page_nonce: u64) -> LogSeed {
        let left_out = self.host.leaves_out(Rule::PageNonce);
        self.seed.log(ino, nonce, page, if left_out { 0 } else { page_nonce })
    }

    /// Whether a record line bears the right seal.
    #[inline]
    pub(crate) fn holds(&self, rule: Rule, seed: &LogSeed, at: u64, line: &Line) -> bool {
        seed.holds(at, line) || self.host.leaves_out(rule) && seed.is_tag_of(line)
    }

    /// Reads the anchor line found at offset `at`; `None` if it is not a valid one. `rule` is the one
    /// that looks at its seal.
    pub(crate) fn anchor<A: Anchor>(&self, rule: Rule, line: &Line, at: u64) -> Option<A> {
        let sealed = A::parse(line, &self.seed, at);
        if sealed.is_none() && self.host.leaves_out(rule) { A::read(line, at) } else { sealed }
    }

    /// Reads the link word found at offset `at`.
    pub(crate) fn parse_link(&self, word: u64, at: u64) -> LinkFound {
        if self.host.leaves_out(Rule::LinkCheck) {
            return Link::parse_unchecked(word);
        }
        Link::parse(word, &self.seed, at)
    }

    /// Fails unless the pool is open for writes.
    #[inline]
    pub(crate) fn writable(&self) -> Result<()> {
        if self.writable.load(Relaxed) { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Notes that pages stay exempt which nobody has mapped.
    #[cold]
    pub(crate) fn leave_exempt(&self) {
        self.exempt_left.store(true, Relaxed);
    }

    /// Whether there are such.
    pub(crate) fn has_left_exempt(&self) -> bool {
        self.exempt_left.load(Relaxed)
    }

    /// Lets changes in, or ends them.
    pub(crate) fn set_writable(&self, writable: bool) {
        self.writable.store(writable, Relaxed);
    }
}
