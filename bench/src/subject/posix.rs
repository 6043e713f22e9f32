//! A directory, by system calls and nothing around them.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, fsync, ftruncate, mkdirat, openat, renameat};
use rustix::fs::{statat, syncfs, unlinkat};
use rustix::io::{pread, pwrite, write};

use super::mapped::RegionMap;
use crate::calls::{Calls, For, Name};

/// A directory of a file system that is mounted.
pub struct Posix {
    root: OwnedFd,
    path: PathBuf,
    /// Nothing is durable before `fsync` has returned.
    needs_fsync: bool,
}

/// Room for a listing; what other programs use.
const LISTING_BYTES: usize = 32 << 10;

impl Posix {
    /// The directory at `path`.
    ///
    /// # Errors
    /// Where it can't be opened.
    pub fn new(path: &Path, needs_fsync: bool) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { root, path: path.to_owned(), needs_fsync })
    }

    fn open_with(&self, at: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(openat(&self.root, at, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?)
    }
}

impl Calls for Posix {
    type File = OwnedFd;
    type Dir = OwnedFd;
    type Map = RegionMap;

    fn create(&self, at: &Name) -> io::Result<OwnedFd> {
        self.open_with(at.as_c_str(), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)
    }

    fn open(&self, at: &Name, what_for: For) -> io::Result<OwnedFd> {
        let flags = match what_for {
            For::Reading => OFlags::RDONLY,
            For::Writing => OFlags::RDWR,
            For::Appending => OFlags::WRONLY | OFlags::APPEND,
        };
        self.open_with(at.as_c_str(), flags)
    }

    fn open_dir(&self, at: &Name) -> io::Result<OwnedFd> {
        self.open_with(at.as_c_str(), OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn unlink(&self, at: &Name) -> io::Result<()> {
        Ok(unlinkat(&self.root, at.as_c_str(), AtFlags::empty())?)
    }

    fn mkdir(&self, at: &Name) -> io::Result<()> {
        Ok(mkdirat(&self.root, at.as_c_str(), Mode::from_raw_mode(0o755))?)
    }

    fn rmdir(&self, at: &Name) -> io::Result<()> {
        Ok(unlinkat(&self.root, at.as_c_str(), AtFlags::REMOVEDIR)?)
    }

    fn rename(&self, from: &Name, to: &Name) -> io::Result<()> {
        Ok(renameat(&self.root, from.as_c_str(), &self.root, to.as_c_str())?)
    }

    fn stat(&self, at: &Name) -> io::Result<u64> {
        let found = statat(&self.root, at.as_c_str(), AtFlags::empty())?;
        Ok(found.st_size.cast_unsigned())
    }

    fn list(&self, at: &Name) -> io::Result<u64> {
        let dir = self.open_dir(at)?;
        let mut room = [MaybeUninit::<u8>::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(dir, &mut room);
        let mut names = 0;
        while let Some(entry) = listing.next() {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn read_at(&self, file: &OwnedFd, at: u64, into: &mut [u8]) -> io::Result<()> {
        let all = into.len();
        whole(pread(file, into, at)?, all, "read")
    }

    fn write_at(&self, file: &OwnedFd, at: u64, bytes: &[u8]) -> io::Result<()> {
        whole(pwrite(file, bytes, at)?, bytes.len(), "written")
    }

    fn append(&self, file: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
        whole(write(file, bytes)?, bytes.len(), "written")
    }

    fn set_len(&self, file: &OwnedFd, bytes: u64) -> io::Result<()> {
        Ok(ftruncate(file, bytes)?)
    }

    fn persist(&self, file: &OwnedFd) -> io::Result<()> {
        if self.needs_fsync { Ok(fsync(file)?) } else { Ok(()) }
    }

    fn persist_names(&self, dir: &OwnedFd) -> io::Result<()> {
        self.persist(dir)
    }

    fn map(&self, at: &Name) -> io::Result<RegionMap> {
        RegionMap::new(&self.path.join(at.as_path()))
    }

    fn settle(&self) -> io::Result<()> {
        Ok(syncfs(&self.root)?)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// Less than was asked for is not measured: the figure would be of something else.
#[inline]
fn whole(done: usize, asked: usize, what: &str) -> io::Result<()> {
    if done == asked {
        return Ok(());
    }
    let said = format!("only {done} of {asked} bytes were {what}");
    // (What is full takes a part, and says so only to the next one.)
    Err(io::Error::new(io::ErrorKind::WriteZero, said))
}
