//! Data of a file that differs.
//!
//! A page that both have in the same place is the same page: what a snapshot sees is not stored to. Only behind the
//! size that the file has in the older tree may it have changed.

use std::collections::VecDeque;

use lode_engine::{Attr, Host, Ino, MapExtent, PAGE_BYTES, Pool};
use lode_pmem::Medium;

use crate::Result;
use crate::error::Doing;
use crate::wire::Change;

/// Bytes that are read at once, and of data in a change at most.
const PIECE: u64 = 256 << 10;

static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Ranges of a file that are still to be told.
pub(super) struct Data {
    ino: Ino,
    path: Vec<u8>,
    /// First byte and the one behind the last.
    ranges: VecDeque<(u64, u64)>,
    buffer: Vec<u8>,
}

/// Part of a file and where it is.
type Part = (u64, u64, u64);

/// The parts of `extents`, as first byte, byte behind the last, and place.
fn parts(extents: &[MapExtent]) -> Vec<Part> {
    let part = |it: &MapExtent| (it.file_offset, it.file_offset + it.bytes, it.pool_offset);
    extents.iter().map(part).collect()
}

/// Calls `each` with every stretch of `of` and where the same stretch is in `other`, in order.
fn beside(of: &[Part], other: &[Part], each: &mut dyn FnMut(u64, u64, u64, Option<u64>)) {
    let mut others = other.iter().peekable();
    for &(from, to, place) in of {
        let mut at = from;
        while at < to {
            while others.next_if(|(_, end, _)| *end <= at).is_some() {}
            let (end, there) = match others.peek() {
                Some(&&(start, end, there)) if start <= at => {
                    (end.min(to), Some(there + at - start))
                }
                Some(&&(start, ..)) => (start.min(to), None),
                None => (to, None),
            };
            each(at, end, place + at - from, there);
            at = end;
        }
    }
}

/// Puts a range behind others, or makes the last one longer.
fn add(ranges: &mut VecDeque<(u64, u64)>, from: u64, to: u64) {
    if from >= to {
        return;
    }
    match ranges.back_mut() {
        Some(last) if last.1 == from => last.1 = to,
        _ => ranges.push_back((from, to)),
    }
}

fn extents<M: Medium, H: Host>(pool: &Pool<M, H>, path: &[u8], ino: Ino) -> Result<Vec<Part>> {
    let file = pool.hold(ino).doing("opening", path)?;
    let extents = pool.extents(&file, 0, u64::MAX);
    pool.let_go(file);
    Ok(parts(&extents.doing("looking at", path)?))
}

/// Finds what differs in a file; what is no data goes to `changes`.
pub(super) fn plan<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    path: &[u8],
    new: &Attr,
    old: Option<&Attr>,
    changes: &mut Vec<Change>,
) -> Result<Data> {
    let old_size = old.map_or(0, |old| old.size);
    let new_parts = extents(pool, path, new.ino)?;
    let old_parts = old.map_or(Ok(Vec::new()), |old| extents(pool, path, old.ino))?;
    if new.size != old_size {
        changes.push(Change::Size { path: path.to_vec(), size: new.size });
    }
    let end = new.size.next_multiple_of(PAGE_BYTES);
    // What is mapped behind the end of a file that becomes shorter goes with that.
    let kept = if new.size < old_size { end } else { u64::MAX };
    let mut holes = VecDeque::new();
    beside(&old_parts, &new_parts, &mut |from, to, _, there| {
        if there.is_none() {
            add(&mut holes, from, to.min(kept));
        }
    });
    // Bytes up to here are the same where they are in the same place.
    let same_to = if new.size > old_size { old_size / PAGE_BYTES * PAGE_BYTES } else { u64::MAX };
    let (mut ranges, mut behind) = (VecDeque::new(), VecDeque::new());
    beside(&new_parts, &old_parts, &mut |from, to, place, there| {
        let same = if there == Some(place) { same_to.clamp(from, to) } else { from };
        add(&mut ranges, same, to.min(new.size));
        // (SIZE that is made twice unmaps what is behind.)
        if there.is_none() || new.size != old_size {
            add(&mut behind, from.max(end), to);
        }
    });
    let path = path.to_vec();
    let hole = |(offset, to)| Change::Punch { path: path.clone(), offset, len: to - offset };
    changes.extend(holes.into_iter().map(hole));
    let room = |(offset, to)| Change::Allocate { path: path.clone(), offset, len: to - offset };
    changes.extend(behind.into_iter().map(room));
    Ok(Data { ino: new.ino, path, ranges, buffer: Vec::new() })
}

impl Data {
    /// Whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Reads a piece and tells of it. `false` at the end.
    pub(super) fn step<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        found: &mut VecDeque<Change>,
    ) -> Result<bool> {
        let Some((from, to)) = self.ranges.pop_front() else { return Ok(false) };
        let cut = to.min((from / PIECE + 1) * PIECE);
        if cut < to {
            self.ranges.push_front((cut, to));
        }
        self.buffer.resize((cut - from) as usize, 0);
        let read = pool.read_quietly(self.ino, from, &mut self.buffer);
        let read = read.doing("reading", &self.path)?;
        self.buffer.truncate(read);
        let mut at = from;
        while !self.buffer.is_empty() {
            let pages = self.buffer.chunks(PAGE_BYTES as usize);
            let is_zero = |page: &[u8]| ZEROS.get(..page.len()) == Some(page);
            let zeros = self.buffer.get(..PAGE_BYTES as usize).unwrap_or(&self.buffer);
            let zeros = is_zero(zeros);
            let alike = pages.take_while(|page| is_zero(page) == zeros).map(<[u8]>::len).sum();
            let rest = self.buffer.split_off(alike);
            let data = core::mem::replace(&mut self.buffer, rest);
            let (path, offset, len) = (self.path.clone(), at, data.len() as u64);
            at += len;
            found.push_back(match zeros {
                true => Change::Zero { path, offset, len },
                false => Change::Write { path, offset, data },
            });
        }
        Ok(true)
    }
}
