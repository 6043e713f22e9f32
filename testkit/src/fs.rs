//! The calls that a pool and the model have in common.

use lode_engine::{
    Attr, DirEntry, Error, Fallocate, Host, Ino, NewInode, Pool, RenameMode, Result, SetAttr,
};
use lode_model::{Loose, Model};
use lode_pmem::Medium;

use crate::{Memory, TestHost};

/// A pool as tests use it.
pub type TestPool = Pool<Memory, TestHost>;

/// A file system by inode numbers: see [`Pool`] for what each call does.
#[allow(missing_docs)]
pub trait Fs: Sync {
    fn root(&self) -> Ino;
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr>;
    fn getattr(&self, ino: Ino) -> Result<Attr>;
    fn setattr(&self, ino: Ino, changes: &SetAttr) -> Result<Attr>;
    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr>;
    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr>;
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr>;
    fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()>;
    fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()>;
    fn rename(&self, dir: Ino, name: &[u8], to: Ino, to_name: &[u8], how: RenameMode)
    -> Result<()>;
    fn acquire(&self, ino: Ino) -> Result<()>;
    fn release(&self, ino: Ino);
    fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()>;
    fn append(&self, ino: Ino, data: &[u8]) -> Result<u64>;
    fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()>;
    fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64>;
    fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()>;
    fn parent(&self, dir: Ino) -> Result<Ino>;
    fn fsync(&self, ino: Ino) -> Result<()>;
    fn maintain(&self) -> Result<()>;
    /// The times of an inode that POSIX leaves open.
    fn loose(&self, ino: Ino) -> Loose;
    /// Free pages, where they are limited.
    fn pages_free(&self) -> Option<u64>;
    /// Inodes in use.
    fn inodes(&self) -> u64;
}

macro_rules! common_calls {
    ($of:ty) => {
        fn root(&self) -> Ino {
            <$of>::root(self)
        }
        fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
            <$of>::lookup(self, dir, name)
        }
        fn getattr(&self, ino: Ino) -> Result<Attr> {
            <$of>::getattr(self, ino)
        }
        fn setattr(&self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
            <$of>::setattr(self, ino, changes)
        }
        fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr> {
            <$of>::create(self, dir, name, new)
        }
        fn symlink(&self, dir: Ino, name: &[u8], to: &[u8], uid: u32, gid: u32) -> Result<Attr> {
            <$of>::symlink(self, dir, name, to, uid, gid)
        }
        fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
            <$of>::readlink(self, ino)
        }
        fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
            <$of>::link(self, ino, dir, name)
        }
        fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
            <$of>::unlink(self, dir, name)
        }
        fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
            <$of>::rmdir(self, dir, name)
        }
        fn rename(
            &self,
            dir: Ino,
            name: &[u8],
            to: Ino,
            to_name: &[u8],
            how: RenameMode,
        ) -> Result<()> {
            <$of>::rename(self, dir, name, to, to_name, how)
        }
        fn acquire(&self, ino: Ino) -> Result<()> {
            <$of>::acquire(self, ino)
        }
        fn release(&self, ino: Ino) {
            <$of>::release(self, ino)
        }
        fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
            <$of>::read(self, ino, offset, into)
        }
        fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
            <$of>::write(self, ino, offset, data)
        }
        fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
            <$of>::append(self, ino, data)
        }
        fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()> {
            <$of>::fallocate(self, ino, how, offset, len)
        }
        fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
            <$of>::seek(self, ino, offset, data)
        }
        fn readdir(
            &self,
            dir: Ino,
            cookie: u64,
            each: &mut dyn FnMut(DirEntry<'_>) -> bool,
        ) -> Result<()> {
            <$of>::readdir(self, dir, cookie, each)
        }
        fn parent(&self, dir: Ino) -> Result<Ino> {
            <$of>::parent(self, dir)
        }
        fn fsync(&self, ino: Ino) -> Result<()> {
            <$of>::fsync(self, ino)
        }
    };
}

impl<M: Medium, H: Host> Fs for Pool<M, H> {
    common_calls!(Pool<M, H>);

    fn maintain(&self) -> Result<()> {
        Pool::<M, H>::maintain(self)
    }

    fn loose(&self, _ino: Ino) -> Loose {
        Loose::default()
    }

    fn pages_free(&self) -> Option<u64> {
        Some(self.statfs().pages_free)
    }

    fn inodes(&self) -> u64 {
        self.statfs().inodes
    }
}

impl Fs for Model {
    common_calls!(Model);

    fn maintain(&self) -> Result<()> {
        Ok(())
    }

    fn loose(&self, ino: Ino) -> Loose {
        Model::loose(self, ino)
    }

    fn pages_free(&self) -> Option<u64> {
        None
    }

    fn inodes(&self) -> u64 {
        Model::inodes(self)
    }
}

/// Whether an error says that an inode or a name is gone.
pub fn is_gone(error: Error) -> bool {
    matches!(error, Error::NotFound | Error::Stale)
}
