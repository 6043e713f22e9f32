//! What a program does with a mapped file, on any medium: the stores that the engine does not see.

use std::sync::Arc;

use lode_engine::{Error, Handle, Host, Ino, MapExtent, PAGE_BYTES, Pool, Result, Shown, Staging};
use lode_pmem::{Counters, Door, Medium};

use crate::shown::{Memory, maps_of};

/// Runs `work` with the inode open.
fn with<M: Medium, H: Host, R>(
    pool: &Pool<M, H>,
    ino: Ino,
    work: impl FnOnce(&Handle<H>) -> Result<R>,
) -> Result<R> {
    let held = pool.hold(ino)?;
    let result = work(&held);
    pool.let_go(held);
    result
}

/// What a pool is known by while it is open.
fn known<M: Medium, H: Host>(pool: &Pool<M, H>) -> usize {
    std::ptr::from_ref(pool) as usize
}

/// Maps all of a file, to be stored to.
pub(crate) fn map<M: Medium, H: Host>(pool: &Pool<M, H>, ino: Ino) -> Result<()> {
    let size = pool.getattr(ino)?.size;
    let mut made = None;
    let mut make = |extents: &[MapExtent]| -> Result<Arc<dyn Shown>> {
        let memory = Memory::new(known(pool), ino, extents);
        made = Some(Arc::clone(&memory));
        Ok(memory)
    };
    let number = with(pool, ino, |file| pool.map_shown(file, (0, size), true, &mut make))?;
    if let Some(memory) = made {
        memory.set_number(number);
    }
    pool.allow_stores(ino, 0, size)
}

pub(crate) fn unmap<M: Medium, H: Host>(pool: &Pool<M, H>, ino: Ino) -> Result<()> {
    let number = maps_of(known(pool), ino).last().map(|map| map.number());
    let number = number.ok_or(Error::Invalid)?;
    with(pool, ino, |file| {
        pool.unmap_shown(file, number);
        Ok(())
    })
}

/// Stores through a map, written back and fenced.
pub(crate) fn poke<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    let (door, counters) = (Door::new(pool.medium()), Counters::new());
    let more = store(pool, ino, (offset, bytes), &mut |at, piece| {
        let mut window = door.window(piece.len() as u64, &counters);
        window.store(at, piece);
        window.flush(at, piece.len() as u64);
    })?;
    door.fence(&counters)?;
    if more { unmap(pool, ino) } else { Ok(()) }
}

/// Stores through a map, and ends it.
pub(crate) fn leave<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    let (door, counters) = (Door::new(pool.medium()), Counters::new());
    let more = store(pool, ino, (offset, bytes), &mut |at, piece| {
        door.window(piece.len() as u64, &counters).store(at, piece);
    })?;
    if more {
        unmap(pool, ino)?;
    }
    unmap(pool, ino)
}

/// Hands each piece of bytes to `each`, with its place in the pool. Says whether the file was mapped once more for that.
fn store<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    (offset, bytes): (u64, &[u8]),
    each: &mut dyn FnMut(u64, &[u8]),
) -> Result<bool> {
    let (pieces, more) = open_pieces(pool, ino, offset, bytes.len() as u64)?;
    for (from, at, len) in pieces {
        each(at, &bytes[(from - offset) as usize..][..len as usize]);
    }
    Ok(more)
}

/// A piece of what is mapped: the file's offset, the pool's, and the length.
type Piece = (u64, u64, u64);

/// Where bytes of a mapped file can be stored to, and whether all of it was mapped once more for that: where the map shows
/// nothing, or what the file has given up, or the file has a hole. (Where there are snapshots, maps that show what the file has no more
/// may be ones that did not follow: that must be seen.)
fn open_pieces<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
    len: u64,
) -> Result<(Vec<Piece>, bool)> {
    let size = pool.getattr(ino)?.size;
    offset.checked_add(len).filter(|&end| end <= size).ok_or(Error::Invalid)?;
    let mut memory = maps_of(known(pool), ino).first().cloned().ok_or(Error::Invalid)?;
    let extents = with(pool, ino, |file| pool.extents(file, offset, len))?;
    let follows = pool.has_snapshots();
    let more = !memory.shows(&extents, (offset, len), &|shown, there| follows || shown == there);
    if more {
        map(pool, ino)?;
        memory = maps_of(known(pool), ino).last().cloned().ok_or(Error::Invalid)?;
    }
    loop {
        match memory.open_pieces(offset, len) {
            Some(pieces) => return Ok((pieces, more)),
            None => pool.allow_stores(ino, offset, len)?,
        }
    }
}

/// Stages pages, stores bytes into them and commits them.
pub(crate) fn swap<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    let len = bytes.len() as u64;
    let last = pool.getattr(ino)?.size.next_multiple_of(PAGE_BYTES);
    let end = offset.checked_add(len).filter(|&end| end <= last);
    with(pool, ino, |file| {
        if end.is_none() || pool.maps(file)? != 1 {
            return Err(Error::Invalid);
        }
        let extents = pool.stage(file, offset, len, Staging::Zeroed)?;
        let (door, counters) = (Door::new(pool.medium()), Counters::new());
        for (at, piece) in pieces(&extents, offset, bytes) {
            // Written back when it is committed.
            door.window(piece.len() as u64, &counters).store(at, piece);
        }
        let committed = pool.commit_staged(file, &[(offset, len)]);
        pool.unstage(file)?;
        if committed.is_ok() {
            maps_of(known(pool), ino).iter().for_each(|map| map.put(&extents));
            pool.allow_stores(ino, offset, len)?;
        }
        committed
    })
}

/// The parts of `bytes` of a file at `offset`, with their places in the pool.
fn pieces<'a>(
    extents: &'a [MapExtent],
    offset: u64,
    bytes: &'a [u8],
) -> impl Iterator<Item = (u64, &'a [u8])> {
    extents.iter().map(move |extent| {
        let from = extent.file_offset.max(offset);
        let to = (extent.file_offset + extent.bytes).min(offset + bytes.len() as u64);
        let piece = &bytes[(from - offset) as usize..(to - offset) as usize];
        (extent.pool_offset + (from - extent.file_offset), piece)
    })
}
