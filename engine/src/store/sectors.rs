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
//! * whoever gets the right to change an inode waits for who writes to it, and ends all its lines, first ([`Store::end_sector_lines`]).
//!
//! Bytes of a file are locked ([`Stripes`]), as writers of one file have nothing else between them. Readers take no lock where
//! nobody writes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use lock_api::{Mutex, MutexGuard};
use lode_pmem::{Counters, Line, MediaError, Medium, Tally};

use super::stripes::{Locked, Owner, Stripes};
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
/// What a line tells of that may or may not be durable.
const UNKNOWN: u64 = u64::MAX;
/// The part of the free pages that the journal may take.
const SPACE_PART: u64 = 8;

/// What the line of a lane says.
#[derive(Clone, Copy, Default)]
struct Said {
    ino: Ino,
    sequence: u64,
    /// It is not ended: a recovery would heed it.
    counts: bool,
    /// What it tells of has come home, durably.
    is_home: bool,
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
    /// That of the write that its line tells of, once that is durable; 0 where it tells of none; [`UNKNOWN`] where a fence has
    /// failed. Meanwhile, and to end the line, `said` is locked.
    told: AtomicU64,
    /// The inode that who holds the lane writes to, or held it last to write to: changed by who holds it.
    writes: AtomicU64,
    /// Of the first lane of a processor: the one of its lanes that was free when one was last taken, counted from this.
    free: AtomicU32,
    /// Of those who hold the lane.
    counters: Counters,
}

/// A lane of the sector journal that this thread holds: it waits for nothing but the medium and those who store to the same bytes,
/// who have lanes too.
pub(crate) struct SectorLane<'s, H: Host> {
    number: u32,
    head: &'s Head<H>,
    area: SectorArea,
    epoch: u32,
    cpu: usize,
    _turn: MutexGuard<'s, H::Mutex, ()>,
}

impl<H: Host> SectorLane<'_, H> {
    /// The epoch when it was taken.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// That of transactions which suited the thread when it was taken.
    #[inline]
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// Bytes of one of its places for data.
    #[inline]
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.area.slot_bytes()
    }

    /// That it writes to this inode. Whoever gets the right to change that later on waits for the lane: so the right to look at it need not
    /// last, and who has none looks at the inode's version after this, which whoever has waited for no lane of its changed before.
    #[inline]
    pub(crate) fn writes(&self, ino: Ino) {
        // (Nearly always it was the last one, too: then the lane's lock is the barrier, where taking one is.)
        let is_other = self.head.writes.load(Relaxed) != ino;
        if is_other {
            self.head.writes.store(ino, Release);
        }
        if is_other || cfg!(not(target_arch = "x86_64")) {
            fence(SeqCst);
        }
    }
}

/// The sector journal in memory.
pub(crate) struct Sectors<H: Host> {
    /// Where it is, packed; 0 where there is none.
    area: AtomicU64,
    /// The tag of its nonce: lines of earlier ones mean nothing.
    tag: AtomicU32,
    /// Where there was no room for it: pages that have to be free before anybody tries again.
    refused: AtomicU64,
    heads: Vec<Head<H>>,
    /// What was seen of each lane's `told`: of what is older no line tells. Here, as hardly anybody changes it: a lane's own line in the
    /// cache is one that its processor stores to.
    seen: Vec<AtomicU64>,
    /// Lanes for each processor that the pool has lanes for, at most.
    each: u32,
    /// How many those are.
    used: usize,
    /// Locks of bytes.
    pub(crate) stripes: Stripes<H>,
    /// Lines that can't be loaded are passed over: they were given up, and their memory is no better for that.
    pub(crate) passes_over: bool,
    /// What a crash has left, in a pool that is open read-only.
    pub(crate) left: Vec<(SectorLine, u64)>,
}

impl<H: Host> Sectors<H> {
    /// That of a pool of so many pages, with so many lanes for transactions in use, whose superblock says where it is.
    #[inline(never)]
    pub(crate) fn boxed(
        area: Option<(SectorArea, u64)>,
        used: usize,
        pages: u64,
    ) -> Result<Box<Self>> {
        let (mut heads, mut seen, stripes) = (Vec::new(), Vec::new(), Stripes::new(pages));
        let each = (LANES / used.max(1)).max(1);
        heads.try_reserve_exact(used * each)?;
        heads.resize_with(used * each, || Head {
            turn: Mutex::new(()),
            said: Mutex::new(Said::default()),
            last: AtomicU64::new(0),
            told: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            free: AtomicU32::new(0),
            counters: Counters::exclusive(),
        });
        for head in &mut heads {
            head.counters.hold_wear(pages * PAGE_BYTES)?;
        }
        seen.try_reserve_exact(used * each)?;
        seen.resize_with(used * each, || AtomicU64::new(0));
        let tag = AtomicU32::new(area.map_or(0, |(_, nonce)| tag_of(nonce)));
        let area = AtomicU64::new(area.map_or(0, |(area, _)| area.packed()));
        let refused = AtomicU64::new(0);
        let each = each as u32;
        let (passes_over, left) = (false, Vec::new());
        Ok(Box::new(Self {
            area,
            tag,
            refused,
            heads,
            seen,
            each,
            used,
            stripes,
            passes_over,
            left,
        }))
    }

    /// Where it is.
    #[inline]
    pub(crate) fn area(&self) -> Option<SectorArea> {
        SectorArea::unpacked(self.area.load(Acquire))
    }

    /// Whether there can be none, while so many pages are free.
    pub(crate) fn is_refused(&self, free: u64) -> bool {
        free < self.refused.load(Relaxed)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = self.heads.capacity() * size_of::<Head<H>>();
        let seen = self.seen.capacity() * size_of::<AtomicU64>();
        (bytes + seen + self.stripes.memory_bytes()) as u64
    }

    /// What each lane counts.
    pub(super) fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.heads.iter().map(|head| &head.counters)
    }

    /// What all lanes have counted.
    pub(crate) fn tally(&self) -> Tally {
        self.heads.iter().fold(Tally::default(), |sum, head| sum + head.counters.read())
    }

    /// Takes a free lane, if bytes can be locked: those of this processor first; waits for one if none is free. Only then
    /// looks which epoch it is, as who takes a lane for a transaction.
    #[inline(never)]
    pub(crate) fn hold(&self, cpu: usize, epoch: &AtomicU32) -> Option<SectorLane<'_, H>> {
        let area = self.area().filter(|_| self.stripes.are_made())?;
        let count = (area.lanes as usize).min(self.heads.len());
        if count == 0 || self.used == 0 {
            return None;
        }
        // (Nearly always there are all that there can be.)
        let is_all = count == self.heads.len();
        let each = if is_all { self.each as usize } else { (count / self.used).max(1) };
        let first = cpu * each;
        let first = if first < count { first } else { first % count };
        let behind = (first + each).min(count);
        let hint = &self.heads.get(first)?.free;
        let begin = (first + hint.load(Relaxed) as usize).min(behind);
        let own = (begin..behind).chain(first..begin);
        let free = own.chain(behind..count).chain(0..first).find_map(|at| {
            let head = self.heads.get(at)?;
            Some((at, head, head.turn.try_lock()?))
        });
        let (at, head, turn) = match free {
            Some(free) => free,
            None => self.heads.get(first).map(|head| (first, head, head.turn.lock()))?,
        };
        // (Who was kept from the processor keeps its lane: the next one need not look there each time.)
        if at != begin && (first..behind).contains(&at) {
            hint.store((at - first) as u32, Relaxed);
        }
        let (number, epoch) = (at as u32, epoch.load(Acquire));
        Some(SectorLane { number, head, area, epoch, cpu, _turn: turn })
    }

    /// Whether the line of a lane may tell of that write, which has ended.
    #[inline]
    fn may_tell(&self, lane: u32, sequence: u64) -> bool {
        let (Some(head), Some(seen)) =
            (self.heads.get(lane as usize), self.seen.get(lane as usize))
        else {
            return false;
        };
        if seen.load(Acquire) > sequence {
            return false;
        }
        let told = head.told.load(Acquire);
        if told != UNKNOWN && told > sequence {
            seen.store(told, Release);
        }
        told == UNKNOWN || told == sequence
    }

    /// Calls `each` with the counters of each lane's holders, of whom there are none meanwhile.
    pub(crate) fn for_each_held(&self, each: &mut dyn FnMut(&Counters)) {
        for head in &self.heads {
            let _turn = head.turn.lock();
            each(&head.counters);
        }
    }

    /// Waits until each write that is under way has ended.
    pub(crate) fn wait_for_lanes(&self) {
        for head in &self.heads {
            drop(head.turn.lock());
        }
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Holds a lane of the sector journal, if there is one.
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
            return Ok(self.sectors.stripes.make());
        }
        let free = self.space.free_pages();
        if self.sectors.is_refused(free) {
            return Ok(false);
        }
        let made = self.make_area();
        if !matches!(made, Ok(true)) {
            // (Each write of some files would try again, and take room for it.)
            self.sectors.refused.store(free.saturating_mul(2).max(1), Relaxed);
        }
        made
    }

    /// The same, where there is none.
    fn make_area(&self) -> Result<bool> {
        let Some(area) = self.take_sectors()? else { return Ok(false) };
        if !self.sectors.stripes.make() {
            self.give(area.run());
            return Ok(false);
        }
        let nonce = self.nonce();
        let mut superblock = self.superblock.lock();
        if self.sectors.area().is_some() {
            drop(superblock);
            self.give(area.run());
            return Ok(true);
        }
        let changed = self.change_superblock(&mut superblock, |superblock| {
            superblock.set_sectors(Some((area, nonce)))
        });
        // (One of its copies may say so: the area is nobody else's.)
        changed.inspect_err(|_| self.set_writable(false))?;
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
            let mut said = head.said.lock();
            *said = Said::default();
            head.told.store(0, Release);
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

    /// Ends the line of a lane, if it is one that counts and `is_meant`, or may be such a one: a recovery heeds it no more. Says whether it was.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where a fence has failed behind which what it tells of would be home: the line alone makes that whole. Those of the medium.
    fn end_line(
        &self,
        area: &SectorArea,
        lane: u32,
        counters: &Counters,
        is_meant: &dyn Fn(&Said) -> bool,
    ) -> Result<bool> {
        let Some(head) = self.sectors.heads.get(lane as usize) else { return Ok(false) };
        let mut said = head.said.lock();
        // (Where a fence has failed the line may be the one before.)
        let may_be_other = head.told.load(Relaxed) == UNKNOWN;
        let counts = said.counts && (may_be_other || is_meant(&said));
        if counts && !may_be_other && !said.is_home {
            return Err(Error::ReadOnly);
        }
        if counts {
            self.door.window(LINE, counters).store_line(area.line_at(lane), &Line::ZERO);
            self.lasting(self.door.fence(counters))?;
            said.counts = false;
            head.told.store(0, Release);
        }
        Ok(counts)
    }

    /// Waits until nobody writes to an inode by sectors, and ends all its lines. The caller alone has the right to look at it or to
    /// change it, and has given it another version, so that nobody begins. Says how many those were.
    ///
    /// # Errors
    /// Those of the medium: then some may count still.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_sector_lines(&self, ino: Ino) -> Result<usize> {
        let Some(area) = self.sectors.area() else { return Ok(0) };
        let mut ended = 0;
        for (lane, head) in (0..).zip(&self.sectors.heads) {
            // (Who got the lane for it did so while it had the right to look at it, and so before this; or looks at the version behind
            // that, and finds another one.)
            if head.writes.load(Acquire) == ino {
                drop(head.turn.lock());
            }
            let is_meant = |said: &Said| said.ino == ino;
            ended += usize::from(self.end_line(&area, lane, self.counters(), &is_meant)?);
        }
        Ok(ended)
    }

    /// Ends what other lanes' lines say of the bytes that are locked. Who is in the middle of a write in such a lane, of other bytes,
    /// is not waited for: once it was durable that the line told of something newer, it never tells of these again.
    #[inline]
    fn end_others(&self, locked: &Locked<'_, H>, held: &SectorLane<'_, H>) -> Result<()> {
        if self.host.leaves_out(Rule::SectorsApart) {
            return Ok(());
        }
        for owner in locked.owners() {
            let Some((lane, sequence)) = owner.write().filter(|(lane, _)| *lane != held.number)
            else {
                continue;
            };
            if self.sectors.may_tell(lane, sequence) {
                let is_meant = |said: &Said| said.sequence == sequence;
                self.end_line(&held.area, lane, &held.head.counters, &is_meant)?;
            }
        }
        Ok(())
    }

    /// Writes sectors: to the journal, and home. They are durable, and not torn by a crash, when their line is.
    ///
    /// # Errors
    /// Those of the medium.
    #[inline(never)]
    pub(crate) fn write_sectors(
        &self,
        held: &SectorLane<'_, H>,
        mut line: SectorLine,
        bytes: &[u8],
    ) -> Result<()> {
        let SectorLane { number, head, area, .. } = *held;
        let counters = &head.counters;
        line.sequence = head.last.load(Relaxed) + 1;
        let (at, slot_at) = (area.line_at(number), self.slot_at(&area, number, line.sequence));
        let end = line.offset + line.len;
        self.door.window(line.len, counters).copy_nt(slot_at, bytes);
        // (While that goes to the memory: nothing is waited for before the fence.)
        self.sectors.stripes.prefetch(line.ino, line.offset);
        let sealed = line.line(&self.seed, self.sectors.tag.load(Relaxed), at);
        self.lasting(self.door.fence_more(counters))?;
        // (Only now, as others may want them.)
        let mut locked = Locked::none();
        if !self.sectors.stripes.lock(&mut locked, line.ino, line.offset, end) {
            return Err(Error::Invalid);
        }
        self.end_others(&locked, held)?;
        locked.go_home(Owner::new(number, line.sequence));
        let mut said = head.said.lock();
        head.last.store(line.sequence, Relaxed);
        *said = Said { ino: line.ino, sequence: line.sequence, counts: true, is_home: false };
        self.door.window(LINE, counters).store_line(at, &sealed);
        let fenced = self.lasting(self.door.fence_more(counters));
        // (Not before the fence: until then the line may be what it was.)
        head.told.store(if fenced.is_ok() { line.sequence } else { UNKNOWN }, Release);
        fenced?;
        self.door.window(line.len, counters).copy_nt(line.home_at, bytes);
        self.lasting(self.door.fence(counters))?;
        said.is_home = true;
        Ok(())
    }

    /// A fence that fails promises nothing: no more changes behind one.
    #[inline]
    fn lasting(&self, fenced: core::result::Result<(), MediaError>) -> Result<()> {
        Ok(fenced.inspect_err(|_| self.set_writable(false))?)
    }
}
