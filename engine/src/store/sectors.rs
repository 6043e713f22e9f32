//! The sector journal: writes of whole sectors, each in a lane of its own (as lanes of the kernel's BTT), with no record in
//! any log.
//!
//! Guarantees: what a line of it says is stored again by whoever opens the pool after a crash, and nothing that is newer than
//! it has been stored there. For that
//!
//! * lines are sealed with the journal's nonce, so that what an earlier one left in its pages tells nothing;
//! * a lane has one line, and the next write takes its place: what it told of is home by then;
//! * two places for data take turns, so that the data of a line that counts is not stored to;
//! * where another lane's line tells of the same bytes, that line is ended first;
//! * whoever gets the right to change an inode ends all its lines first ([`Store::end_sector_lines`]).
//!
//! Bytes of a file are locked by *stripes*, a few hundred locks by inode and page, as writers of one file have nothing else
//! between them. Readers take none where nobody writes: each stripe has a version, which is odd while bytes of it go home.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use lock_api::{Mutex, MutexGuard};
use lode_pmem::{Counters, Line, MediaError, Medium, Tally};

use super::{Purpose, Store};
use crate::layout::{LINE, SECTOR_PAGES_MOST, SectorArea, SectorLine, tag_of};
use crate::space::Run;
use crate::{Corruption, Error, Host, Ino, PAGE_BYTES, Protection, Result, Rule};

/// What is said of a line that can't be loaded.
const LINE_LOST: &str = "line of the sector journal can't be read";
/// Lanes, about: as many as writers are likely to be in the middle of one. Who is kept from its processor there keeps its lane.
const LANES: usize = 64;
/// A pool of fewer pages has no more lanes than processors.
const SMALL_PAGES: u64 = 32_768;
/// Pages of a place for data that are worth more than twice as many lanes.
const PLACE_PAGES: u64 = 8;
/// Stripes of a pool: what has the same one waits for each other.
const STRIPES: usize = 1024;
/// Stripes of a write, at most: as many as pages it lies in.
pub(crate) const STRIPES_AT_ONCE: usize = SECTOR_PAGES_MOST as usize + 1;
/// The part of the free pages that the journal may take.
const SPACE_PART: u64 = 8;

/// The write of a lane that a stripe had last; no lane is number 0.
#[derive(Clone, Copy, Default)]
struct Owner {
    lane: u32,
    sequence: u64,
}

/// What is locked together.
#[repr(align(32))]
struct Stripe<H: Host> {
    owner: Mutex<H::Mutex, Owner>,
    version: AtomicU32,
}

/// What the line of a lane says.
#[derive(Clone, Copy, Default)]
struct Said {
    ino: Ino,
    sequence: u64,
    /// It is not ended: a recovery would heed it.
    counts: bool,
}

/// A lane.
#[repr(align(64))]
struct Head<H: Host> {
    /// Who writes holds this until all is home.
    turn: Mutex<H::Mutex, ()>,
    /// Who stores to the line holds this to the end of the fence.
    said: Mutex<H::Mutex, Said>,
    /// The number of the last write: changed by who holds the lane.
    last: AtomicU64,
    /// Of those who hold the lane.
    counters: Counters,
}

/// A lane of the sector journal that this thread holds.
pub(crate) struct SectorLane<'s, H: Host> {
    number: u32,
    head: &'s Head<H>,
    area: SectorArea,
    epoch: u32,
    _turn: MutexGuard<'s, H::Mutex, ()>,
}

impl<H: Host> SectorLane<'_, H> {
    /// The epoch when it was taken.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// The sector journal in memory.
pub(crate) struct Sectors<H: Host> {
    /// Where it is, packed; 0 where there is none.
    area: AtomicU64,
    /// The tag of its nonce: lines of earlier ones mean nothing.
    tag: AtomicU32,
    /// There was no room for it: nobody tries again.
    refused: AtomicBool,
    heads: Vec<Head<H>>,
    /// Lanes for each processor that the pool has lanes for, at most.
    each: u32,
    stripes: Vec<Stripe<H>>,
    /// Lines that can't be loaded are passed over: they were given up, and their memory is no better for that.
    pub(crate) passes_over: bool,
    /// What a crash has left, in a pool that is open read-only.
    pub(crate) left: Vec<(SectorLine, u64)>,
}

impl<H: Host> Sectors<H> {
    /// That of a pool with so many lanes for transactions in use, whose superblock says where it is.
    #[inline(never)]
    pub(crate) fn boxed(area: Option<(SectorArea, u64)>, used: usize) -> Result<Box<Self>> {
        let (mut heads, mut stripes) = (Vec::new(), Vec::new());
        let each = (LANES / used.max(1)).max(1);
        heads.try_reserve_exact(used * each)?;
        heads.resize_with(used * each, || Head {
            turn: Mutex::new(()),
            said: Mutex::new(Said::default()),
            last: AtomicU64::new(0),
            counters: Counters::exclusive(),
        });
        stripes.try_reserve_exact(STRIPES)?;
        stripes.resize_with(STRIPES, || Stripe {
            owner: Mutex::new(Owner::default()),
            version: AtomicU32::new(0),
        });
        let tag = AtomicU32::new(area.map_or(0, |(_, nonce)| tag_of(nonce)));
        let area = AtomicU64::new(area.map_or(0, |(area, _)| area.packed()));
        let refused = AtomicBool::new(false);
        let each = each as u32;
        let (passes_over, left) = (false, Vec::new());
        Ok(Box::new(Self { area, tag, refused, heads, each, stripes, passes_over, left }))
    }

    /// Where it is.
    #[inline]
    pub(crate) fn area(&self) -> Option<SectorArea> {
        SectorArea::unpacked(self.area.load(Acquire))
    }

    /// Whether there can be none.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = self.heads.capacity() * size_of::<Head<H>>();
        (bytes + self.stripes.capacity() * size_of::<Stripe<H>>()) as u64
    }

    /// What all lanes have counted.
    pub(crate) fn tally(&self) -> Tally {
        self.heads.iter().fold(Tally::default(), |sum, head| sum + head.counters.read())
    }

    /// Takes a free lane, those of this processor first; waits for one if none is free. Only then looks which epoch it is, as
    /// who takes a lane for a transaction.
    #[inline(never)]
    pub(crate) fn hold(&self, cpu: usize, epoch: &AtomicU32) -> Option<SectorLane<'_, H>> {
        let area = self.area()?;
        let count = (area.lanes as usize).min(self.heads.len());
        let used = self.heads.len() / self.each.max(1) as usize;
        if count == 0 || used == 0 {
            return None;
        }
        let each = count / used;
        let (before, from) = self.heads.get(..count)?.split_at_checked(cpu * each % count)?;
        let mut heads = (cpu * each % count..).zip(from).chain((0..).zip(before));
        let free = heads.find_map(|(at, head)| Some((at, head, head.turn.try_lock()?)));
        let (at, head, turn) = match free {
            Some(free) => free,
            None => from.first().map(|head| (cpu * each % count, head, head.turn.lock()))?,
        };
        let (number, epoch) = (at as u32, epoch.load(Acquire));
        Some(SectorLane { number, head, area, epoch, _turn: turn })
    }

    /// Waits until each write that is under way has ended.
    pub(crate) fn wait_for_lanes(&self) {
        for head in &self.heads {
            drop(head.turn.lock());
        }
    }

    /// The stripes of bytes `from .. to` of an inode, in order, each once; not more than [`STRIPES_AT_ONCE`].
    fn stripes_of(&self, ino: Ino, from: u64, to: u64) -> impl Iterator<Item = &Stripe<H>> {
        let first = first_stripe(ino, from);
        let count = ((to.div_ceil(PAGE_BYTES) - from / PAGE_BYTES) as usize).min(STRIPES_AT_ONCE);
        let over = (first + count).saturating_sub(STRIPES);
        self.stripes.iter().take(over).chain(self.stripes.iter().skip(first).take(count - over))
    }

    /// Locks bytes `from .. to` of an inode.
    #[inline(never)]
    pub(crate) fn lock(&self, ino: Ino, from: u64, to: u64) -> Locked<'_, H> {
        let mut locked = Locked { stripes: [const { None }; STRIPES_AT_ONCE], goes_home: None };
        for (place, stripe) in locked.stripes.iter_mut().zip(self.stripes_of(ino, from, to)) {
            *place = Some((stripe.owner.lock(), &stripe.version));
        }
        locked
    }

    /// Whether nobody has stored bytes `from .. to` of an inode while `load` was done, which says whether it could.
    #[inline]
    pub(crate) fn is_whole(
        &self,
        ino: Ino,
        (from, to): (u64, u64),
        load: impl FnOnce() -> bool,
    ) -> bool {
        if to <= from - from % PAGE_BYTES + PAGE_BYTES {
            let Some(stripe) = self.stripes.get(first_stripe(ino, from)) else { return false };
            let version = stripe.version.load(Acquire);
            if version % 2 == 1 || !load() {
                return false;
            }
            fence(Acquire);
            return stripe.version.load(Relaxed) == version;
        }
        let Some(versions) = self.versions(ino, from, to) else { return false };
        load() && self.are_same(&versions, ino, from, to)
    }

    /// The versions of bytes `from .. to` of an inode, as long as nobody is storing there.
    #[inline]
    fn versions(&self, ino: Ino, from: u64, to: u64) -> Option<Versions> {
        let mut versions = Versions([0; STRIPES_AT_ONCE]);
        for (place, stripe) in versions.0.iter_mut().zip(self.stripes_of(ino, from, to)) {
            *place = stripe.version.load(Acquire);
            if *place % 2 == 1 {
                return None;
            }
        }
        Some(versions)
    }

    /// Whether nobody has stored there since: what was loaded in between is whole.
    #[inline]
    fn are_same(&self, versions: &Versions, ino: Ino, from: u64, to: u64) -> bool {
        fence(Acquire);
        let mut stripes = versions.0.iter().zip(self.stripes_of(ino, from, to));
        stripes.all(|(version, stripe)| *version == stripe.version.load(Relaxed))
    }
}

/// The stripe of a byte of an inode.
#[inline]
fn first_stripe(ino: Ino, at: u64) -> usize {
    (at / PAGE_BYTES).wrapping_add(ino.wrapping_mul(97)) as usize % STRIPES
}

/// Versions of the stripes of some bytes.
struct Versions([u32; STRIPES_AT_ONCE]);

type LockedStripe<'s, H> = (MutexGuard<'s, <H as Host>::Mutex, Owner>, &'s AtomicU32);

/// Bytes of a file that are locked.
pub(crate) struct Locked<'s, H: Host> {
    stripes: [Option<LockedStripe<'s, H>>; STRIPES_AT_ONCE],
    /// The write whose bytes go home.
    goes_home: Option<Owner>,
}

impl<H: Host> Locked<'_, H> {
    /// From now on readers wait: bytes go home, of this write.
    fn go_home(&mut self, owner: Owner) {
        for (_, version) in self.stripes.iter().flatten() {
            version.store(version.load(Relaxed).wrapping_add(1), Relaxed);
        }
        fence(Release);
        self.goes_home = Some(owner);
    }
}

impl<H: Host> Drop for Locked<'_, H> {
    fn drop(&mut self) {
        let Some(owner) = self.goes_home else { return };
        for (last, version) in self.stripes.iter_mut().flatten() {
            **last = owner;
            version.store(version.load(Relaxed).wrapping_add(1), Release);
        }
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Holds a lane of the sector journal, if there is one. Who holds one waits for nothing but the medium.
    #[inline]
    pub(crate) fn hold_sector_lane(&self) -> Option<SectorLane<'_, H>> {
        self.sectors.hold(self.lane(), &self.epoch)
    }

    /// Whether there is a sector journal, which is made where there was none yet and there is room. No lock is held.
    ///
    /// # Errors
    /// Those of the medium.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_sectors(&self) -> Result<bool> {
        if self.sectors.area().is_some() {
            return Ok(true);
        }
        if self.sectors.is_refused() {
            return Ok(false);
        }
        let Some(area) = self.take_sectors()? else {
            self.sectors.refused.store(true, Relaxed);
            return Ok(false);
        };
        let nonce = self.nonce();
        let mut superblock = self.superblock.lock();
        if self.sectors.area().is_some() {
            drop(superblock);
            self.give(area.run());
            return Ok(true);
        }
        self.change_superblock(&mut superblock, |superblock| {
            superblock.set_sectors(Some((area, nonce)))
        })?;
        self.sectors.tag.store(tag_of(nonce), Relaxed);
        self.sectors.area.store(area.packed(), Release);
        Ok(true)
    }

    /// Takes room for the journal, where metadata has one copy, and there is plenty.
    fn take_sectors(&self) -> Result<Option<SectorArea>> {
        if self.superblock.lock().protection != Protection::None {
            return Ok(None);
        }
        let (mut each, used) = (self.sectors.each, self.lanes.used() as u32);
        let free = self.space.free_pages().saturating_sub(self.reserve());
        let most = |each| free / (SPACE_PART * 2 * u64::from(each * used));
        // (In a small pool so much in one would be in the way of files.)
        if self.geometry.pages < SMALL_PAGES {
            each = 1;
        }
        // (Where there is little room, it is for places of some size first, then for more of them.)
        while each > 1 && most(each) < PLACE_PAGES {
            each /= 2;
        }
        loop {
            let slot_pages = most(each).min(u64::from(SECTOR_PAGES_MOST)) as u32;
            if slot_pages == 0 {
                return Ok(None);
            }
            let lanes = each * used;
            let pages = SectorArea::pages_of(lanes, slot_pages);
            let run = match each {
                1 => self.take_few(pages),
                _ => self.take_whole(pages, Purpose::Grows),
            };
            match run {
                Ok(run) => return Ok(Some(SectorArea { page: run.page, lanes, slot_pages })),
                // Nowhere so many in one.
                Err(Error::NoSpace) if each > 1 => each /= 2,
                Err(Error::NoSpace) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes so many pages, which are not many.
    fn take_few(&self, pages: u64) -> Result<Run> {
        let run = self.take_some(pages, Purpose::Grows)?;
        if run.pages < pages {
            self.give(run);
            return Err(Error::NoSpace);
        }
        Ok(run)
    }

    /// Gives the journal up, of which nothing is wanted any more: all is home, and nobody writes.
    pub(crate) fn end_sectors(&self) -> Result<()> {
        let Some(area) = self.sectors.area() else { return Ok(()) };
        let mut superblock = self.superblock.lock();
        self.change_superblock(&mut superblock, |superblock| superblock.set_sectors(None))?;
        drop(superblock);
        self.sectors.area.store(0, Release);
        for head in &self.sectors.heads {
            *head.said.lock() = Said::default();
        }
        self.give(area.run());
        Ok(())
    }

    /// The pages of the journal.
    pub(crate) fn sector_run(&self) -> Option<Run> {
        self.sectors.area().map(|area| area.run())
    }

    /// What a crash has left in the journal: writes that may not be home, and where their data is. What they say may be
    /// anything, but that their data is in the journal, and their home in the pool.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a line that can't be loaded and was not given up: nobody knows of which bytes it told. Those of the medium.
    #[cold]
    pub(crate) fn sector_lines(&self) -> Result<Vec<(SectorLine, u64)>> {
        let mut lines = Vec::new();
        let Some(area) = self.sectors.area() else { return Ok(lines) };
        lines.try_reserve_exact(area.lanes as usize)?;
        let tag = self.sectors.tag.load(Relaxed);
        let sealed = !self.host.leaves_out(Rule::SectorsSeal);
        for lane in 0..area.lanes {
            let at = area.line_at(lane);
            let line = match self.door.load_line(at) {
                Err(MediaError::Poisoned { .. }) if self.sectors.passes_over => {
                    // (Nobody gets that page.)
                    self.met_bad(at)?;
                    continue;
                }
                Err(MediaError::Poisoned { .. }) => return Err(Error::corrupt(LINE_LOST, at)),
                line => line?,
            };
            let Some(said) = SectorLine::parse(&line, &self.seed, tag, at, sealed) else {
                continue;
            };
            let pages = said.home_at % PAGE_BYTES + said.len;
            let is_there = self.geometry.has(said.home_at / PAGE_BYTES, pages.div_ceil(PAGE_BYTES));
            if said.len > 0 && said.len <= area.slot_bytes() && is_there {
                lines.push((said, self.slot_at(&area, lane, said.sequence)));
            }
        }
        Ok(lines)
    }

    /// Gives lines up that can't be loaded, and calls `each` with their damage. What they told of may be torn. (Nothing waits
    /// for that: it lasts with the caller's next fence.)
    #[cold]
    pub(crate) fn give_up_sector_lines(&self, each: &mut dyn FnMut(Corruption)) {
        let Some(area) = self.sectors.area() else { return };
        for at in (0..area.lanes).map(|lane| area.line_at(lane)) {
            if let Err(MediaError::Poisoned { .. }) = self.door.load_line(at) {
                each(Corruption { what: LINE_LOST, at, ino: 0 });
                self.door.window(LINE, self.counters()).store_line(at, &Line::ZERO);
            }
        }
    }

    fn slot_at(&self, area: &SectorArea, lane: u32, sequence: u64) -> u64 {
        let one = self.host.leaves_out(Rule::SectorsPlaces);
        area.slot_at(lane, if one { 0 } else { sequence })
    }

    /// Ends the line of a lane, if it is one that counts and `is_meant`: a recovery heeds it no more.
    fn end_line(
        &self,
        area: &SectorArea,
        lane: u32,
        counters: &Counters,
        is_meant: &dyn Fn(&Said) -> bool,
    ) -> Result<()> {
        let Some(head) = self.sectors.heads.get(lane as usize) else { return Ok(()) };
        let mut said = head.said.lock();
        if said.counts && is_meant(&said) {
            self.door.window(LINE, counters).store_line(area.line_at(lane), &Line::ZERO);
            self.door.fence(counters)?;
            said.counts = false;
        }
        Ok(())
    }

    /// Ends all lines of an inode, which nobody but the caller has the right to look at or to change.
    ///
    /// # Errors
    /// Those of the medium: then some may count still.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_sector_lines(&self, ino: Ino) -> Result<()> {
        let Some(area) = self.sectors.area() else { return Ok(()) };
        for lane in 0..self.sectors.heads.len() as u32 {
            self.end_line(&area, lane, self.counters(), &|said| said.ino == ino)?;
        }
        Ok(())
    }

    /// Ends what other lanes' lines say of the bytes that are locked.
    #[inline]
    fn end_others(&self, locked: &Locked<'_, H>, held: &SectorLane<'_, H>) -> Result<()> {
        let own = held.number + 1;
        if self.host.leaves_out(Rule::SectorsApart) {
            return Ok(());
        }
        for (owner, _) in locked.stripes.iter().flatten() {
            if owner.lane != 0 && owner.lane != own {
                let is_its = |said: &Said| said.sequence == owner.sequence;
                self.end_line(&held.area, owner.lane - 1, &held.head.counters, &is_its)?;
            }
        }
        Ok(())
    }

    /// Writes sectors of which `locked` are the bytes: to the journal, and home. They are durable, and not torn by a crash, when
    /// their line is.
    ///
    /// # Errors
    /// Those of the medium.
    #[inline(never)]
    pub(crate) fn write_sectors(
        &self,
        held: &SectorLane<'_, H>,
        mut locked: Locked<'_, H>,
        mut line: SectorLine,
        bytes: &[u8],
    ) -> Result<()> {
        let SectorLane { number, head, area, .. } = *held;
        let counters = &head.counters;
        self.end_others(&locked, held)?;
        line.sequence = head.last.load(Relaxed) + 1;
        let (at, slot_at) = (area.line_at(number), self.slot_at(&area, number, line.sequence));
        self.door.window(line.len, counters).copy_nt(slot_at, bytes);
        self.door.fence(counters)?;
        locked.go_home(Owner { lane: number + 1, sequence: line.sequence });
        let mut said = head.said.lock();
        head.last.store(line.sequence, Relaxed);
        *said = Said { ino: line.ino, sequence: line.sequence, counts: true };
        let tag = self.sectors.tag.load(Relaxed);
        self.door.window(LINE, counters).store_line(at, &line.line(&self.seed, tag, at));
        self.door.fence(counters)?;
        drop(said);
        self.door.window(line.len, counters).copy_nt(line.home_at, bytes);
        Ok(self.door.fence(counters)?)
    }
}
