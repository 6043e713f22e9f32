//! Locks of bytes of files that are written by sectors.
//!
//! Guarantees: who has a lock of bytes has it alone, also from who has others that share a page; who reads without one knows
//! whether somebody stored there meanwhile.
//!
//! A lock is that of a *stripe*: pages have one each, by inode and page, until there are more pages than stripes. There are many, as
//! a writer that is kept from its processor keeps its stripes, and all who meet it have to wait: with a thousand of them, thirty
//! such writers let another one do thirty writes. They are made when a pool is first written by sectors.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use lock_api::{Mutex, MutexGuard};
use lode_pmem::prefetch_to_store;
use once_cell::race::OnceBox;

use crate::layout::SECTOR_PAGES_MOST;
use crate::{Host, Ino, PAGE_BYTES};

/// Stripes of a write, at most: as many as pages it lies in.
const AT_ONCE: usize = SECTOR_PAGES_MOST as usize + 1;
/// Stripes of a pool, from and to; powers of two, and never fewer than a write has.
const STRIPES: (u64, u64) = (64, 1 << 17);
const _: () = assert!(STRIPES.0 >= AT_ONCE as u64);
/// Bits of an owner's sequence: enough for years of writes.
const SEQUENCE_BITS: u32 = 48;

/// The write of a lane that a stripe had last, in one word; 0 is none.
#[derive(Clone, Copy)]
pub(crate) struct Owner(u64);

impl Owner {
    /// That of a lane's write of this sequence.
    pub(super) fn new(lane: u32, sequence: u64) -> Self {
        Self(u64::from(lane + 1) << SEQUENCE_BITS | sequence & ((1 << SEQUENCE_BITS) - 1))
    }

    /// Its lane and sequence, if there is one.
    pub(super) fn write(self) -> Option<(u32, u64)> {
        let lane = ((self.0 >> SEQUENCE_BITS) as u32).checked_sub(1)?;
        Some((lane, self.0 & ((1 << SEQUENCE_BITS) - 1)))
    }
}

/// What is locked together: a quarter of a cache line.
struct Stripe<H: Host> {
    turn: Mutex<H::Mutex, ()>,
    /// Odd while bytes of it go home.
    version: AtomicU32,
    /// An [`Owner`]: looked at and changed by who has the lock.
    owner: AtomicU64,
}

/// The stripes of a pool.
pub(crate) struct Stripes<H: Host> {
    all: OnceBox<Vec<Stripe<H>>>,
    /// How many there will be.
    count: usize,
}

impl<H: Host> Stripes<H> {
    /// Those of a pool of so many pages, when they are made.
    pub(super) fn new(pages: u64) -> Self {
        let count = pages.clamp(STRIPES.0, STRIPES.1).next_power_of_two() as usize;
        Self { all: OnceBox::new(), count }
    }

    /// Makes them, if that was not done before; says whether there was memory for them.
    pub(super) fn make(&self) -> bool {
        if self.are_made() {
            return true;
        }
        let mut all = Vec::new();
        if all.try_reserve_exact(self.count).is_err() {
            return false;
        }
        all.resize_with(self.count, || Stripe {
            turn: Mutex::new(()),
            version: AtomicU32::new(0),
            owner: AtomicU64::new(0),
        });
        // (Of two who make them, one has made them for both.)
        let _ = self.all.set(Box::new(all));
        true
    }

    /// Whether they are made.
    #[inline]
    pub(crate) fn are_made(&self) -> bool {
        self.all.get().is_some()
    }

    /// Bytes of memory that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.all.get().map_or(0, |all| all.capacity() * size_of::<Stripe<H>>())
    }

    /// The stripes of bytes `from .. to` of an inode, in order, each once; not more than [`AT_ONCE`].
    fn of(&self, ino: Ino, from: u64, to: u64) -> Option<impl Iterator<Item = &Stripe<H>>> {
        let all = self.all.get()?;
        let first = first(ino, from) & (all.len() - 1);
        let count = ((to.div_ceil(PAGE_BYTES) - from / PAGE_BYTES) as usize).min(AT_ONCE);
        let over = (first + count).saturating_sub(all.len());
        Some(all.get(..over)?.iter().chain(all.get(first..first + count - over)?))
    }

    /// Asks for the first stripe of bytes from `from` on of an inode, which is to be locked: one in two times another processor had it last.
    #[inline]
    pub(crate) fn prefetch(&self, ino: Ino, from: u64) {
        let Some(all) = self.all.get() else { return };
        all.get(first(ino, from) & (all.len() - 1)).into_iter().for_each(prefetch_to_store);
    }

    /// Locks bytes `from .. to` of an inode, in `locked`, which has none yet; says whether it could: not as long as nothing of the pool was
    /// written by sectors.
    #[inline(never)]
    pub(crate) fn lock<'s>(
        &'s self,
        locked: &mut Locked<'s, H>,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> bool {
        let Some(mut stripes) = self.of(ino, from, to) else { return false };
        let mut next = || stripes.next().map(|stripe| (stripe.turn.lock(), stripe));
        locked.first = next();
        if to > from - from % PAGE_BYTES + PAGE_BYTES {
            let more = locked.more.insert([const { None }; AT_ONCE - 1]);
            more.iter_mut().for_each(|place| *place = next());
        }
        true
    }

    /// Whether nobody has stored to the page at `at` of an inode while `load` was done, which says whether it could.
    #[inline]
    pub(crate) fn is_one_whole(&self, ino: Ino, at: u64, load: impl FnOnce() -> bool) -> bool {
        let stripe = self.all.get().and_then(|all| all.get(first(ino, at) & (all.len() - 1)));
        let Some(stripe) = stripe else { return false };
        let version = stripe.version.load(Acquire);
        if version % 2 == 1 || !load() {
            return false;
        }
        fence(Acquire);
        stripe.version.load(Relaxed) == version
    }

    /// The same of bytes `from .. to`, of however many pages: at one time all of them were as they were loaded.
    #[inline]
    pub(crate) fn are_whole(
        &self,
        ino: Ino,
        (from, to): (u64, u64),
        load: impl FnOnce() -> bool,
    ) -> bool {
        let Some(before) = self.sum(ino, from, to) else { return false };
        if !load() {
            return false;
        }
        fence(Acquire);
        self.sum(ino, from, to) == Some(before)
    }

    /// The sum of the versions of bytes `from .. to` of an inode, as long as nobody is storing there. (They only rise, and begin anew after two
    /// thousand million writes: if the sum stays, all do.)
    #[inline]
    fn sum(&self, ino: Ino, from: u64, to: u64) -> Option<u64> {
        let all = self.all.get()?;
        let (first, pages) = (first(ino, from), to.div_ceil(PAGE_BYTES) - from / PAGE_BYTES);
        let mut sum = 0_u64;
        for page in 0..pages as usize {
            let version =
                all.get(first.wrapping_add(page) & (all.len() - 1))?.version.load(Acquire);
            if version % 2 == 1 {
                return None;
            }
            sum = sum.wrapping_add(u64::from(version));
        }
        Some(sum)
    }
}

/// What a byte of an inode has instead of the number of its stripe, before there is a number of stripes.
#[inline]
fn first(ino: Ino, at: u64) -> usize {
    (at / PAGE_BYTES).wrapping_add(ino.wrapping_mul(97)) as usize
}

type LockedStripe<'s, H> = (MutexGuard<'s, <H as Host>::Mutex, ()>, &'s Stripe<H>);

/// Bytes of a file that are locked.
pub(crate) struct Locked<'s, H: Host> {
    first: Option<LockedStripe<'s, H>>,
    /// The first of these, as many as there are. (Nearly always there is one stripe: an array of places takes longer than its lock.)
    more: Option<[Option<LockedStripe<'s, H>>; AT_ONCE - 1]>,
    /// The write whose bytes go home.
    goes_home: Option<Owner>,
}

impl<H: Host> Locked<'_, H> {
    /// None yet.
    #[inline]
    pub(crate) fn none() -> Self {
        Self { first: None, more: None, goes_home: None }
    }

    fn stripes(&self) -> impl Iterator<Item = &Stripe<H>> {
        let more = self.more.iter().flatten().map_while(Option::as_ref);
        self.first.iter().chain(more).map(|(_, stripe)| *stripe)
    }

    /// Who wrote there last.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.stripes().map(|stripe| Owner(stripe.owner.load(Relaxed)))
    }

    /// From now on readers wait: bytes go home, of this write.
    pub(super) fn go_home(&mut self, owner: Owner) {
        for stripe in self.stripes() {
            stripe.version.store(stripe.version.load(Relaxed).wrapping_add(1), Relaxed);
        }
        fence(Release);
        self.goes_home = Some(owner);
    }
}

impl<H: Host> Drop for Locked<'_, H> {
    fn drop(&mut self) {
        let Some(owner) = self.goes_home else { return };
        for stripe in self.stripes() {
            stripe.owner.store(owner.0, Relaxed);
            stripe.version.store(stripe.version.load(Relaxed).wrapping_add(1), Release);
        }
    }
}
