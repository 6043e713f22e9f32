//! Reading and writing the two superblock copies.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lode_pmem::{Counters, Door, Medium};

use super::Store;
use crate::layout::{
    BAD_AT, BAD_IN_LINE, BAD_PAGES_MOST, BadPage, FEATURES_READ_ONLY, Geometry, LINE, LOCATOR_AT,
    POOL_PAGES_LEAST, SUPERBLOCK_BYTES, Superblock, bad_crc, bad_line, bad_pages_in, bad_possible,
    located, locator,
};
use crate::{Error, Host, PAGE_BYTES, Result, Rule, SuperblockDamage, Unusable, What};

/// What is bad: of each copy the superblock or its list, and the locator.
pub(crate) type BadParts = [Option<SuperblockDamage>; 3];

/// Reads both copies; returns the one that counts, and what of them is bad.
pub(crate) fn read_superblock<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    read_only: bool,
) -> Result<(Box<Superblock>, BadParts)> {
    let least = POOL_PAGES_LEAST * PAGE_BYTES;
    if door.bytes() < least {
        return Err(Error::NotAPool(Unusable::TooSmall { least }));
    }
    let first = read_copy(door, host, 0)?;
    // Copy B's place is told by copy A; without it by the locator, and by the region's size.
    let located = read_locator(door, host)?.filter(|_| !host.leaves_out(Rule::Located));
    let pages = match &first {
        Ok(found) => found.superblock.pages,
        Err(_) => located.unwrap_or(door.bytes() / PAGE_BYTES),
    };
    let expected = pages * PAGE_BYTES;
    if expected > door.bytes() {
        let found = door.bytes();
        return Err(Error::NotAPool(Unusable::Truncated { expected, found }));
    }
    let places = Superblock::places(pages);
    let second = read_copy(door, host, places[1])?;
    let [one, other] = [(&first, places[0]), (&second, places[1])].map(|(it, at)| bad_in(it, at));
    let superblock = choose(first, second)?;
    if superblock.pages * PAGE_BYTES > door.bytes() {
        let (expected, found) = (superblock.pages * PAGE_BYTES, door.bytes());
        return Err(Error::NotAPool(Unusable::Truncated { expected, found }));
    }
    let unknown = superblock.features[1] & !FEATURES_READ_ONLY;
    if unknown != 0 && !read_only {
        return Err(Error::NotAPool(Unusable::ReadOnlyFeatures(unknown)));
    }
    let lost = located != Some(superblock.pages) && !host.leaves_out(Rule::Located);
    let locator = SuperblockDamage { what: What::Locator, at: LOCATOR_AT };
    Ok((superblock, [one, other, lost.then_some(locator)]))
}

/// What is bad of the copy at `at`.
fn bad_in(copy: &Copy, at: u64) -> Option<SuperblockDamage> {
    match copy {
        Ok(Found { list_lost: false, .. }) => None,
        Ok(_) => Some(SuperblockDamage { what: What::BadList, at: at + BAD_AT }),
        Err(_) => Some(SuperblockDamage { what: What::Superblock, at }),
    }
}

/// How many pages the locator says the pool has, if it is good.
fn read_locator<M: Medium, H: Host>(door: &Door<M>, host: &H) -> Result<Option<u64>> {
    match door.load_line(LOCATOR_AT) {
        Ok(line) => Ok(located(&line, !host.leaves_out(Rule::LocatorSum))),
        Err(lode_pmem::MediaError::Poisoned { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the locator right, where it is not, with the fence of the superblock that is stored next. (What
/// left it so, a pool that was growing, left the second superblock at the end of the region, too.)
pub(crate) fn repair_locator<M: Medium, H: Host>(store: &Store<M, H>) -> Result<()> {
    let pages = store.geometry.pages;
    if read_locator(&store.door, &store.host)? == Some(pages) {
        return Ok(());
    }
    write_locator(&store.door, pages, store.counters());
    Ok(())
}

/// Starts to store the locator of a pool of `pages` pages; the next fence ends it.
pub(crate) fn write_locator<M: Medium>(door: &Door<M>, pages: u64, counters: &Counters) {
    door.window(LINE, counters).store_line(LOCATOR_AT, &locator(pages));
}

/// A copy that is good.
struct Found {
    superblock: Box<Superblock>,
    /// The list of bad memory behind it is not.
    list_lost: bool,
}

type Copy = core::result::Result<Found, Unusable>;

/// The copy that counts.
fn choose(first: Copy, second: Copy) -> Result<Box<Superblock>> {
    match (first, second) {
        (Ok(a), Ok(b)) => {
            // (A crash may have cut off a change of the level: then they differ in that.)
            let strips = crate::layout::Strips::NONE;
            let sizes = |it: &Superblock| Geometry { twin_pages: 0, strips, ..it.geometry() };
            let (one, other) = (&a.superblock, &b.superblock);
            if one.seed() != other.seed() || sizes(one) != sizes(other) {
                return Err(Error::corrupt("the two superblocks belong to different pools", 0));
            }
            let later = other.update > one.update;
            let (found, other) = if later { (b, a) } else { (a, b) };
            Ok(with_list(found, other.superblock.bad))
        }
        (Ok(found), Err(_)) => Ok(with_list(found, Vec::new())),
        (Err(why), Ok(found)) => match why {
            // What copy A says of versions and features is not overruled by an older copy B.
            Unusable::Version(_) | Unusable::Features(_) => Err(Error::NotAPool(why)),
            _ => Ok(with_list(found, Vec::new())),
        },
        (Err(why), Err(other)) => {
            let telling = if why == Unusable::NoMagic { other } else { why };
            Err(Error::NotAPool(telling))
        }
    }
}

/// A superblock whose list is the other copy's, where its own is lost: free space is to be found out anew then.
fn with_list(found: Found, other: Vec<BadPage>) -> Box<Superblock> {
    let Found { mut superblock, list_lost } = found;
    if list_lost {
        (superblock.bad, superblock.checkpoint) = (other, 0);
    }
    superblock
}

#[inline(never)]
fn read_copy<M: Medium, H: Host>(door: &Door<M>, host: &H, at: u64) -> Result<Copy> {
    let mut raw = [0u8; SUPERBLOCK_BYTES];
    let superblock = match door.load(at, &mut raw) {
        Ok(()) if host.leaves_out(Rule::SuperblockSeal) && Superblock::has_magic(&raw) => {
            Superblock::read(&raw).map(Box::new)
        }
        Ok(()) => Superblock::parse(&raw).map(Box::new),
        Err(lode_pmem::MediaError::Poisoned { .. }) => Err(Unusable::BadSuperblock),
        Err(error) => return Err(error.into()),
    };
    let mut superblock = match superblock {
        Ok(superblock) => superblock,
        Err(why) => return Ok(Err(why)),
    };
    let list = read_list(door, at, &raw, superblock.pages)?;
    let list_lost = list.is_none();
    superblock.bad = list.unwrap_or_default();
    Ok(Ok(Found { superblock, list_lost }))
}

/// The list of bad memory behind the superblock at `at`, if it is good.
#[inline(never)]
fn read_list<M: Medium>(
    door: &Door<M>,
    at: u64,
    raw: &[u8; SUPERBLOCK_BYTES],
    pages: u64,
) -> Result<Option<Vec<BadPage>>> {
    let Some(said) = Superblock::bad_said(raw) else { return Ok(None) };
    let mut list = Vec::new();
    list.try_reserve_exact(said.pages)?;
    let mut place = at + BAD_AT;
    while list.len() < said.pages {
        let Ok(line) = door.load_line(place) else { return Ok(None) };
        let left = said.pages - list.len();
        list.extend(bad_pages_in(&line).into_iter().take(left));
        place += LINE;
    }
    let is_good = bad_crc(&list) == said.crc && bad_possible(&list, pages);
    Ok(is_good.then_some(list))
}

/// Whether copy A is good and copy B is bad or older.
#[inline(never)]
fn first_counts<M: Medium, H: Host>(door: &Door<M>, host: &H, places: [u64; 2]) -> bool {
    let update = |at| match read_copy(door, host, at) {
        Ok(Ok(found)) => found.superblock.update,
        _ => 0,
    };
    update(places[0]) > update(places[1])
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Stores a changed superblock, `held` being the one that counts so far.
    pub(crate) fn change_superblock(
        &self,
        held: &mut Superblock,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let mut changed = Box::new(held.clone());
        change(&mut changed);
        changed.update += 1;
        write_superblock(&self.door, &self.host, &changed, self.counters())?;
        *held = *changed;
        Ok(())
    }
}

/// Writes both copies, where a crash may have torn one.
pub(crate) fn write_superblock<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    superblock: &Superblock,
    counters: &Counters,
) -> Result<()> {
    for at in Superblock::places(superblock.pages) {
        forget_torn(door, host, at, counters)?;
    }
    write_copies(door, host, superblock, counters)
}

/// Writes both copies, each with its fence (PROTOCOL I20): first the one that does not
/// count, so that a crash in the middle of either leaves the other.
pub(crate) fn write_copies<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    superblock: &Superblock,
    counters: &Counters,
) -> Result<()> {
    let mut places = Superblock::places(superblock.pages);
    if first_counts(door, host, places) != host.leaves_out(Rule::SuperblockOrder) {
        places.reverse();
    }
    for at in places {
        write_copy(door, superblock, at, counters);
        if !host.leaves_out(Rule::SuperblockFence) || at == places[1] {
            door.fence(counters)?;
        }
    }
    Ok(())
}

/// Makes sure that a copy which is not good never will be: one that a crash has torn lacks words that the next one may
/// have, too, and that be torn as well.
fn forget_torn<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    at: u64,
    counters: &Counters,
) -> Result<()> {
    if read_copy(door, host, at)?.is_err() {
        // (A whole line, as the memory may be bad.)
        let last = at + SUPERBLOCK_BYTES as u64 - LINE;
        door.window(LINE, counters).zero_nt(last, LINE);
        door.fence(counters)?;
    }
    Ok(())
}

/// Starts to store a copy; the next fence ends it.
#[track_caller]
pub(crate) fn write_copy<M: Medium>(
    door: &Door<M>,
    superblock: &Superblock,
    at: u64,
    counters: &Counters,
) {
    let mut raw = [0u8; SUPERBLOCK_BYTES];
    superblock.encode(&mut raw);
    debug_assert_eq!(Superblock::parse(&raw).map(|read| read.update), Ok(superblock.update));
    debug_assert!(superblock.bad.len() <= BAD_PAGES_MOST);
    let lines = superblock.bad.chunks(BAD_IN_LINE);
    let bytes = SUPERBLOCK_BYTES as u64 + lines.len() as u64 * LINE;
    let mut window = door.window(bytes, counters);
    window.copy_nt(at, &raw);
    for (place, pages) in (at + BAD_AT..).step_by(LINE as usize).zip(lines) {
        window.copy_nt(place, &bad_line(pages).0);
    }
}
