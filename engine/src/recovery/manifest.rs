//! Manifests of snapshots in a checkpoint: two bytes or so for each run of pages.
//!
//! The items of a snapshot are told in groups of one birth and kind, in order; in a group each by how far it is from
//! the one before. Numbers are written seven bits a byte, the lowest first, the highest bit telling that more follow.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::layout::Geometry;
use crate::space::Run;
use crate::store::{Item, Kept, Store};
use crate::{Error, Host, Pool, Result};

const WORD: usize = 8;

/// What manifests take: what is noted of things that only snapshots see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ManifestBytes {
    /// Main memory.
    pub memory: u64,
    /// What a checkpoint would have of them: the only place on the medium where they are.
    pub checkpoint: u64,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// What the manifests of all snapshots take.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn manifest_bytes(&self) -> Result<ManifestBytes> {
        let memory = self.store.snapshots.memory_bytes();
        Ok(ManifestBytes { memory, checkpoint: encode_all(&self.store)?.len() as u64 })
    }
}

/// What is kept for each snapshot, by its epoch.
pub(super) type Manifests = Vec<(u32, Vec<Item>)>;

fn put(bytes: &mut Vec<u8>, mut number: u64) -> Result<()> {
    bytes.try_reserve(10)?;
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    Ok(())
}

/// The bytes of all manifests: of each a word with its epoch, and in the upper half how many bytes follow, and these,
/// with zeros up to the next word. Nothing where there are no snapshots.
pub(super) fn encode_all<M: Medium, H: Host>(store: &Store<M, H>) -> Result<Vec<u8>> {
    let mut all: Vec<u8> = Vec::new();
    store.snapshots.for_each(&mut |epoch, items| {
        let bytes = encode(items)?;
        let len = u32::try_from(bytes.len()).map_err(|_| Error::NoMemory)?;
        all.try_reserve(2 * WORD + bytes.len())?;
        all.extend_from_slice(&epoch.to_le_bytes());
        all.extend_from_slice(&len.to_le_bytes());
        all.extend_from_slice(&bytes);
        all.resize(all.len().next_multiple_of(WORD), 0);
        Ok(())
    })?;
    Ok(all)
}

/// The items by birth, kind and place. Sorted by way of their numbers: that takes a smaller frame of the stack.
fn in_order(items: &[Item]) -> Result<Vec<Item>> {
    let mut order: Vec<u32> = Vec::new();
    order.try_reserve_exact(items.len())?;
    order.extend(0..u32::try_from(items.len()).map_err(|_| Error::NoMemory)?);
    order.sort_unstable_by_key(|at| items.get(*at as usize));
    let mut sorted = Vec::new();
    sorted.try_reserve_exact(items.len())?;
    sorted.extend(order.iter().filter_map(|at| items.get(*at as usize).copied()));
    Ok(sorted)
}

fn encode(items: &[Item]) -> Result<Vec<u8>> {
    let mut sorted = in_order(items)?;
    // Runs that touch are one; slots are told one by one.
    sorted.dedup_by(|next, last| last.takes_in(next));
    let mut bytes = Vec::new();
    for group in sorted.chunk_by(|a, b| (a.born(), a.kind()) == (b.born(), b.kind())) {
        let Some(first) = group.first() else { continue };
        put(&mut bytes, u64::from(first.born()) << 2 | first.kind() as u64)?;
        put(&mut bytes, group.len() as u64)?;
        let mut end = 0;
        for item in group {
            let place = item.place();
            put(&mut bytes, (place.page - end) << 1 | u64::from(place.pages > 1))?;
            if place.pages > 1 {
                put(&mut bytes, place.pages)?;
            }
            end = place.end();
        }
    }
    Ok(bytes)
}

/// Bytes that are read one number after the other.
struct Numbers<'b>(&'b [u8]);

const DAMAGED: Error = Error::corrupt("checkpoint has an impossible manifest", 0);

impl Numbers<'_> {
    fn next(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(DAMAGED)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DAMAGED)
    }
}

/// Reads all manifests: what [`encode_all`] has written.
pub(super) fn decode_all(geometry: &Geometry, mut bytes: &[u8]) -> Result<Manifests> {
    let mut all: Manifests = Vec::new();
    // (A page of a log is kept once: what tells more of them than the pool has pages would only take memory.)
    let mut logs_left = geometry.pages;
    while let Some((word, rest)) = bytes.split_first_chunk::<WORD>() {
        let word = u64::from_le_bytes(*word);
        let (epoch, len) = (word as u32, (word >> 32) as usize);
        let items = decode(geometry, rest.get(..len).ok_or(DAMAGED)?, epoch, &mut logs_left)?;
        bytes = rest.get(len.next_multiple_of(WORD)..).ok_or(DAMAGED)?;
        if all.last().is_some_and(|(before, _)| *before >= epoch) {
            return Err(DAMAGED);
        }
        all.try_reserve(1)?;
        all.push((epoch, items));
    }
    Ok(all)
}

fn decode(geometry: &Geometry, bytes: &[u8], epoch: u32, logs_left: &mut u64) -> Result<Vec<Item>> {
    let mut numbers = Numbers(bytes);
    let (mut items, mut group) = (Vec::new(), None);
    while !numbers.0.is_empty() {
        let head = numbers.next()?;
        let kind = Kept::from_number(head & 3).ok_or(DAMAGED)?;
        let born = u32::try_from(head >> 2).map_err(|_| DAMAGED)?;
        if group.is_some_and(|before| before >= (born, kind)) {
            return Err(DAMAGED);
        }
        group = Some((born, kind));
        let count = numbers.next()?;
        let mut end = 0u64;
        for _ in 0..count {
            let word = numbers.next()?;
            let pages = if word & 1 == 1 { numbers.next()? } else { 1 };
            let page = end.checked_add(word >> 1).ok_or(DAMAGED)?;
            end = page.checked_add(pages).ok_or(DAMAGED)?;
            let there = match kind {
                Kept::Slot => pages == 1 && geometry.holds_metadata(page / 8, 1),
                // (Each by itself: those that follow each other may have twins on both sides of a border.)
                Kept::Log => {
                    geometry.holds(page, pages)
                        && (page..end).all(|page| geometry.holds_metadata(page, 1))
                }
                Kept::Data => geometry.holds(page, pages),
            };
            if !there || born > epoch {
                return Err(DAMAGED);
            }
            if kind == Kept::Log {
                *logs_left = logs_left.checked_sub(pages).ok_or(DAMAGED)?;
            }
            let (each, count) = if kind == Kept::Log { (1, pages) } else { (pages, 1) };
            items.try_reserve(usize::try_from(count).map_err(|_| Error::NoMemory)?)?;
            let places = (0..count).map(|at| Run { page: page + at, pages: each });
            items.extend(places.map(|run| Item::new(kind, run, born)));
        }
    }
    Ok(items)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::layout::Strips;

    /// Manifests of snapshots, each with such a run of log pages born in epoch 1.
    fn told(runs: &[(u64, u64)]) -> Vec<u8> {
        let mut all = Vec::new();
        for (epoch, &(page, pages)) in (2u32..).zip(runs) {
            let mut bytes = Vec::new();
            put(&mut bytes, 1 << 2 | Kept::Log as u64).unwrap();
            put(&mut bytes, 1).unwrap();
            put(&mut bytes, page << 1 | 1).unwrap();
            put(&mut bytes, pages).unwrap();
            all.extend_from_slice(&epoch.to_le_bytes());
            all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            all.extend_from_slice(&bytes);
            all.resize(all.len().next_multiple_of(WORD), 0);
        }
        all
    }

    fn geometry(twin_pages: u64) -> Geometry {
        Geometry { pages: 2000, lanes: 4, log_lines: 63, twin_pages, strips: Strips::NONE }
    }

    #[test]
    fn log_pages_that_are_told_as_one_may_lie_on_both_sides_of_a_border_between_twins() {
        let run = (510, 4);
        for apart in [0, 256] {
            let all = decode_all(&geometry(apart), &told(&[run])).unwrap();
            let pages = (run.0..run.0 + run.1).map(|page| Run { page, pages: 1 });
            let items = pages.map(|run| Item::new(Kept::Log, run, 1)).collect::<Vec<_>>();
            assert_eq!(all, [(2, items)], "{apart} pages apart");
        }
        // (Where one has no twin, none is taken.)
        assert!(decode_all(&geometry(1024), &told(&[(970, 10)])).is_err());
    }

    #[test]
    fn no_checkpoint_tells_of_more_log_pages_than_the_pool_has() {
        let geometry = geometry(0);
        assert!(decode_all(&geometry, &told(&[(500, 1400), (500, 600)])).is_ok());
        assert!(decode_all(&geometry, &told(&[(500, 1400), (500, 601)])).is_err());
    }
}
