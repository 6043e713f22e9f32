//! What a program does with a mapped file, on any medium: the stores that the engine does not see.

use lode_engine::{Error, Handle, Host, Ino, MapExtent, PAGE_BYTES, Pool, Result, Staging};
use lode_pmem::{Counters, Door, Medium};

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

/// Maps all of a file.
pub(crate) fn map<M: Medium, H: Host>(pool: &Pool<M, H>, ino: Ino) -> Result<()> {
    let size = pool.getattr(ino)?.size;
    with(pool, ino, |file| pool.map(file, 0, size).map(|_| ()))
}

pub(crate) fn unmap<M: Medium, H: Host>(pool: &Pool<M, H>, ino: Ino) -> Result<()> {
    with(pool, ino, |file| {
        if pool.maps(file)? == 0 {
            return Err(Error::Invalid);
        }
        pool.unmap(file);
        Ok(())
    })
}

/// Stores through a map, writes back and fences.
pub(crate) fn poke<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    let size = pool.getattr(ino)?.size;
    let end = offset.checked_add(bytes.len() as u64).filter(|&end| end <= size);
    with(pool, ino, |file| {
        if pool.maps(file)? == 0 || end.is_none() {
            return Err(Error::Invalid);
        }
        let extents = pool.extents(file, offset, bytes.len() as u64)?;
        let (door, counters) = (Door::new(pool.medium()), Counters::new());
        for (at, piece) in pieces(&extents, offset, bytes) {
            let mut window = door.window(piece.len() as u64, &counters);
            window.store(at, piece);
            window.flush(at, piece.len() as u64);
        }
        Ok(door.fence(&counters)?)
    })
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
