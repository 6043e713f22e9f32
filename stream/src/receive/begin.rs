//! Whether a stream fits a pool, and where it goes on.

use lode_engine::{Error as Engine, Host, Pool, Receiving};
use lode_pmem::Medium;

use super::apply::Tree;
use super::note::Note;
use super::{Receiver, Start, name_shown};
use crate::differ::Differ;
use crate::error::{Doing, shown};
use crate::wire::Header;
use crate::{Error, Result};

/// What is to be done with a stream.
pub enum Begun<'p, M: Medium, H: Host> {
    /// Apply it.
    Receiver(Box<Receiver<'p, M, H>>),
    /// Nothing: the pool has this snapshot.
    There,
    /// Roll the pool back to its snapshot of this name, and begin again: it was changed since, and that is to be lost.
    RollBack(Vec<u8>),
}

impl<'p, M: Medium, H: Host> Receiver<'p, M, H> {
    /// Looks at how a stream begins, or goes on, and gets a pool ready for it that was opened to receive. With
    /// `force`, what is in the pool and in the way is to be lost: for a whole snapshot when all is received, for a
    /// difference at once, by a rollback before its first frame ([`Begun::RollBack`]).
    ///
    /// # Errors
    /// The pool does not have what the stream begins at, has something else, or is receiving something else; and
    /// [`Error::Pool`].
    pub fn begin(pool: &'p Pool<M, H>, start: &Start, force: bool) -> Result<Begun<'p, M, H>> {
        let mark = pool.receiving().doing("looking into", b"")?;
        match (mark, &start.header) {
            (Some(mark), Some(header)) => Self::again(pool, &mark, header),
            (Some(mark), None) => {
                let other = || Error::OtherStream(name_shown(&mark.name));
                let note = Note::parse(&mark.note).filter(|note| note.offset > 0);
                let note = note.ok_or_else(other)?;
                let at = (note.offset, note.chain);
                Ok(Begun::receiver(pool, note, at, Some(start.first)))
            }
            (None, Some(header)) => Self::anew(pool, header, force),
            // (Bytes that are no frame are told as such.)
            (None, None) if start.first[1..4] != [0; 3] => Err(Error::NotAStream),
            (None, None) => Err(Error::NothingBegun),
        }
    }

    /// A stream from its beginning on, where some of it was received.
    fn again(pool: &'p Pool<M, H>, mark: &Receiving, header: &Header) -> Result<Begun<'p, M, H>> {
        let expected = Note::of(header);
        let note = Note::parse(&mark.note);
        let is_it = |note: &Note| note.older == expected.older && note.staging == expected.staging;
        let note = note.filter(|note| is_it(note) && mark.id == header.id);
        let note = note.filter(|_| mark.name == header.name);
        let note = note.ok_or_else(|| Error::OtherStream(name_shown(&mark.name)))?;
        if note.offset == 0 {
            return Self::ready(pool, note, header);
        }
        let (bytes, crc) = header.encode();
        Ok(Begun::receiver(pool, note, (bytes.len() as u64, crc), None))
    }

    /// A stream of which nothing was received.
    fn anew(pool: &'p Pool<M, H>, header: &Header, force: bool) -> Result<Begun<'p, M, H>> {
        match pool.snapshot_id(&header.name) {
            Ok(id) if id == header.id => return Ok(Begun::There),
            Ok(_) => return Err(Error::NameTaken(name_shown(&header.name))),
            Err(Engine::NotFound) => {}
            Err(error) => return Err(error).doing("looking for snapshot", &header.name),
        }
        match &header.older {
            Some((_, id)) => {
                let local = name_of(pool, id)?.ok_or(Error::NoOlder)?;
                if let Some(what) = changed_since(pool, &local)? {
                    if force {
                        return Ok(Begun::RollBack(local));
                    }
                    return Err(Error::Changed { older: name_shown(&local), what });
                }
            }
            None if !force && !is_empty(pool)? => return Err(Error::NotEmpty),
            None => {}
        }
        let note = Note::of(header);
        pool.begin_receiving(&header.name, &header.id, &note.encode())
            .doing("beginning to receive snapshot", &header.name)?;
        Self::ready(pool, note, header)
    }

    /// Gets the pool ready for the first frame: what is received whole comes into an empty one.
    fn ready(pool: &'p Pool<M, H>, note: Note, header: &Header) -> Result<Begun<'p, M, H>> {
        if header.older.is_none() {
            Tree::new(pool, &note.staging).empty()?;
        }
        let (bytes, chain) = header.encode();
        let note = Note { offset: bytes.len() as u64, chain, ..note };
        pool.note_receiving(&note.encode()).doing("noting what was received of", b"")?;
        let at = (note.offset, chain);
        Ok(Begun::receiver(pool, note, at, None))
    }
}

impl<'p, M: Medium, H: Host> Begun<'p, M, H> {
    fn receiver(pool: &'p Pool<M, H>, note: Note, at: (u64, u32), first: Option<[u8; 8]>) -> Self {
        let tree = Tree::new(pool, &note.staging);
        Self::Receiver(Box::new(Receiver { pool, tree, note, at, first }))
    }
}

/// The name under which the pool has a snapshot.
fn name_of<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    id: &lode_engine::SnapshotId,
) -> Result<Option<Vec<u8>>> {
    let names = pool.snapshot_names().doing("looking for snapshots in", b"")?;
    for (name, _) in names.into_iter().rev() {
        if pool.snapshot_id(&name).doing("looking for snapshot", &name)? == *id {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// What is different now from what it was at a snapshot, for one.
fn changed_since<M: Medium, H: Host>(pool: &Pool<M, H>, name: &[u8]) -> Result<Option<String>> {
    let then = pool.snapshot_root(name).doing("looking into snapshot", name)?;
    let mut differ = Differ::new(pool, Some(then), pool.root())?.without_access_times();
    Ok(differ.next(pool)?.map(|change| shown(change.path())))
}

fn is_empty<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<bool> {
    let mut is_empty = true;
    pool.readdir(pool.root(), 0, &mut |_| {
        is_empty = false;
        false
    })
    .doing("listing", b"")?;
    Ok(is_empty)
}
