//! Operations as values, with a text form that can be printed and replayed.

use std::fmt;

use lode_engine::{Fallocate, Protection, RenameMode, XattrWhen, mode};

use crate::harm::Harm;

/// Permissions of what is made without any given.
pub(crate) const FILE_PERMISSIONS: u32 = 0o644;
pub(crate) const DIRECTORY_PERMISSIONS: u32 = 0o755;

/// A path from the root: names of any bytes but `/` and NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Path(pub Vec<Vec<u8>>);

/// What an operation on an inode works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The inode under a path.
    Path(Path),
    /// The inode that [`Op::Open`] put into this slot; its name may be gone.
    Handle(usize),
}

/// Bytes to write: `len` bytes that follow from `fill`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// How many.
    pub len: u64,
    /// Which; 0 gives zeros.
    pub fill: u64,
}

/// Attributes to set, by number: `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Attrs {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<i64>,
    pub mtime: Option<i64>,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Op {
    /// A file, directory, FIFO, socket or device, by `mode`.
    Create {
        path: Path,
        mode: u32,
        rdev: u64,
    },
    Symlink {
        path: Path,
        target: Vec<u8>,
    },
    Link {
        from: Target,
        to: Path,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        how: RenameMode,
    },
    SetAttr {
        of: Target,
        attrs: Attrs,
    },
    /// As [`Op::Create`], with an extended attribute.
    CreateWith {
        path: Path,
        mode: u32,
        name: Vec<u8>,
        value: Fill,
    },
    /// A regular file without a name, open in a slot; with an extended attribute or without.
    Tmpfile {
        dir: Path,
        slot: usize,
        permissions: u32,
        xattr: Option<(Vec<u8>, Fill)>,
    },
    /// As [`Op::SetAttr`], with an extended attribute.
    SetAttrWith {
        of: Target,
        name: Vec<u8>,
        value: Fill,
        attrs: Attrs,
    },
    /// An extended attribute; no value removes it, `when` it is there.
    SetXattr {
        of: Target,
        name: Vec<u8>,
        value: Option<Fill>,
        when: XattrWhen,
    },
    GetXattr {
        of: Target,
        name: Vec<u8>,
    },
    Write {
        to: Target,
        offset: u64,
        data: Fill,
    },
    Append {
        to: Target,
        data: Fill,
    },
    /// Writes whole sectors, as volumes are written.
    Sectors {
        to: Target,
        offset: u64,
        data: Fill,
    },
    Read {
        from: Target,
        offset: u64,
        len: u64,
    },
    Fallocate {
        of: Target,
        how: Fallocate,
        offset: u64,
        len: u64,
    },
    /// Maps all of a file, until [`Op::Unmap`] or a mount.
    Map {
        of: Target,
    },
    Unmap {
        of: Target,
    },
    /// Stores through a map, written back and fenced.
    Poke {
        to: Target,
        offset: u64,
        data: Fill,
    },
    /// Stores through a map, and ends it: what is stored is not written back, nor fenced.
    Leave {
        to: Target,
        offset: u64,
        data: Fill,
    },
    /// Stages pages of a mapped file, stores into them and commits them.
    Swap {
        to: Target,
        offset: u64,
        data: Fill,
    },
    Stat {
        of: Target,
    },
    Readlink {
        path: Path,
    },
    List {
        path: Path,
    },
    Open {
        path: Path,
        slot: usize,
    },
    Close {
        slot: usize,
    },
    Fsync {
        of: Target,
    },
    /// Memory is lent, where there is any.
    Lend,
    /// The memory that is this part of a file is lent, if it is a chunk.
    LendPart {
        of: Target,
        offset: u64,
    },
    /// One of the chunks that are lent, by number, comes back.
    GiveBack(usize),
    /// Stores into all that is lent.
    Scribble(u64),
    /// Background work.
    Maintain,
    /// Clean unmount and mount.
    Remount,
    /// Mount without an unmount before it.
    Crash,
    /// Clean unmount, growth to the size of the region, and mount.
    Grow,
    /// Clean unmount, another protection level, and mount; no scribble of so many bytes is to reach both copies
    /// of anything.
    Protect(Protection, u64),
    /// A snapshot of this name.
    Snapshot(Vec<u8>),
    /// Its end.
    Drop(Vec<u8>),
    /// Clean unmount, return to a snapshot, and mount.
    Rollback(Vec<u8>),
    /// Clean unmount; what [`crate::receive`] brings is received as a snapshot of this name; mount.
    Receive(Vec<u8>),
    /// The same, given up before its end.
    Abandon(Vec<u8>),
    /// From the next mount on, the host has so many CPUs.
    Cpus(usize),
    /// A line of the pool is damaged, durably.
    Damage(Harm),
    /// All memory can be loaded again: what it holds is rubbish.
    Heal,
    /// A scrub from its beginning to its end.
    Scrub,
}

impl Path {
    /// The root directory.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path from names between slashes.
    pub fn of(text: &str) -> Self {
        let names = text.split('/').filter(|name| !name.is_empty());
        Self(names.map(|name| name.as_bytes().to_vec()).collect())
    }

    /// This path and one more name.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_vec());
        Self(names)
    }
}

impl Op {
    /// The paths that it walks, and whether to the end (or to the directory of the name).
    #[must_use]
    pub fn paths(&self) -> Vec<(&Path, bool)> {
        match self {
            Self::Create { path, .. }
            | Self::CreateWith { path, .. }
            | Self::Symlink { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path } => vec![(path, false)],
            Self::Rename { from, to, .. } => vec![(from, false), (to, false)],
            Self::Link { from: Target::Path(from), to } => vec![(from, true), (to, false)],
            Self::Link { to, .. } => vec![(to, false)],
            Self::SetAttr { of: Target::Path(path), .. }
            | Self::SetAttrWith { of: Target::Path(path), .. }
            | Self::SetXattr { of: Target::Path(path), .. }
            | Self::GetXattr { of: Target::Path(path), .. }
            | Self::Write { to: Target::Path(path), .. }
            | Self::Append { to: Target::Path(path), .. }
            | Self::Sectors { to: Target::Path(path), .. }
            | Self::Map { of: Target::Path(path) }
            | Self::Unmap { of: Target::Path(path) }
            | Self::LendPart { of: Target::Path(path), .. }
            | Self::Poke { to: Target::Path(path), .. }
            | Self::Leave { to: Target::Path(path), .. }
            | Self::Swap { to: Target::Path(path), .. }
            | Self::Read { from: Target::Path(path), .. }
            | Self::Fallocate { of: Target::Path(path), .. }
            | Self::Stat { of: Target::Path(path) }
            | Self::Fsync { of: Target::Path(path) }
            | Self::Readlink { path }
            | Self::List { path }
            | Self::Tmpfile { dir: path, .. }
            | Self::Open { path, .. } => vec![(path, true)],
            _ => Vec::new(),
        }
    }
}

impl Fill {
    /// The bytes. Each 8-byte word tells its place, so that a shifted piece is seen.
    pub fn bytes(&self) -> Vec<u8> {
        if self.fill == 0 {
            return vec![0; self.len as usize];
        }
        let words = (0..self.len.div_ceil(8)).flat_map(|word| {
            crate::rng::mix(self.fill.wrapping_mul(0x1_0000_0001).wrapping_add(word)).to_le_bytes()
        });
        words.take(self.len as usize).collect()
    }
}

/// A name of `len` unusual bytes; the longer ones of a seed begin with the shorter ones.
pub fn odd_name(seed: u64, len: usize) -> Vec<u8> {
    let mut bits = crate::rng::Rng::new(seed);
    let byte = |_| match bits.bits() as u8 {
        0 | b'/' | b'.' => b'x',
        other => other,
    };
    (0..len).map(byte).collect()
}

/// Seeds that generated names use: few, so that a name is met again.
pub(crate) const ODD_SEEDS: u64 = 3;

/// Writes bytes with everything unusual as `%XX`, generated names as `%=SEED.LEN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let len = bytes.len();
    if let Some(seed) = (0..ODD_SEEDS).find(|&seed| len > 3 && odd_name(seed, len) == bytes) {
        return format!("%={seed}.{len}");
    }
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"._-+".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        for name in &self.0 {
            write!(f, "/{}", escape(name))?;
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(path) => path.fmt(f),
            Target::Handle(slot) => write!(f, "@{slot}"),
        }
    }
}

impl fmt::Display for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mode) = self.mode {
            write!(f, " mode={mode:#o}")?;
        }
        let mut put = |key: &str, value: Option<i128>| match value {
            Some(value) => write!(f, " {key}={value}"),
            None => Ok(()),
        };
        put("uid", self.uid.map(i128::from))?;
        put("gid", self.gid.map(i128::from))?;
        put("size", self.size.map(i128::from))?;
        put("atime", self.atime.map(i128::from))?;
        put("mtime", self.mtime.map(i128::from))
    }
}

/// The word for a way to rename.
pub(crate) fn rename_word(how: RenameMode) -> &'static str {
    match how {
        RenameMode::Replace => "replace",
        RenameMode::NoReplace => "noreplace",
        RenameMode::Exchange => "exchange",
    }
}

/// The word for what must be so for an extended attribute to change, with a space before it.
pub(crate) fn when_word(when: XattrWhen) -> &'static str {
    match when {
        XattrWhen::Always => "",
        XattrWhen::Absent => " create",
        XattrWhen::Present => " replace",
    }
}

/// The word for a way to fallocate.
pub(crate) fn fallocate_word(how: Fallocate) -> &'static str {
    match how {
        Fallocate::Allocate { keep_size: false } => "allocate",
        Fallocate::Allocate { keep_size: true } => "allocate-keep",
        Fallocate::Punch => "punch",
        Fallocate::Zero { keep_size: false } => "zero",
        Fallocate::Zero { keep_size: true } => "zero-keep",
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, mode, rdev } => created(f, path, *mode, *rdev),
            Op::Tmpfile { dir, slot, permissions: FILE_PERMISSIONS, xattr: None } => {
                write!(f, "tmpfile {dir} {slot}")
            }
            Op::Tmpfile { dir, slot, permissions, xattr: None } => {
                write!(f, "tmpfile {dir} {slot} {permissions:#o}")
            }
            Op::Tmpfile { dir, slot, permissions, xattr: Some((name, Fill { len, fill })) } => {
                write!(f, "tmpfile {dir} {slot} {permissions:#o} {} {len} {fill}", escape(name))
            }
            Op::Symlink { path, target } => write!(f, "symlink {path} {}", escape(target)),
            Op::Link { from, to } => write!(f, "link {from} {to}"),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Rename { from, to, how: RenameMode::Replace } => write!(f, "rename {from} {to}"),
            Op::Rename { from, to, how } => write!(f, "rename {from} {to} {}", rename_word(*how)),
            Op::SetAttr { of, attrs } => write!(f, "setattr {of}{attrs}"),
            Op::CreateWith { path, mode, name, value: Fill { len, fill } } => {
                write!(f, "create-with {path} {mode:#o} {} {len} {fill}", escape(name))
            }
            Op::SetAttrWith { of, name, value: Fill { len, fill }, attrs } => {
                write!(f, "setattr-with {of} {} {len} {fill}{attrs}", escape(name))
            }
            Op::SetXattr { of, name, value: None, .. } => {
                write!(f, "removexattr {of} {}", escape(name))
            }
            Op::SetXattr { of, name, value: Some(value), when } => {
                let Fill { len, fill } = value;
                write!(f, "setxattr {of} {} {len} {fill}{}", escape(name), when_word(*when))
            }
            Op::GetXattr { of, name } => write!(f, "getxattr {of} {}", escape(name)),
            Op::Write { to, offset, data } => {
                write!(f, "write {to} {offset} {} {}", data.len, data.fill)
            }
            Op::Append { to, data } => write!(f, "append {to} {} {}", data.len, data.fill),
            Op::Sectors { to, offset, data } => {
                write!(f, "sectors {to} {offset} {} {}", data.len, data.fill)
            }
            Op::Map { of } => write!(f, "map {of}"),
            Op::Unmap { of } => write!(f, "unmap {of}"),
            Op::Poke { to, offset, data } => {
                write!(f, "poke {to} {offset} {} {}", data.len, data.fill)
            }
            Op::Leave { to, offset, data } => {
                write!(f, "leave {to} {offset} {} {}", data.len, data.fill)
            }
            Op::Swap { to, offset, data } => {
                write!(f, "swap {to} {offset} {} {}", data.len, data.fill)
            }
            Op::Read { from, offset, len } => write!(f, "read {from} {offset} {len}"),
            Op::Fallocate { of, how, offset, len } => {
                write!(f, "fallocate {of} {} {offset} {len}", fallocate_word(*how))
            }
            Op::Stat { of } => write!(f, "stat {of}"),
            Op::Readlink { path } => write!(f, "readlink {path}"),
            Op::List { path } => write!(f, "list {path}"),
            Op::Open { path, slot } => write!(f, "open {path} {slot}"),
            Op::Close { slot } => write!(f, "close {slot}"),
            Op::Fsync { of } => write!(f, "fsync {of}"),
            Op::Lend => f.write_str("lend"),
            Op::LendPart { of, offset } => write!(f, "lend-part {of} {offset}"),
            Op::GiveBack(number) => write!(f, "give-back {number}"),
            Op::Scribble(fill) => write!(f, "scribble {fill}"),
            Op::Maintain => f.write_str("maintain"),
            Op::Remount => f.write_str("remount"),
            Op::Crash => f.write_str("crash"),
            Op::Grow => f.write_str("grow"),
            Op::Protect(Protection::None, _) => f.write_str("protect none"),
            Op::Protect(level, dead_zone) => write!(f, "protect {} {dead_zone}", level.name()),
            Op::Snapshot(name) => write!(f, "snapshot {}", escape(name)),
            Op::Drop(name) => write!(f, "drop {}", escape(name)),
            Op::Rollback(name) => write!(f, "rollback {}", escape(name)),
            Op::Receive(name) => write!(f, "receive {}", escape(name)),
            Op::Abandon(name) => write!(f, "abandon {}", escape(name)),
            Op::Cpus(count) => write!(f, "cpus {count}"),
            Op::Damage(harm) => write!(f, "damage {harm}"),
            Op::Heal => f.write_str("heal"),
            Op::Scrub => f.write_str("scrub"),
        }
    }
}

/// What is made, as short as it is read.
fn created(f: &mut fmt::Formatter<'_>, path: &Path, mode: u32, rdev: u64) -> fmt::Result {
    match (mode & mode::TYPE, mode & !mode::TYPE) {
        (mode::FILE, FILE_PERMISSIONS) => write!(f, "create {path}"),
        (mode::DIRECTORY, DIRECTORY_PERMISSIONS) => write!(f, "mkdir {path}"),
        (mode::DIRECTORY, permissions) => write!(f, "mkdir {path} {permissions:#o}"),
        _ if rdev == 0 => write!(f, "create {path} {mode:#o}"),
        _ => write!(f, "create {path} {mode:#o} {rdev}"),
    }
}

/// A sequence of operations, one a line.
pub fn print(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("{op}\n")).collect()
}
