//! Files of a pool as programs' memory.

use std::thread;
use std::time::{Duration, Instant};

use lode_engine::{Error, Handle, Host, Ino, Life, NewInode, Pool, mode};
use lode_loan::kept::PATH_MOST;
use lode_pmem::Medium;

use super::{EBUSY, EIO, Errno, KeptFile, Opened};
use crate::source::{Owner, Region};

/// How long somebody else who has the file may take to be done with it: who was just killed is, soon.
const PATIENCE: Duration = Duration::from_millis(300);
/// A regular file that its owner may read and write.
const FILE_MODE: u32 = mode::FILE | 0o600;

const EINVAL: Errno = 22;
const ESTALE: Errno = 116;
const ENAMETOOLONG: Errno = 36;
const ELOOP: Errno = 40;

/// Where kept heaps are.
pub trait Files: Send + Sync {
    /// Claims the file at `path` for session `number`, or makes one that has no name yet, for this user and group.
    ///
    /// # Errors
    /// `EBUSY` where another one has it; those of the path and of the pool.
    fn open(&self, path: &str, number: u64, owner: (u32, u32)) -> Result<Opened, Errno>;
}

/// The files of this owner's pool.
pub struct PoolFiles<O>(pub O);

impl<O: Owner + Clone + 'static> Files for PoolFiles<O> {
    fn open(&self, path: &str, number: u64, owner: (u32, u32)) -> Result<Opened, Errno> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.try_open(path, number, owner) {
                Err(EBUSY) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
                result => return result,
            }
        }
    }
}

impl<O: Owner + Clone + 'static> PoolFiles<O> {
    fn try_open(&self, path: &str, number: u64, owner: (u32, u32)) -> Result<Opened, Errno> {
        let root = self.0.root().ok_or(EIO)?;
        let open = |pool: &Pool<O::Medium, O::Host>| {
            let (dir, name) = parent(pool, root, path)?;
            let (handle, is_new) = find_or_make(pool, dir, name, owner)?;
            if let Err(error) = pool.claim(&handle) {
                pool.let_go(handle);
                return Err(error.errno());
            }
            let name = is_new.then(|| (dir, name.to_vec()));
            let (owner, life) = (self.0.clone(), pool.life());
            let held = Held { owner, life, number, handle: Some(handle), name, maps: 0 };
            // (It is dropped outside of this alone.)
            let bytes = held.bytes_in(pool);
            let descriptor = pool.medium().marked_descriptor(number);
            let descriptor = descriptor.map_err(|error| error.raw_os_error().unwrap_or(EIO));
            Ok((held, bytes, descriptor))
        };
        let (held, bytes, descriptor) = self.0.with(open).ok_or(EIO)??;
        let is_new = held.name.is_some();
        let (bytes, descriptor) = (bytes?, descriptor?);
        Ok(Opened { file: Box::new(held), descriptor, bytes, is_new })
    }
}

/// The directory of a path's last name, and that name. Links are not followed, and nothing leads upwards.
fn parent<'p, M: Region, H: Host>(
    pool: &Pool<M, H>,
    root: Ino,
    path: &'p str,
) -> Result<(Ino, &'p [u8]), Errno> {
    if path.len() > PATH_MOST {
        return Err(ENAMETOOLONG);
    }
    let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let is_special = |name: &&str| matches!(*name, "." | "..") || name.contains('\0');
    let last = names.pop().ok_or(EINVAL)?;
    if path.ends_with('/') || is_special(&last) || names.iter().any(is_special) {
        return Err(EINVAL);
    }
    let mut dir = root;
    for name in names {
        let found = pool.lookup(dir, name.as_bytes()).map_err(|error| error.errno())?;
        match found.mode & mode::TYPE {
            mode::DIRECTORY => dir = found.ino,
            mode::SYMLINK => return Err(ELOOP),
            _ => return Err(Error::NotDirectory.errno()),
        }
    }
    Ok((dir, last.as_bytes()))
}

fn find_or_make<M: Region, H: Host>(
    pool: &Pool<M, H>,
    dir: Ino,
    name: &[u8],
    (uid, gid): (u32, u32),
) -> Result<(Handle<H>, bool), Errno> {
    let number = |error: Error| error.errno();
    match pool.lookup(dir, name) {
        Ok(found) => match found.mode & mode::TYPE {
            mode::FILE => Ok((pool.hold(found.ino).map_err(number)?, false)),
            mode::SYMLINK => Err(ELOOP),
            mode::DIRECTORY => Err(Error::IsDirectory.errno()),
            _ => Err(EINVAL),
        },
        Err(Error::NotFound) => {
            let new = NewInode { mode: FILE_MODE, uid, gid, rdev: 0 };
            let made = pool.create_nameless(dir, &new, &[]).map_err(number)?;
            Ok((pool.take_over(made.ino).map_err(number)?, true))
        }
        Err(error) => Err(number(error)),
    }
}

/// A file that is claimed.
struct Held<O: Owner> {
    owner: O,
    /// The opening of the pool that it is of.
    life: Life,
    number: u64,
    handle: Option<Handle<O::Host>>,
    /// Where it will be, while it has no name.
    name: Option<(Ino, Vec<u8>)>,
    /// How many maps of it there are.
    maps: u64,
}

impl<O: Owner> Held<O> {
    fn bytes_in(&self, pool: &Pool<O::Medium, O::Host>) -> Result<u64, Errno> {
        let handle = self.handle.as_ref().ok_or(ESTALE)?;
        pool.size_held(handle).map_err(|error| error.errno())
    }

    fn with<R>(
        &self,
        work: impl FnOnce(&Pool<O::Medium, O::Host>, &Handle<O::Host>) -> Result<R, Error>,
    ) -> Result<R, Errno> {
        let handle = self.handle.as_ref().ok_or(ESTALE)?;
        let worked = self.owner.with(|pool| match pool.life() == self.life {
            true => work(pool, handle).map_err(|error| error.errno()),
            false => Err(ESTALE),
        });
        worked.unwrap_or(Err(EIO))
    }
}

impl<O: Owner> KeptFile for Held<O> {
    fn grow(&mut self, to: u64) -> Result<(), Errno> {
        self.with(|pool, handle| {
            if to > pool.medium().bytes() {
                return Err(Error::FileTooLarge);
            }
            pool.grow_claimed(handle, to)
        })
    }

    fn map(&mut self, from: u64, to: u64) -> Result<Vec<(u64, u64)>, Errno> {
        let len = to.checked_sub(from).ok_or(EINVAL)?;
        let extents = self.with(|pool, handle| {
            if to > pool.size_held(handle)? || !to.is_multiple_of(lode_engine::PAGE_BYTES) {
                return Err(Error::Invalid);
            }
            pool.map(handle, from, len)
        })?;
        self.maps += 1;
        Ok(extents.into_iter().map(|extent| (extent.pool_offset, extent.bytes)).collect())
    }

    fn name(&mut self) -> Result<(), Errno> {
        let (dir, name) = self.name.take().ok_or(EINVAL)?;
        let named = self.with(|pool, handle| pool.link(handle.ino(), dir, &name).map(drop));
        if named.is_err() {
            self.name = Some((dir, name));
        }
        named
    }

    fn is_held(&self) -> bool {
        // (Where nobody can tell, it is.)
        self.owner.with(|pool| pool.medium().is_marked(self.number).unwrap_or(true)).unwrap_or(true)
    }
}

impl<O: Owner> Drop for Held<O> {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.owner.with(|pool| {
            if pool.life() == self.life {
                (0..self.maps).for_each(|_| pool.unmap(&handle));
                pool.end_claim(&handle);
                pool.let_go(handle);
            }
        });
    }
}
