//! The calls that a pool and the model have in common.

use std::any::Any;
use std::cell::OnceCell;

pub use lode_engine::{
    Attr, DirEntry, Fallocate, Ino, NewInode, RenameMode, Result, SetAttr, XattrChange,
};
use lode_engine::{Error, Handle, Host, Pool};
use lode_model::{Loose, Model};
use lode_pmem::Medium;

use crate::{Memory, TestHost, harm, lend, maps};

/// What a file system knows of a file that is open.
pub type Held = Box<dyn Any + Send>;

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
    /// Writes whole sectors.
    fn write_sectors(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()>;
    /// The same, of a file that is open for as long as `held` is there, by whatever is known of it.
    fn write_sectors_held(
        &self,
        ino: Ino,
        _held: &OnceCell<Held>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        self.write_sectors(ino, offset, data)
    }
    fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()>;
    /// Maps all of a file.
    fn map(&self, ino: Ino) -> Result<()>;
    fn unmap(&self, ino: Ino) -> Result<()>;
    /// Stores through a map, written back and fenced.
    fn poke(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Stores through a map, and ends it.
    fn leave(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Stages pages, stores these bytes into them and commits them.
    fn swap(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()>;
    fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64>;
    fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()>;
    fn parent(&self, dir: Ino) -> Result<Ino>;
    fn fsync(&self, ino: Ino) -> Result<()>;
    fn setxattr(&self, ino: Ino, change: &XattrChange<'_>) -> Result<()>;
    fn create_with(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr>;
    fn create_nameless(&self, dir: Ino, new: &NewInode, xattrs: &[XattrChange<'_>])
    -> Result<Attr>;
    fn setattr_with(&self, ino: Ino, changes: &SetAttr, xattrs: &[XattrChange<'_>])
    -> Result<Attr>;
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
    fn maintain(&self) -> Result<()>;
    /// The times of an inode that POSIX leaves open.
    fn loose(&self, ino: Ino) -> Loose;
    /// Free pages, where they are limited.
    fn pages_free(&self) -> Option<u64>;
    /// Inodes in use.
    fn inodes(&self) -> u64;
    /// Scrubs all, and makes good what is bad; twice, as nothing is to be found then.
    fn scrub(&self) -> Result<()> {
        Ok(())
    }
    /// Lends memory, where there is any to lend: nothing of it is seen in files.
    fn lend(&self) -> Result<()> {
        Ok(())
    }
    /// Lends a part of a file without a name.
    fn lend_part(&self, _ino: Ino, _offset: u64) -> Result<()> {
        Ok(())
    }
    /// Takes back one of the chunks that are lent.
    fn give_back(&self, _number: usize) -> Result<()> {
        Ok(())
    }
    /// Stores into what is lent.
    fn scribble(&self, _fill: u64) -> Result<()> {
        Ok(())
    }
    fn create_snapshot(&self, _name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    fn delete_snapshot(&self, _name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// All snapshots, the oldest first, and the root directory of each.
    fn snapshots(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        Ok(Vec::new())
    }
}

/// The calls of [`Fs`] that go on to something that has the same ones; all but `lookup`, which is where
/// file systems upon others differ, and those that only some have.
#[macro_export]
macro_rules! forward_calls {
    ($self:ident => $to:expr) => {
        $crate::forward_calls! { @each $self => $to;
            fn root() -> $crate::fs::Ino;
            fn getattr(ino: $crate::fs::Ino) -> $crate::fs::Result<$crate::fs::Attr>;
            fn setattr(ino: $crate::fs::Ino, changes: &$crate::fs::SetAttr)
                -> $crate::fs::Result<$crate::fs::Attr>;
            fn create(dir: $crate::fs::Ino, name: &[u8], new: &$crate::fs::NewInode)
                -> $crate::fs::Result<$crate::fs::Attr>;
            fn symlink(dir: $crate::fs::Ino, name: &[u8], to: &[u8], uid: u32, gid: u32)
                -> $crate::fs::Result<$crate::fs::Attr>;
            fn readlink(ino: $crate::fs::Ino) -> $crate::fs::Result<Vec<u8>>;
            fn link(ino: $crate::fs::Ino, dir: $crate::fs::Ino, name: &[u8])
                -> $crate::fs::Result<$crate::fs::Attr>;
            fn unlink(dir: $crate::fs::Ino, name: &[u8]) -> $crate::fs::Result<()>;
            fn rmdir(dir: $crate::fs::Ino, name: &[u8]) -> $crate::fs::Result<()>;
            fn rename(
                dir: $crate::fs::Ino,
                name: &[u8],
                to: $crate::fs::Ino,
                to_name: &[u8],
                how: $crate::fs::RenameMode,
            ) -> $crate::fs::Result<()>;
            fn acquire(ino: $crate::fs::Ino) -> $crate::fs::Result<()>;
            fn release(ino: $crate::fs::Ino) -> ();
            fn read(ino: $crate::fs::Ino, offset: u64, into: &mut [u8]) -> $crate::fs::Result<usize>;
            fn write(ino: $crate::fs::Ino, offset: u64, data: &[u8]) -> $crate::fs::Result<()>;
            fn append(ino: $crate::fs::Ino, data: &[u8]) -> $crate::fs::Result<u64>;
            fn write_sectors(ino: $crate::fs::Ino, offset: u64, data: &[u8])
                -> $crate::fs::Result<()>;
            fn fallocate(
                ino: $crate::fs::Ino,
                how: $crate::fs::Fallocate,
                offset: u64,
                len: u64,
            ) -> $crate::fs::Result<()>;
            fn seek(ino: $crate::fs::Ino, offset: u64, data: bool) -> $crate::fs::Result<u64>;
            fn readdir(
                dir: $crate::fs::Ino,
                cookie: u64,
                each: &mut dyn FnMut($crate::fs::DirEntry<'_>) -> bool,
            ) -> $crate::fs::Result<()>;
            fn parent(dir: $crate::fs::Ino) -> $crate::fs::Result<$crate::fs::Ino>;
            fn fsync(ino: $crate::fs::Ino) -> $crate::fs::Result<()>;
            fn setxattr(ino: $crate::fs::Ino, change: &$crate::fs::XattrChange<'_>)
                -> $crate::fs::Result<()>;
            fn create_with(
                dir: $crate::fs::Ino,
                name: &[u8],
                new: &$crate::fs::NewInode,
                xattrs: &[$crate::fs::XattrChange<'_>],
            ) -> $crate::fs::Result<$crate::fs::Attr>;
            fn create_nameless(
                dir: $crate::fs::Ino,
                new: &$crate::fs::NewInode,
                xattrs: &[$crate::fs::XattrChange<'_>],
            ) -> $crate::fs::Result<$crate::fs::Attr>;
            fn setattr_with(
                ino: $crate::fs::Ino,
                changes: &$crate::fs::SetAttr,
                xattrs: &[$crate::fs::XattrChange<'_>],
            ) -> $crate::fs::Result<$crate::fs::Attr>;
            fn getxattr(ino: $crate::fs::Ino, name: &[u8]) -> $crate::fs::Result<Vec<u8>>;
            fn listxattr(ino: $crate::fs::Ino) -> $crate::fs::Result<Vec<Vec<u8>>>;
        }
    };
    (@each $self:ident => $to:expr;
        $(fn $call:ident($($name:ident: $type:ty),* $(,)?) -> $returns:ty;)*) => {
        $(fn $call(&$self, $($name: $type),*) -> $returns {
            $to.$call($($name),*)
        })*
    };
}

/// The calls of [`Fs`] about maps, that go on to something that has the same ones.
#[macro_export]
macro_rules! forward_maps {
    ($self:ident => $type:ty, $to:expr) => {
        fn map(&$self, ino: $crate::fs::Ino) -> $crate::fs::Result<()> {
            <$type>::map($to, ino)
        }
        fn unmap(&$self, ino: $crate::fs::Ino) -> $crate::fs::Result<()> {
            <$type>::unmap($to, ino)
        }
        fn poke(&$self, ino: $crate::fs::Ino, at: u64, bytes: &[u8]) -> $crate::fs::Result<()> {
            <$type>::poke($to, ino, at, bytes)
        }
        fn leave(&$self, ino: $crate::fs::Ino, at: u64, bytes: &[u8]) -> $crate::fs::Result<()> {
            <$type>::leave($to, ino, at, bytes)
        }
        fn swap(&$self, ino: $crate::fs::Ino, at: u64, bytes: &[u8]) -> $crate::fs::Result<()> {
            <$type>::swap($to, ino, at, bytes)
        }
    };
}

impl<M: Medium, H: Host> Fs for Pool<M, H> {
    forward_calls!(self => self);

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        Pool::<M, H>::lookup(self, dir, name)
    }

    fn write_sectors_held(
        &self,
        ino: Ino,
        held: &OnceCell<Held>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        // (It stays open by who has opened it: the handle ends nothing.)
        if held.get().is_none() {
            let _ = held.set(Box::new(self.take_over(ino)?));
        }
        let handle = held.get().and_then(|held| held.downcast_ref::<Handle<H>>());
        Pool::write_sectors_held(self, handle.ok_or(Error::Invalid)?, offset, data)
    }

    fn map(&self, ino: Ino) -> Result<()> {
        maps::map(self, ino)
    }

    fn unmap(&self, ino: Ino) -> Result<()> {
        maps::unmap(self, ino)
    }

    fn poke(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        maps::poke(self, ino, offset, bytes)
    }

    fn leave(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        maps::leave(self, ino, offset, bytes)
    }

    fn swap(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        maps::swap(self, ino, offset, bytes)
    }

    fn lend(&self) -> Result<()> {
        lend::lend(self)
    }

    fn lend_part(&self, ino: Ino, offset: u64) -> Result<()> {
        lend::lend_part(self, ino, offset)
    }

    fn give_back(&self, number: usize) -> Result<()> {
        lend::give_back(self, number)
    }

    fn scribble(&self, fill: u64) -> Result<()> {
        lend::scribble(self, fill)
    }

    fn maintain(&self) -> Result<()> {
        Pool::<M, H>::maintain(self)
    }

    fn scrub(&self) -> Result<()> {
        harm::scrub(self)
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

    fn create_snapshot(&self, name: &[u8]) -> Result<()> {
        Pool::<M, H>::create_snapshot(self, name)
    }

    fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        Pool::<M, H>::delete_snapshot(self, name)
    }

    fn snapshots(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        let all = Pool::<M, H>::snapshots(self)?.into_iter();
        all.map(|it| self.snapshot_root(&it.name).map(|root| (it.name, root))).collect()
    }
}

impl Fs for Model {
    forward_calls!(self => self);

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        Model::lookup(self, dir, name)
    }

    forward_maps!(self => Model, self);

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

    fn create_snapshot(&self, name: &[u8]) -> Result<()> {
        Model::create_snapshot(self, name)
    }

    fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        Model::delete_snapshot(self, name)
    }

    fn snapshots(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        Ok(Model::snapshots(self))
    }
}

/// Whether an error says that an inode or a name is gone.
pub fn is_gone(error: Error) -> bool {
    matches!(error, Error::NotFound | Error::Stale)
}
