//! Snapshots in memory: which epochs are kept, and what is kept for them alone.
//!
//! A thing that a record speaks of is seen in the epochs from its birth to the one before its end. Guarantees:
//! what a snapshot sees is used for nothing else; what none sees any more becomes free; it takes no time that
//! grows with how many snapshots there are. What ends while snapshots see it goes to the *manifest* of the latest
//! that does; with that one's end it goes on to the next older one that sees it, or becomes free.
//!
//! Nothing of this is stored but by a checkpoint: recovery finds it in the logs, which say of each thing when it
//! was born and when it ended.

use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use lock_api::{Mutex, RwLock};
use lode_pmem::{Medium, crc32c};

use super::{Shows, Store};
use crate::gauges::list_bytes;
use crate::space::{Ended, Run};
use crate::{Error, Host, Ino, Result, Rule};

/// What an item of a manifest is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kept {
    /// Pages of data.
    Data = 0,
    /// Pages of a dead inode's log.
    Log = 1,
    /// The slot of a dead inode: `page` is its number.
    Slot = 2,
}

impl Kept {
    /// The kind with this number.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::Data, Self::Log, Self::Slot].into_iter().find(|kind| *kind as u64 == number)
    }
}

/// Something that only snapshots see: when it was born, what it is, its first page and how many there are. There
/// may be very many, so all of that is one number, in the order of which they are told; with a checksum, as what it says
/// becomes free one day, and is on the medium before: an item with a bit that has flipped is believed by nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Item(u128);

/// Bits of a page's number, or an inode's, and of how many pages there are: more than a pool can have.
const PLACE_BITS: u32 = 40;
const PAGES_BITS: u32 = 36;
const CHECK_BITS: u32 = 18;
const CHECK: u128 = (1 << CHECK_BITS) - 1;
const PLACE_AT: u32 = CHECK_BITS + PAGES_BITS;
const KIND_AT: u32 = PLACE_AT + PLACE_BITS;
const BORN_AT: u32 = KIND_AT + 2;
const _: () = assert!(BORN_AT + u32::BITS == u128::BITS);

/// The lowest bits of `word`.
fn bits(word: u128, count: u32) -> u64 {
    (word & ((1 << count) - 1)) as u64
}

impl Item {
    /// Pages, or a slot, and when they were born.
    pub(crate) fn new(kind: Kept, run: Run, born: u32) -> Self {
        debug_assert!(run.page >> PLACE_BITS == 0 && run.pages >> PAGES_BITS == 0, "{run:?}");
        let what = u128::from(born) << BORN_AT | (kind as u128) << KIND_AT;
        let place = u128::from(bits(run.page.into(), PLACE_BITS)) << PLACE_AT;
        Self::sealed(what | place | u128::from(bits(run.pages.into(), PAGES_BITS)) << CHECK_BITS)
    }

    fn sealed(word: u128) -> Self {
        let word = word & !CHECK;
        Self(word | u128::from(crc32c(0, &word.to_le_bytes())) & CHECK)
    }

    /// Whether it is what it was made as.
    pub(crate) fn is_whole(&self) -> bool {
        *self == Self::sealed(self.0)
    }

    /// The slot of an inode of this birth.
    pub(crate) fn slot(ino: Ino, born: u32) -> Self {
        Self::new(Kept::Slot, Run { page: ino, pages: 1 }, born)
    }

    /// The epoch that it was born in.
    pub(crate) fn born(&self) -> u32 {
        (self.0 >> BORN_AT) as u32
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kept {
        match bits(self.0 >> KIND_AT, 2) {
            0 => Kept::Data,
            1 => Kept::Log,
            _ => Kept::Slot,
        }
    }

    /// Where it is: of a slot, the number of the inode.
    pub(crate) fn place(&self) -> Run {
        let (page, pages) = (self.0 >> PLACE_AT, self.0 >> CHECK_BITS);
        Run { page: bits(page, PLACE_BITS), pages: bits(pages, PAGES_BITS) }
    }

    /// Its pages; none of a slot.
    pub(crate) fn run(&self) -> Option<Run> {
        (self.kind() != Kept::Slot).then(|| self.place())
    }

    /// Takes in `next` if both are file data of the same birth, and its pages follow; says whether they do. (Pages of logs stay one by one:
    /// where metadata has twins, now or at a later level, those of pages that follow each other may not.)
    pub(crate) fn takes_in(&mut self, next: &Self) -> bool {
        let follows = self.place().end() == next.place().page;
        let same =
            (self.born(), self.kind()) == (next.born(), next.kind()) && self.kind() == Kept::Data;
        // (What has a flipped bit gets no new checksum.)
        let takes = same && follows && self.is_whole();
        if takes {
            let run = self.place();
            let run = Run { pages: run.pages + next.place().pages, ..run };
            *self = Self::new(self.kind(), run, self.born());
        }
        takes
    }
}

/// A manifest that grows gets room for a part more: most stay as they are for as long as they are kept.
const ROOM_PART: usize = 8;

/// An epoch, three times. A flipped bit of one would have things let go that a snapshot sees, so what two say counts.
#[derive(Clone, Copy)]
struct Epoch([u32; 3]);

impl Epoch {
    fn new(epoch: u32) -> Self {
        Self([epoch; 3])
    }

    fn get(&self) -> u32 {
        let [one, two, three] = self.0;
        one & two | one & three | two & three
    }

    fn is_whole(&self) -> bool {
        let [one, two, three] = self.0;
        one == two && two == three
    }
}

/// An epoch that is read without a lock, and its complement, in one word.
const fn with_complement(epoch: u32) -> u64 {
    (!epoch as u64) << 32 | epoch as u64
}

/// What [`Snapshots::for_each_item`] says of an item with a flipped bit: on the medium all is as it was.
const FLIPPED: Error =
    Error::corrupt("what main memory says of snapshots has a flipped bit: open the pool again", 0);

/// One snapshot.
struct Snapshot {
    epoch: Epoch,
    manifest: Vec<Item>,
    /// Pages of data, and of logs, in the manifest.
    pages: [u64; 2],
}

impl Snapshot {
    fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    fn is_whole(&self) -> bool {
        self.epoch.is_whole() && self.manifest.iter().all(Item::is_whole)
    }

    fn count(&mut self, item: &Item) {
        let [data, logs] = &mut self.pages;
        match item.kind() {
            Kept::Data => *data += item.place().pages,
            Kept::Log => *logs += item.place().pages,
            Kept::Slot => {}
        }
    }
}

/// An item of a snapshot that has ended, and the epoch of that, twice: a flipped bit of it would let go too early.
struct Ending {
    item: Item,
    died: u32,
    not_died: u32,
}

impl Ending {
    fn new(item: Item, died: u32) -> Self {
        Self { item, died, not_died: !died }
    }

    fn is_whole(&self) -> bool {
        self.item.is_whole() && self.died == !self.not_died
    }
}

/// What is in memory of all snapshots.
pub(crate) struct Snapshots<H: Host> {
    /// The epoch of the latest, 0 for none, [with its complement](with_complement): what the list says, without its lock.
    latest: AtomicU64,
    /// By epoch.
    list: Mutex<H::Mutex, Vec<Snapshot>>,
    /// Items of snapshots that have ended, and the epoch of those.
    ending: Mutex<H::Mutex, Vec<Ending>>,
    /// An item was forgotten, for want of memory or as it was not whole: its pages are nobody's until the next opening.
    lost: AtomicBool,
    /// The inode whose extended attributes are the list of snapshots on the medium; 0 for none.
    home: AtomicU64,
    /// Held by who changes that list.
    pub(crate) changing: Mutex<H::Mutex, ()>,
    /// Epochs that are looked into, by the number that such inodes bear; 0 of what has ended.
    pub(crate) views: RwLock<H::RwLock, Vec<u32>>,
    /// Maps of files. Who holds it for reading keeps snapshots from being made.
    pub(crate) shows: RwLock<H::RwLock, Shows>,
}

impl<H: Host> Default for Snapshots<H> {
    fn default() -> Self {
        Self {
            latest: AtomicU64::new(with_complement(0)),
            list: Mutex::new(Vec::new()),
            ending: Mutex::new(Vec::new()),
            lost: AtomicBool::new(false),
            home: AtomicU64::new(0),
            changing: Mutex::new(()),
            views: RwLock::new(Vec::new()),
            shows: RwLock::new(Shows::default()),
        }
    }
}

/// The latest snapshot that ended things which were born in `born` and ended in `died` are seen by.
fn seer(list: &[Snapshot], born: u32, died: u32) -> Option<usize> {
    let at = list.partition_point(|snapshot| snapshot.epoch() < died).checked_sub(1)?;
    list.get(at).is_some_and(|snapshot| snapshot.epoch() >= born).then_some(at)
}

impl<H: Host> Snapshots<H> {
    /// The epoch of the latest snapshot, 0 for none.
    #[inline]
    pub(crate) fn latest(&self) -> u32 {
        let word = self.latest.load(Acquire);
        let epoch = word as u32;
        if word == with_complement(epoch) { epoch } else { self.latest_again() }
    }

    /// The same where a bit of it has flipped.
    #[cold]
    #[inline(never)]
    fn latest_again(&self) -> u32 {
        let list = self.list.lock();
        self.note_latest(&list);
        list.last().map_or(0, Snapshot::epoch)
    }

    /// The inode with the list, 0 for none.
    #[inline]
    pub(crate) fn home(&self) -> Ino {
        self.home.load(Relaxed)
    }

    /// Notes which inode has the list.
    pub(crate) fn set_home(&self, ino: Ino) {
        self.home.store(ino, Relaxed);
    }

    /// Whether a snapshot sees what was born in `born` and ended in `died`.
    pub(crate) fn sees(&self, born: u32, died: u32) -> bool {
        self.latest() >= born && seer(&self.list.lock(), born, died).is_some()
    }

    /// The epoch of the latest snapshot that sees what was born in `born` and ended in `died`.
    pub(crate) fn last_to_see(&self, born: u32, died: u32) -> Option<u32> {
        let list = self.list.lock();
        seer(&list, born, died).and_then(|at| list.get(at)).map(Snapshot::epoch)
    }

    /// Calls `each` with dead inodes, each with the epoch of the latest snapshot that sees it.
    ///
    /// # Errors
    /// Those of `each`; [`Error::Corrupt`], when all others were told, where an item is not whole: it may be any.
    pub(crate) fn for_each_slot(&self, each: &mut dyn FnMut(u32, Ino) -> Result<()>) -> Result<()> {
        let list = self.list.lock();
        let mut all_whole = true;
        for snapshot in list.iter() {
            for item in &snapshot.manifest {
                match (item.is_whole(), item.kind()) {
                    (true, Kept::Slot) => each(snapshot.epoch(), item.place().page)?,
                    (is_whole, _) => all_whole &= is_whole,
                }
            }
        }
        // (Those of a snapshot that has ended are yet to go to an older one.)
        for ending in self.ending.lock().iter() {
            let Ending { item, died, .. } = ending;
            all_whole &= ending.is_whole();
            if !ending.is_whole() || item.kind() != Kept::Slot {
                continue;
            }
            if let Some(snapshot) = seer(&list, item.born(), *died).and_then(|at| list.get(at)) {
                each(snapshot.epoch(), item.place().page)?;
            }
        }
        if all_whole { Ok(()) } else { Err(FLIPPED) }
    }

    /// All epochs that are kept, in order.
    pub(crate) fn epochs(&self) -> Result<Vec<u32>> {
        let list = self.list.lock();
        let mut epochs = Vec::new();
        epochs.try_reserve_exact(list.len())?;
        epochs.extend(list.iter().map(Snapshot::epoch));
        Ok(epochs)
    }

    /// Keeps what is born up to `epoch`, from now on.
    pub(crate) fn add(&self, epoch: u32) -> Result<()> {
        let mut list = self.list.lock();
        list.try_reserve(1)?;
        let at = list.partition_point(|snapshot| snapshot.epoch() < epoch);
        let epoch = Epoch::new(epoch);
        list.insert(at, Snapshot { epoch, manifest: Vec::new(), pages: [0; 2] });
        self.note_latest(&list);
        Ok(())
    }

    fn note_latest(&self, list: &[Snapshot]) {
        let word = with_complement(list.last().map_or(0, Snapshot::epoch));
        self.latest.store(word, Release);
    }

    /// Keeps `item`, which ended in `died`, for the latest snapshot that sees it. Says whether there is one.
    pub(crate) fn keep(&self, item: Item, died: u32) -> bool {
        if self.latest() < item.born() {
            return false;
        }
        let mut list = self.list.lock();
        let Some(snapshot) = seer(&list, item.born(), died).and_then(|at| list.get_mut(at)) else {
            return false;
        };
        snapshot.count(&item);
        let manifest = &mut snapshot.manifest;
        // (A file that was written piece by piece ends piece by piece.)
        if manifest.last_mut().is_some_and(|last| last.takes_in(&item)) {
            return true;
        }
        if manifest.len() == manifest.capacity()
            && manifest.try_reserve_exact(manifest.len() / ROOM_PART + 1).is_err()
        {
            self.lost.store(true, Relaxed);
            return true;
        }
        manifest.push(item);
        true
    }

    /// Puts items into the manifest of this snapshot.
    pub(crate) fn fill(&self, epoch: u32, items: Vec<Item>) {
        let mut list = self.list.lock();
        let at = list.partition_point(|snapshot| snapshot.epoch() < epoch);
        if let Some(snapshot) = list.get_mut(at) {
            items.iter().for_each(|item| snapshot.count(item));
            snapshot.manifest = items;
        }
    }

    /// Ends a snapshot; what it kept waits for [`Store::end_snapshots`].
    pub(crate) fn remove(&self, epoch: u32) {
        let mut list = self.list.lock();
        let Some(at) = list.iter().position(|snapshot| snapshot.epoch() == epoch) else { return };
        let ended = list.remove(at);
        self.note_latest(&list);
        // Noted under the lock: a close sees the items in one place or the other.
        let mut ending = self.ending.lock();
        match ending.try_reserve(ended.manifest.len()) {
            Ok(()) => ending.extend(ended.manifest.into_iter().map(|it| Ending::new(it, epoch))),
            Err(_) => self.lost.store(true, Relaxed),
        }
    }

    /// How many there are, and how many pages of data and of logs are kept for them. Slots of dead inodes are not in it.
    pub(crate) fn sums(&self) -> (u64, [u64; 2]) {
        let list = self.list.lock();
        let sum = |[data, logs]: [u64; 2], one: &Snapshot| {
            let [more_data, more_logs] = one.pages;
            [data + more_data, logs + more_logs]
        };
        (list.len() as u64, list.iter().fold([0; 2], sum))
    }

    /// The items of each snapshot, in order of epochs.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u32, &[Item]) -> Result<()>) -> Result<()> {
        let list = self.list.lock();
        list.iter().try_for_each(|snapshot| each(snapshot.epoch(), &snapshot.manifest))
    }

    /// Calls `each` with all items, of snapshots that have ended, too.
    ///
    /// # Errors
    /// Those of `each`; [`Error::Corrupt`], when all others were told, where an item is not whole.
    pub(crate) fn for_each_item(&self, each: &mut dyn FnMut(&Item) -> Result<()>) -> Result<()> {
        let mut all_whole = true;
        let mut one = |item: &Item| match item.is_whole() {
            true => each(item),
            false => {
                all_whole = false;
                Ok(())
            }
        };
        self.for_each(&mut |_, items| items.iter().try_for_each(&mut one))?;
        self.ending.lock().iter().try_for_each(|ending| one(&ending.item))?;
        if all_whole { Ok(()) } else { Err(FLIPPED) }
    }

    /// Takes an item of a snapshot that has ended, and the epoch of that. What is not whole is forgotten.
    fn take_ended(&self) -> Option<(Item, u32)> {
        // (The lock is let go each time: others end things meanwhile.)
        loop {
            let ending = self.ending.lock().pop()?;
            if ending.is_whole() {
                return Some((ending.item, ending.died));
            }
            self.lost.store(true, Relaxed);
        }
    }

    /// Whether nothing was forgotten, and all is what it was made as: else nothing of it is to be stored.
    pub(crate) fn is_whole(&self) -> bool {
        !self.lost.load(Relaxed)
            && self.ending.lock().is_empty()
            && self.list.lock().iter().all(Snapshot::is_whole)
    }

    /// Bytes of memory that manifests take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let list = self.list.lock();
        let of_list = list.iter().map(|snapshot| list_bytes::<Item>(snapshot.manifest.capacity()));
        list_bytes::<Snapshot>(list.capacity())
            + of_list.sum::<u64>()
            + list_bytes::<Ending>(self.ending.lock().capacity())
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// The epoch of the latest snapshot, 0 for none.
    #[inline]
    pub(crate) fn latest(&self) -> u32 {
        if self.host.leaves_out(Rule::SharedCopied) { 0 } else { self.snapshots.latest() }
    }

    /// Gives pages back that are seen no more from epoch `died` on, unless a snapshot still sees them.
    #[inline]
    pub(crate) fn release(&self, ended: Ended, died: u32) {
        if ended.born > self.snapshots.latest() || !self.is_kept(ended, died) {
            self.give(ended.run);
        }
    }

    #[inline(never)]
    fn is_kept(&self, ended: Ended, died: u32) -> bool {
        // (What a program has as memory is in no snapshot.)
        !self.host.leaves_out(Rule::ManifestsKept)
            && !self.lent.touches(ended.run)
            && self.snapshots.keep(Item::new(Kept::Data, ended.run, ended.born), died)
    }

    /// The epoch of the latest snapshot, if it sees the log of this inode; else 0.
    #[inline]
    pub(crate) fn log_seen_until(&self, ino: Ino, born: u32) -> u32 {
        let latest = self.snapshots.latest();
        let seen = born <= latest
            && ino != self.snapshots.home()
            && !self.host.leaves_out(Rule::SeenLogsKept);
        if seen { latest } else { 0 }
    }

    /// Whether a snapshot sees the log of this inode.
    #[inline]
    pub(crate) fn sees_log(&self, ino: Ino, born: u32) -> bool {
        self.log_seen_until(ino, born) > 0
    }

    /// Frees what snapshots kept that have ended, as far as no other sees it. Says whether there was any.
    pub(crate) fn end_snapshots(&self) -> bool {
        let mut any = false;
        while let Some((item, ended)) = self.snapshots.take_ended() {
            any = true;
            if self.snapshots.keep(item, ended) {
                continue;
            }
            match (item.kind(), item.run()) {
                (Kept::Data, Some(run)) => self.give(run),
                (Kept::Log, Some(run)) => self.quarantine_pages(run),
                _ => self.quarantine_slot(item.place().page),
            }
        }
        any
    }

    /// Waits until each transaction, and each write by sectors, that is under way has ended.
    pub(crate) fn wait_for_lanes(&self) {
        if self.host.leaves_out(Rule::SnapshotWaits) {
            return;
        }
        for lane in self.lanes.iter() {
            drop(lane.turn.lock());
        }
        if !self.host.leaves_out(Rule::SectorsAwaited) {
            self.sectors.wait_for_lanes();
        }
    }

    /// Makes sure that records of `epoch` may be: the superblocks say how far epochs go.
    pub(crate) fn allow_epoch(&self, epoch: u32) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if superblock.epoch >= epoch {
            return Ok(());
        }
        let most = epoch.checked_add(EPOCHS_AT_ONCE).filter(|most| *most < u32::MAX);
        let most = most.ok_or(Error::NotSupported)?;
        self.change_superblock(&mut superblock, |superblock| superblock.epoch = most)
    }
}

/// Epochs that the superblocks allow at once, so that few snapshots store these.
const EPOCHS_AT_ONCE: u32 = 1024;

#[cfg(test)]
mod tests;
