//! The operations, done to a directory by system calls.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use lode_engine::{Fallocate, RenameMode, XattrWhen, mode};
use lode_pmem::{FlushStrategy, Mapped, Medium, RegionOptions, WindowMode};
use rustix::fs as sys;

use crate::execute::Value;
use crate::op::{Attrs, Fill, Op, Path, Target};

const PAGE: u64 = 4096;

/// What a file system under a directory can do that another can't.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Can {
    /// `FALLOC_FL_ZERO_RANGE`; without it, punching and growing is the same.
    pub zero_range: bool,
    /// Every other write inside a file goes through a shared mapping.
    pub mapped_writes: bool,
}

/// A directory as the root of a tree.
pub struct Directory {
    root: PathBuf,
    can: Can,
    open: BTreeMap<usize, File>,
    writes: u64,
}

impl Directory {
    /// The tree in `root`, which exists. Changing owners and making devices needs root.
    pub fn new(root: PathBuf, can: Can) -> Self {
        Self { root, can, open: BTreeMap::new(), writes: 0 }
    }

    /// Closes what operations opened.
    pub fn close_all(&mut self) {
        self.open.clear();
    }

    /// Where a path is.
    pub fn at(&self, path: &Path) -> PathBuf {
        path.0.iter().fold(self.root.clone(), |at, name| at.join(OsStr::from_bytes(name)))
    }

    fn file(&self, target: &Target) -> io::Result<File> {
        match target {
            Target::Path(path) => {
                let path = self.at(path);
                // A symbolic link is not followed, a FIFO does not block: both then fail.
                let flags = sys::OFlags::RDWR | sys::OFlags::NOFOLLOW | sys::OFlags::NONBLOCK;
                let kind = std::fs::symlink_metadata(&path)?.file_type();
                if !kind.is_file() {
                    return Err(io::Error::from_raw_os_error(22));
                }
                Ok(sys::open(&path, flags, sys::Mode::empty())?.into())
            }
            Target::Handle(slot) => {
                let file = self.open.get(slot).ok_or(io::Error::from_raw_os_error(22))?;
                file.try_clone()
            }
        }
    }

    fn data_file(&self, target: &Target) -> io::Result<File> {
        let file = self.file(target)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from_raw_os_error(22)) }
    }

    fn stat(&self, target: &Target) -> io::Result<Metadata> {
        match target {
            Target::Path(path) => std::fs::symlink_metadata(self.at(path)),
            Target::Handle(_) => self.file(target)?.metadata(),
        }
    }

    /// Does an operation.
    pub fn apply(&mut self, op: &Op) -> io::Result<Value> {
        match op {
            Op::Create { path, mode, rdev } => self.create(path, *mode, *rdev),
            Op::Symlink { path, target } => {
                let at = self.at(path);
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &at)?;
                std::os::unix::fs::lchown(&at, Some(3), Some(5))?;
                self.value(&Target::Path(path.clone()))
            }
            Op::Tmpfile { dir, slot, permissions, xattr: None } => {
                let flags = sys::OFlags::TMPFILE | sys::OFlags::RDWR;
                let file = File::from(sys::open(self.at(dir), flags, sys::Mode::RUSR)?);
                sys::fchown(&file, Some(sys::Uid::from_raw(3)), Some(sys::Gid::from_raw(5)))?;
                sys::fchmod(&file, sys::Mode::from_raw_mode(*permissions))?;
                self.open.insert(*slot, file);
                self.value(&Target::Handle(*slot))
            }
            Op::Link { from, to } => {
                let (at, flags) = match from {
                    Target::Path(path) => (self.at(path), sys::AtFlags::empty()),
                    Target::Handle(_) => (self.place(from)?, sys::AtFlags::SYMLINK_FOLLOW),
                };
                sys::linkat(sys::CWD, at, sys::CWD, self.at(to), flags)?;
                self.value(&Target::Path(to.clone()))
            }
            Op::Unlink { path } => done(sys::unlink(self.at(path))),
            Op::Rmdir { path } => done(sys::rmdir(self.at(path))),
            Op::Rename { from, to, how } => {
                let flags = match how {
                    RenameMode::Replace => sys::RenameFlags::empty(),
                    RenameMode::NoReplace => sys::RenameFlags::NOREPLACE,
                    RenameMode::Exchange => sys::RenameFlags::EXCHANGE,
                };
                done(sys::renameat_with(sys::CWD, self.at(from), sys::CWD, self.at(to), flags))
            }
            Op::Stat { of } => self.value(of),
            Op::Readlink { path } => {
                Ok(Value::Bytes(std::fs::read_link(self.at(path))?.into_os_string().into_vec()))
            }
            Op::List { path } => self.list(path).map(Value::Names),
            Op::Open { path, slot } => {
                let file = self.file(&Target::Path(path.clone()))?;
                self.open.insert(*slot, file);
                Ok(Value::Done)
            }
            Op::Close { slot } => {
                self.open.remove(slot).ok_or(io::Error::from_raw_os_error(22))?;
                Ok(Value::Done)
            }
            _ => self.apply_to_file(op),
        }
    }

    fn create(&self, path: &Path, bits: u32, rdev: u64) -> io::Result<Value> {
        let at = self.at(path);
        let permissions = sys::Mode::from_raw_mode(bits & 0o777);
        match bits & mode::TYPE {
            mode::DIRECTORY => sys::mkdir(&at, permissions)?,
            kind => {
                let kind = sys::FileType::from_raw_mode(kind);
                let device = sys::makedev((rdev >> 32) as u32, rdev as u32);
                sys::mknodat(sys::CWD, &at, kind, permissions, device)?;
            }
        }
        std::os::unix::fs::lchown(&at, Some(3), Some(5))?;
        std::fs::set_permissions(&at, PermissionsExt::from_mode(bits & 0o777))?;
        self.value(&Target::Path(path.clone()))
    }

    fn apply_to_file(&mut self, op: &Op) -> io::Result<Value> {
        match op {
            Op::SetAttr { of, attrs } => self.setattr(of, attrs),
            Op::SetXattr { of, name, value, when } => {
                self.setxattr(of, OsStr::from_bytes(name), *value, *when)
            }
            Op::GetXattr { of, name } => {
                let mut value = vec![0; 1 << 16];
                let (at, name) = (self.place(of)?, OsStr::from_bytes(name));
                let len = match of {
                    Target::Path(_) => sys::lgetxattr(&at, name, &mut value[..])?,
                    Target::Handle(_) => sys::getxattr(&at, name, &mut value[..])?,
                };
                value.truncate(len);
                Ok(Value::Bytes(value))
            }
            Op::Write { to, offset, data } => self.write(to, *offset, &data.bytes()),
            Op::Append { to, data } => {
                let file = self.data_file(to)?;
                let size = file.metadata()?.len();
                file.write_all_at(&data.bytes(), size)?;
                Ok(Value::Offset(size))
            }
            Op::Read { from, offset, len } => {
                let mut bytes = vec![0; *len as usize];
                let got = self.data_file(from)?.read_at(&mut bytes, *offset)?;
                bytes.truncate(got);
                Ok(Value::Bytes(bytes))
            }
            Op::Fallocate { of, how, offset, len } => {
                let file = self.data_file(of)?;
                self.fallocate(&file, *how, *offset, *len).map(|()| Value::Done)
            }
            Op::Fsync { of } => self.stat(of).map(|_| Value::Done),
            _ => Err(io::Error::from_raw_os_error(22)),
        }
    }

    fn write(&mut self, to: &Target, offset: u64, bytes: &[u8]) -> io::Result<Value> {
        let file = self.data_file(to)?;
        self.writes += 1;
        let mapped = self.can.mapped_writes && self.writes.is_multiple_of(2);
        let pages = file.metadata()?.len() / PAGE * PAGE;
        if mapped && offset + bytes.len() as u64 <= pages {
            store_mapped(&self.place(to)?, offset, bytes)?;
        } else {
            file.write_all_at(bytes, offset)?;
        }
        Ok(Value::Done)
    }

    fn fallocate(&self, file: &File, how: Fallocate, offset: u64, len: u64) -> io::Result<()> {
        use sys::FallocateFlags as Flags;
        let punch = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
        match how {
            Fallocate::Allocate { keep_size: false } => {
                sys::fallocate(file, Flags::empty(), offset, len)?
            }
            Fallocate::Allocate { keep_size: true } => {
                sys::fallocate(file, Flags::KEEP_SIZE, offset, len)?
            }
            Fallocate::Zero { keep_size } if self.can.zero_range => {
                let keep = if keep_size { Flags::KEEP_SIZE } else { Flags::empty() };
                sys::fallocate(file, Flags::ZERO_RANGE | keep, offset, len)?
            }
            Fallocate::Punch | Fallocate::Zero { keep_size: true } => {
                sys::fallocate(file, punch, offset, len)?
            }
            Fallocate::Zero { keep_size: false } => {
                sys::fallocate(file, punch, offset, len)?;
                if file.metadata()?.len() < offset + len {
                    file.set_len(offset + len)?;
                }
            }
        }
        Ok(())
    }

    fn place(&self, of: &Target) -> io::Result<PathBuf> {
        match of {
            Target::Path(path) => Ok(self.at(path)),
            Target::Handle(slot) => {
                let file = self.open.get(slot).ok_or(io::Error::from_raw_os_error(22))?;
                Ok(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
            }
        }
    }

    /// All extended attributes that tests set, sorted.
    pub fn xattrs(&self, path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let at = self.at(path);
        let mut buffer = vec![0; 1 << 16];
        let len = sys::llistxattr(&at, &mut buffer[..])?;
        let mut found = Vec::new();
        for name in buffer[..len].split(|byte| *byte == 0).filter(|name| is_ours(name)) {
            let mut value = vec![0; 1 << 16];
            let len = sys::lgetxattr(&at, OsStr::from_bytes(name), &mut value[..])?;
            value.truncate(len);
            found.push((name.to_vec(), value));
        }
        found.sort();
        Ok(found)
    }

    fn setxattr(
        &self,
        of: &Target,
        name: &OsStr,
        value: Option<Fill>,
        when: XattrWhen,
    ) -> io::Result<Value> {
        let at = self.place(of)?;
        let flags = match when {
            XattrWhen::Always => sys::XattrFlags::empty(),
            XattrWhen::Absent => sys::XattrFlags::CREATE,
            XattrWhen::Present => sys::XattrFlags::REPLACE,
        };
        done(match (value.map(|value| value.bytes()), of) {
            (Some(value), Target::Path(_)) => sys::lsetxattr(&at, name, &value, flags),
            (Some(value), Target::Handle(_)) => sys::setxattr(&at, name, &value, flags),
            (None, Target::Path(_)) => sys::lremovexattr(&at, name),
            (None, Target::Handle(_)) => sys::removexattr(&at, name),
        })
    }

    fn setattr(&self, of: &Target, attrs: &Attrs) -> io::Result<Value> {
        let at = self.place(of)?;
        let metadata = self.stat(of)?;
        if let Some(size) = attrs.size {
            self.data_file(of)?.set_len(size)?;
        }
        // The mode of a symbolic link can't be changed in Linux; the test does not ask.
        if let Some(bits) = attrs.mode
            && !metadata.file_type().is_symlink()
        {
            std::fs::set_permissions(&at, PermissionsExt::from_mode(bits))?;
        }
        let follow = matches!(of, Target::Handle(_));
        if attrs.uid.is_some() || attrs.gid.is_some() {
            let chown = if follow { std::os::unix::fs::chown } else { std::os::unix::fs::lchown };
            chown(&at, attrs.uid, attrs.gid)?;
        }
        let time = |ns: Option<i64>| match ns {
            Some(ns) => sys::Timespec {
                tv_sec: ns.div_euclid(1_000_000_000),
                tv_nsec: ns.rem_euclid(1_000_000_000),
            },
            None => sys::Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
        };
        if attrs.atime.is_some() || attrs.mtime.is_some() {
            let times = sys::Timestamps {
                last_access: time(attrs.atime),
                last_modification: time(attrs.mtime),
            };
            let flags = if follow { sys::AtFlags::empty() } else { sys::AtFlags::SYMLINK_NOFOLLOW };
            sys::utimensat(sys::CWD, &at, &times, flags)?;
        }
        self.value(of)
    }

    fn value(&self, of: &Target) -> io::Result<Value> {
        Ok(value(&self.stat(of)?))
    }

    /// A listing, sorted.
    pub fn list(&self, path: &Path) -> io::Result<Vec<(Vec<u8>, u32)>> {
        let mut names = Vec::new();
        let at = self.at(path);
        if std::fs::symlink_metadata(&at)?.is_symlink() {
            return Err(io::Error::from_raw_os_error(20));
        }
        for entry in std::fs::read_dir(at)? {
            let entry = entry?;
            names.push((entry.file_name().into_vec(), kind_of(&entry.file_type()?)));
        }
        names.sort();
        Ok(names)
    }
}

/// Stores through a shared mapping of the whole pages of a file, and writes them back.
fn store_mapped(file: &std::path::Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let options = RegionOptions::new().flush(FlushStrategy::Msync).windows(WindowMode::None);
    let region = Mapped::open(file, &options).map_err(io::Error::other)?;
    let mut window = region.open();
    let (mut at, mut left) = (offset, bytes);
    while !left.is_empty() {
        // A store is one of a word, or of a part of one.
        let (piece, rest) = left.split_at(left.len().min(8 - at as usize % 8));
        region.store_bytes(&mut window, at, piece);
        (at, left) = (at + piece.len() as u64, rest);
    }
    for line in offset / 64..(offset + bytes.len() as u64).div_ceil(64) {
        region.write_back(&mut window, line * 64);
    }
    Medium::close(&region, &mut window);
    region.fence().map_err(io::Error::other)
}

/// Whether a test may have set this attribute: not the system by itself.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"user.")
}

fn done(result: rustix::io::Result<()>) -> io::Result<Value> {
    Ok(result.map(|()| Value::Done)?)
}

/// Type bits of a mode.
pub(super) fn kind_of(kind: &std::fs::FileType) -> u32 {
    match () {
        () if kind.is_dir() => mode::DIRECTORY,
        () if kind.is_symlink() => mode::SYMLINK,
        () if kind.is_fifo() => mode::FIFO,
        () if kind.is_socket() => mode::SOCKET,
        () if kind.is_block_device() => mode::BLOCK,
        () if kind.is_char_device() => mode::CHARACTER,
        () => mode::FILE,
    }
}

/// What of `stat` is compared.
pub(super) fn value(metadata: &Metadata) -> Value {
    let device = metadata.rdev();
    Value::Attr {
        mode: metadata.mode(),
        links: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: (u64::from(sys::major(device)) << 32) | u64::from(sys::minor(device)),
        size: if metadata.is_dir() { 0 } else { metadata.len() },
    }
}
