//! A snapshot, or what differs between two, as a stream. The same of the same snapshots each time, to the byte: what
//! was cut off goes on from where it was cut, from a stream that is made again.

use lode_engine::{Error as Engine, Host, Ino, Pool, SnapshotId};
use lode_pmem::Medium;

use crate::differ::{Differ, Found};
use crate::error::{Doing, shown};
use crate::wire::{Change, Frames, Header};
use crate::{Error, Result};

/// Bytes that are put out at once, about.
const BATCH: usize = 64 << 10;
/// Entries that are looked at for that, at most: who asks for a piece does not wait long, though there is nothing to
/// put out.
const LOOKS: usize = 1024;

/// Makes a stream, piece by piece, from a pool that is open in whatever way.
pub struct Sender {
    header: Header,
    differ: Differ,
    /// Roots of the two trees: the newer one first.
    roots: (Ino, Option<Ino>),
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
    /// [`Error::Absent`] where there is no such snapshot, [`Error::Pool`] where the pool can't be read.
    pub fn new<M: Medium, H: Host>(
        pool: &Pool<M, H>,
        name: &[u8],
        older: Option<&[u8]>,
    ) -> Result<Self> {
        let id = id_of(pool, name)?;
        let new = pool.snapshot_root(name).doing("looking into snapshot", name)?;
        let old = match older {
            Some(name) => {
                let id = id_of(pool, name)?;
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
        let roots = (new, old);
        Ok(Self { header, differ, roots, frames, count: 0, begun: false, ended: false })
    }

    /// What it is a stream of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Puts the next bytes of the stream behind what is in `out`: perhaps none, where much is the same in both.
    /// `false` where that was its end.
    ///
    /// # Errors
    /// [`Error::Deleted`] where one of the snapshots is there no more; [`Error::Pool`] where the pool can't be read.
    /// Then there is no more.
    pub fn next<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let begin = out.len();
        let filled = self.fill(pool, out);
        // What is not there any more may have been taken for what never was.
        let checked = self.are_there(pool).and(filled);
        if checked.is_err() {
            out.truncate(begin);
        }
        checked.map(|()| !self.ended)
    }

    fn fill<M: Medium, H: Host>(&mut self, pool: &Pool<M, H>, out: &mut Vec<u8>) -> Result<()> {
        let most = out.len() + BATCH;
        if !self.begun {
            self.begun = true;
            out.extend(self.header.encode().0);
        }
        for _ in 0..LOOKS {
            if out.len() >= most || self.ended {
                break;
            }
            let change = match self.differ.step(pool)? {
                Found::Change(change) => change,
                Found::Nothing => continue,
                Found::End => {
                    self.ended = true;
                    Change::End { frames: self.count }
                }
            };
            self.frames.put(&change, out);
            self.count += 1;
        }
        Ok(())
    }

    /// Looks if the snapshots are there: when one was deleted, numbers in it lead nowhere, for ever.
    fn are_there<M: Medium, H: Host>(&self, pool: &Pool<M, H>) -> Result<()> {
        let older = self.header.older.as_ref().map(|(name, _)| name);
        let older = self.roots.1.zip(older);
        for (root, name) in [Some((self.roots.0, &self.header.name)), older].into_iter().flatten() {
            match pool.getattr(root) {
                Err(Engine::Stale) => return Err(Error::Deleted(shown(name).split_off(1))),
                looked => looked.doing("looking into snapshot", name)?,
            };
        }
        Ok(())
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

/// The number of a snapshot.
fn id_of<M: Medium, H: Host>(pool: &Pool<M, H>, name: &[u8]) -> Result<SnapshotId> {
    match pool.snapshot_id(name) {
        Err(Engine::NotFound) => Err(Error::Absent(shown(name).split_off(1))),
        id => id.doing("looking for snapshot", name),
    }
}
