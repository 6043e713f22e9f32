//! A snapshot, or what differs between two, as a stream. The same of the same snapshots each time, to the byte: what
//! was cut off goes on from where it was cut, from a stream that is made again.

use lode_engine::{Error as Engine, Host, Ino, Pool};
use lode_pmem::Medium;

use crate::Result;
use crate::differ::Differ;
use crate::error::Doing;
use crate::wire::{Change, Frames, Header};

/// Bytes that are put out at once, about.
const BATCH: usize = 64 << 10;

/// Makes a stream, piece by piece, from a pool that is open in whatever way.
pub struct Sender {
    header: Header,
    differ: Differ,
    frames: Frames,
    /// Frames so far.
    count: u64,
    /// The header was put out.
    begun: bool,
    ended: bool,
}

impl Sender {
    /// A stream of snapshot `name`, or of what differs from snapshot `older`.
    ///
    /// # Errors
    /// [`crate::Error::Pool`] where there is no such snapshot, or where the pool can't be read.
    pub fn new<M: Medium, H: Host>(
        pool: &Pool<M, H>,
        name: &[u8],
        older: Option<&[u8]>,
    ) -> Result<Self> {
        let id = pool.snapshot_id(name).doing("looking for snapshot", name)?;
        let new = pool.snapshot_root(name).doing("looking into snapshot", name)?;
        let old = match older {
            Some(name) => {
                let id = pool.snapshot_id(name).doing("looking for snapshot", name)?;
                let root = pool.snapshot_root(name).doing("looking into snapshot", name)?;
                Some((root, (name.to_vec(), id)))
            }
            None => None,
        };
        let (old, older) = old.map_or((None, None), |(root, older)| (Some(root), Some(older)));
        let staging = free_name(pool, new, old)?;
        let header = Header { name: name.to_vec(), id, older, staging };
        let differ = Differ::new(pool, old, new)?;
        let frames = Frames::behind(header.encode().1);
        Ok(Self { header, differ, frames, count: 0, begun: false, ended: false })
    }

    /// What it is a stream of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Puts the next bytes of the stream behind what is in `out`. `false` where that was its end.
    ///
    /// # Errors
    /// [`crate::Error::Pool`] where the pool can't be read: then there is no more.
    pub fn next<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let most = out.len() + BATCH;
        if !self.begun {
            self.begun = true;
            out.extend(self.header.encode().0);
        }
        while out.len() < most && !self.ended {
            let change = self.differ.next(pool)?;
            self.ended = change.is_none();
            let change = change.unwrap_or(Change::End { frames: self.count });
            self.frames.put(&change, out);
            self.count += 1;
        }
        Ok(!self.ended)
    }
}

/// A name that neither tree has in its root.
fn free_name<M: Medium, H: Host>(pool: &Pool<M, H>, new: Ino, old: Option<Ino>) -> Result<Vec<u8>> {
    for number in 0.. {
        let name = match number {
            0 => b".lode-receive".to_vec(),
            number => format!(".lode-receive-{number}").into_bytes(),
        };
        let mut is_free = true;
        for root in [Some(new), old].into_iter().flatten() {
            match pool.lookup(root, &name) {
                Ok(_) => is_free = false,
                Err(Engine::NotFound) => {}
                Err(error) => return Err(error).doing("looking for", &name),
            }
        }
        if is_free {
            return Ok(name);
        }
    }
    Ok(Vec::new())
}
