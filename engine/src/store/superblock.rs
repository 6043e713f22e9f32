//! Reading and writing the two superblock copies.

use alloc::boxed::Box;

use lode_pmem::{Counters, Door, Medium};

use crate::layout::{FEATURES_READ_ONLY, POOL_PAGES_LEAST, SUPERBLOCK_BYTES, Superblock};
use crate::{Error, Host, PAGE_BYTES, Result, Rule, Unusable};

/// Reads both copies; returns the one that counts, and whether the other one is bad.
pub(crate) fn read_superblock<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    read_only: bool,
) -> Result<(Box<Superblock>, bool)> {
    let least = POOL_PAGES_LEAST * PAGE_BYTES;
    if door.bytes() < least {
        return Err(Error::NotAPool(Unusable::TooSmall { least }));
    }
    let first = read_copy(door, host, 0)?;
    // Copy B's place is told by copy A; without it, by the size of the region.
    let pages = match &first {
        Ok(superblock) => superblock.pages,
        Err(_) => door.bytes() / PAGE_BYTES,
    };
    let expected = pages * PAGE_BYTES;
    if expected > door.bytes() {
        let found = door.bytes();
        return Err(Error::NotAPool(Unusable::Truncated { expected, found }));
    }
    let second = read_copy(door, host, Superblock::places(pages)[1])?;
    let (superblock, one_bad) = choose(first, second)?;
    if superblock.pages * PAGE_BYTES > door.bytes() {
        let (expected, found) = (superblock.pages * PAGE_BYTES, door.bytes());
        return Err(Error::NotAPool(Unusable::Truncated { expected, found }));
    }
    let unknown = superblock.features[1] & !FEATURES_READ_ONLY;
    if unknown != 0 && !read_only {
        return Err(Error::NotAPool(Unusable::ReadOnlyFeatures(unknown)));
    }
    Ok((superblock, one_bad))
}

type Copy = core::result::Result<Box<Superblock>, Unusable>;

fn choose(first: Copy, second: Copy) -> Result<(Box<Superblock>, bool)> {
    match (first, second) {
        (Ok(a), Ok(b)) => {
            if a.seed() != b.seed() || a.geometry() != b.geometry() {
                return Err(Error::corrupt("the two superblocks belong to different pools", 0));
            }
            Ok((if b.update > a.update { b } else { a }, false))
        }
        (Ok(a), Err(_)) => Ok((a, true)),
        (Err(why), Ok(b)) => match why {
            // What copy A says of versions and features is not overruled by an older copy B.
            Unusable::Version(_) | Unusable::Features(_) => Err(Error::NotAPool(why)),
            _ => Ok((b, true)),
        },
        (Err(why), Err(other)) => {
            let telling = if why == Unusable::NoMagic { other } else { why };
            Err(Error::NotAPool(telling))
        }
    }
}

#[inline(never)]
fn read_copy<M: Medium, H: Host>(door: &Door<M>, host: &H, at: u64) -> Result<Copy> {
    let mut raw = [0u8; SUPERBLOCK_BYTES];
    match door.load(at, &mut raw) {
        Ok(()) if host.leaves_out(Rule::SuperblockSeal) && Superblock::has_magic(&raw) => {
            Ok(Superblock::read(&raw).map(Box::new))
        }
        Ok(()) => Ok(Superblock::parse(&raw).map(Box::new)),
        Err(lode_pmem::MediaError::Poisoned { .. }) => Ok(Err(Unusable::BadSuperblock)),
        Err(error) => Err(error.into()),
    }
}

/// Whether copy A is good and copy B is bad or older.
#[inline(never)]
fn first_counts<M: Medium, H: Host>(door: &Door<M>, host: &H, places: [u64; 2]) -> bool {
    let update = |at| match read_copy(door, host, at) {
        Ok(Ok(superblock)) => superblock.update,
        _ => 0,
    };
    update(places[0]) > update(places[1])
}

/// Writes both copies, each with its fence (PROTOCOL I20): first the one that does not
/// count, so that a crash in the middle of either leaves the other.
pub(crate) fn write_superblock<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    superblock: &Superblock,
    counters: &Counters,
) -> Result<()> {
    let mut raw = [0u8; SUPERBLOCK_BYTES];
    superblock.encode(&mut raw);
    debug_assert_eq!(Superblock::parse(&raw).as_ref(), Ok(superblock));
    let mut places = Superblock::places(superblock.pages);
    if first_counts(door, host, places) != host.leaves_out(Rule::SuperblockOrder) {
        places.reverse();
    }
    for at in places {
        let mut window = door.window(SUPERBLOCK_BYTES as u64, counters);
        window.copy_nt(at, &raw);
        drop(window);
        if !host.leaves_out(Rule::SuperblockFence) || at == places[1] {
            door.fence(counters)?;
        }
    }
    Ok(())
}
