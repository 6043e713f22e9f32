//! What programs do with memory that a pool has lent, on any medium: stores that the engine does not see.

use lode_engine::{Error, Host, Ino, LENT_BYTES, PAGE_BYTES, Pool, Result};
use lode_pmem::{Counters, Door, LINE_BYTES, Medium};

use crate::op::Fill;

/// Of the pages of a chunk, one in so many is stored to.
const STEP: u64 = 73;

/// What a pool may well say where there is no memory to lend.
fn unless_short(result: Result<u64>) -> Result<()> {
    match result {
        Ok(_) | Err(Error::NoSpace) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes a chunk of free pages, if there is one.
pub(crate) fn lend<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<()> {
    unless_short(pool.lend(0))
}

/// Takes the chunk that is at this offset of a file without a name, if one is.
pub(crate) fn lend_part<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
) -> Result<()> {
    let file = pool.hold(ino)?;
    let lent = pool.lend_part(&file, offset);
    pool.let_go(file);
    match lent {
        Err(Error::Invalid | Error::Busy) => Ok(()),
        lent => unless_short(lent),
    }
}

/// Gives one of the chunks back.
pub(crate) fn give_back<M: Medium, H: Host>(pool: &Pool<M, H>, number: usize) -> Result<()> {
    let lent = pool.lent()?;
    match lent.get(number % lent.len().max(1)) {
        Some(chunk) => pool.give_back(*chunk),
        None => Ok(()),
    }
}

/// Stores into all chunks, every other page through the cache, the others past it; nothing is fenced, nor written back: a
/// program's stores promise nothing.
pub(crate) fn scribble<M: Medium, H: Host>(pool: &Pool<M, H>, fill: u64) -> Result<()> {
    let (door, counters) = (Door::new(pool.medium()), Counters::new());
    let mut held = Vec::new();
    door.for_each_held(&mut |at, _| held.push(at / LENT_BYTES));
    // (Those of others are theirs.)
    for chunk in pool.lent()?.into_iter().filter(|chunk| !held.contains(chunk)) {
        for page in (0..LENT_BYTES / PAGE_BYTES).step_by(STEP as usize) {
            let at = chunk * LENT_BYTES + page * PAGE_BYTES;
            let bytes = Fill { len: LINE_BYTES as u64, fill: fill + page }.bytes();
            let mut window = door.window(bytes.len() as u64, &counters);
            match page / STEP % 2 {
                0 => window.copy_nt(at, &bytes),
                _ => window.store(at, &bytes),
            }
        }
    }
    Ok(())
}
