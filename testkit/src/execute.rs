//! Does an operation to a file system, by path, and says what came of it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use lode_engine::{
    Attr, Error, Fallocate, Ino, NewInode, Result, SetAttr, XattrChange, XattrWhen, mode,
};

use crate::fs::{Fs, Held};
use crate::op::{Attrs, Op, Path, Target};

/// What an operation gave, without what may differ between two right file systems
/// (inode numbers, order of listings).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Value {
    Done,
    Attr { mode: u32, links: u32, uid: u32, gid: u32, rdev: u64, size: u64 },
    Bytes(Vec<u8>),
    Names(Vec<(Vec<u8>, u32)>),
    Offset(u64),
}

/// The inodes that a sequence holds open.
pub type Handles = BTreeMap<usize, Open>;

/// One of them.
pub struct Open {
    ino: Ino,
    /// What the file system knows of it, once that was of use: what is written by sectors is written by that.
    held: OnceCell<Held>,
}

impl Open {
    fn new(ino: Ino) -> Self {
        Self { ino, held: OnceCell::new() }
    }

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

/// (Of what is known of it another one finds out by itself.)
impl Clone for Open {
    fn clone(&self) -> Self {
        Self::new(self.ino)
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ino.fmt(f)
    }
}

/// Bytes that a value shows when printed in a failure.
const SHOWN: usize = 40;

impl Value {
    /// What of `attr` must be equal. The size of a directory is its own affair.
    pub fn of(attr: &Attr) -> Self {
        let is_dir = attr.mode & mode::TYPE == mode::DIRECTORY;
        Value::Attr {
            mode: attr.mode,
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: if is_dir { 0 } else { attr.size },
        }
    }

    /// What is compared of an inode, by name; nothing of other values.
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        let Value::Attr { mode, links, uid, gid, rdev, size } = self else { return Vec::new() };
        let numbers = [("links", u64::from(*links)), ("owner", u64::from(*uid))];
        let more = [("group", u64::from(*gid)), ("device", *rdev), ("size", *size)];
        let named = numbers.into_iter().chain(more);
        let named = named.map(|(name, number)| (name, number.to_string()));
        std::iter::once(("mode", format!("{mode:#o}"))).chain(named).collect()
    }

    /// Text for a failure report, cut where long.
    pub fn show(&self) -> String {
        match self {
            Value::Attr { .. } => {
                let all = self.attributes();
                let all: Vec<_> =
                    all.iter().map(|(name, value)| format!("{name} {value}")).collect();
                all.join(", ")
            }
            Value::Bytes(bytes) if bytes.len() > SHOWN => {
                let crc = lode_pmem::crc32c(0, bytes);
                format!("{} bytes, crc {crc:08x}, {:02x?}..", bytes.len(), &bytes[..SHOWN])
            }
            other => format!("{other:?}"),
        }
    }
}

/// The inode a path leads to; symbolic links are not followed.
pub fn resolve(fs: &dyn Fs, path: &Path) -> Result<Ino> {
    walk(fs, &path.0)
}

/// The same, from this directory on.
pub fn resolve_from(fs: &dyn Fs, root: Ino, path: &Path) -> Result<Ino> {
    path.0.iter().try_fold(root, |ino, name| Ok(fs.lookup(ino, name)?.ino))
}

fn walk(fs: &dyn Fs, names: &[Vec<u8>]) -> Result<Ino> {
    names.iter().try_fold(fs.root(), |ino, name| Ok(fs.lookup(ino, name)?.ino))
}

/// Does `op`. The operations that work on the file system as a whole (remount, crash), on the host (cpus), and on the
/// memory (damage, heal), are the caller's.
pub fn execute(fs: &dyn Fs, handles: &mut Handles, op: &Op) -> Result<Value> {
    match op {
        Op::Open { path, slot } => {
            let ino = resolve(fs, path)?;
            fs.acquire(ino)?;
            if let Some(old) = handles.insert(*slot, Open::new(ino)) {
                fs.release(old.ino);
            }
            Ok(Value::Done)
        }
        Op::Tmpfile { dir, slot, permissions, xattr } => {
            let dir = resolve(fs, dir)?;
            let new = NewInode { mode: mode::FILE | permissions, uid: 3, gid: 5, rdev: 0 };
            let value = xattr.as_ref().map(|(_, value)| value.bytes());
            let xattr = xattr.as_ref().zip(value.as_deref());
            let xattrs: Vec<_> =
                xattr.map(|((name, _), value)| set_to(name, value)).into_iter().collect();
            let attr = fs.create_nameless(dir, &new, &xattrs)?;
            if let Some(old) = handles.insert(*slot, Open::new(attr.ino)) {
                fs.release(old.ino);
            }
            Ok(Value::of(&attr))
        }
        Op::Close { slot } => {
            fs.release(handles.remove(slot).ok_or(Error::Invalid)?.ino);
            Ok(Value::Done)
        }
        Op::Lend => fs.lend().map(|()| Value::Done),
        Op::LendPart { of, offset } => {
            fs.lend_part(find(fs, handles, of)?, *offset).map(|()| Value::Done)
        }
        Op::GiveBack(number) => fs.give_back(*number).map(|()| Value::Done),
        Op::Scribble(fill) => fs.scribble(*fill).map(|()| Value::Done),
        Op::Maintain => fs.maintain().map(|()| Value::Done),
        Op::Snapshot(name) => fs.create_snapshot(name).map(|()| Value::Done),
        Op::Drop(name) => fs.delete_snapshot(name).map(|()| Value::Done),
        Op::Remount | Op::Crash | Op::Grow | Op::Protect(..) | Op::Cpus(_) => Ok(Value::Done),
        Op::Rollback(_) | Op::Receive(_) | Op::Abandon(_) => Ok(Value::Done),
        Op::Damage(_) | Op::Heal => Ok(Value::Done),
        Op::Scrub => fs.scrub().map(|()| Value::Done),
        Op::Create { .. } | Op::CreateWith { .. } | Op::Symlink { .. } | Op::Link { .. } => {
            add_name(fs, handles, op)
        }
        Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } => change_names(fs, op),
        _ => on_inode(fs, handles, op),
    }
}

fn add_name(fs: &dyn Fs, handles: &Handles, op: &Op) -> Result<Value> {
    let attr = match op {
        Op::Create { path, mode, rdev } => {
            let (dir, name) = parent(fs, path)?;
            fs.create(dir, name, &NewInode { mode: *mode, uid: 3, gid: 5, rdev: *rdev })?
        }
        Op::CreateWith { path, mode, name: xattr, value } => {
            let (dir, name) = parent(fs, path)?;
            let new = NewInode { mode: *mode, uid: 3, gid: 5, rdev: 0 };
            fs.create_with(dir, name, &new, &[set_to(xattr, &value.bytes())])?
        }
        Op::Symlink { path, target } => {
            let (dir, name) = parent(fs, path)?;
            fs.symlink(dir, name, target, 3, 5)?
        }
        Op::Link { from, to } => {
            let ino = find(fs, handles, from)?;
            let (dir, name) = parent(fs, to)?;
            fs.link(ino, dir, name)?
        }
        _ => return Err(Error::Invalid),
    };
    Ok(Value::of(&attr))
}

fn change_names(fs: &dyn Fs, op: &Op) -> Result<Value> {
    match op {
        Op::Unlink { path } => {
            let (dir, name) = parent(fs, path)?;
            fs.unlink(dir, name)?;
        }
        Op::Rmdir { path } => {
            let (dir, name) = parent(fs, path)?;
            fs.rmdir(dir, name)?;
        }
        Op::Rename { from, to, how } => {
            let (dir, name) = parent(fs, from)?;
            // A kernel walks the first path to its end before it begins the second.
            if fs.getattr(dir)?.mode & mode::TYPE != mode::DIRECTORY {
                return Err(Error::NotDirectory);
            }
            let (to_dir, to_name) = parent(fs, to)?;
            fs.rename(dir, name, to_dir, to_name, *how)?;
        }
        _ => return Err(Error::Invalid),
    }
    Ok(Value::Done)
}

fn on_inode(fs: &dyn Fs, handles: &Handles, op: &Op) -> Result<Value> {
    match op {
        Op::Stat { of } => fs.getattr(find(fs, handles, of)?).map(|attr| Value::of(&attr)),
        Op::Readlink { path } => {
            let ino = resolve(fs, path)?;
            fs.readlink(ino).map(Value::Bytes)
        }
        Op::List { path } => list(fs, resolve(fs, path)?).map(Value::Names),
        Op::Fsync { of } => fs.fsync(find(fs, handles, of)?).map(|()| Value::Done),
        Op::SetAttr { of, attrs } => {
            let ino = find(fs, handles, of)?;
            let changed = fs.setattr(ino, &set_attr(attrs)).map(|attr| Value::of(&attr));
            if attrs.size.is_some() { data_result(fs, ino, changed) } else { changed }
        }
        Op::SetAttrWith { of, name, value, attrs } => {
            let (ino, value) = (find(fs, handles, of)?, value.bytes());
            let changed = fs.setattr_with(ino, &set_attr(attrs), &[set_to(name, &value)]);
            let changed = changed.map(|attr| Value::of(&attr));
            if attrs.size.is_some() { data_result(fs, ino, changed) } else { changed }
        }
        Op::SetXattr { of, name, value, when } => {
            let ino = find(fs, handles, of)?;
            let value = value.map(|value| value.bytes());
            let change = XattrChange { name, value: value.as_deref(), when: *when };
            fs.setxattr(ino, &change).map(|()| Value::Done)
        }
        Op::GetXattr { of, name } => {
            let ino = find(fs, handles, of)?;
            fs.getxattr(ino, name).map(Value::Bytes)
        }
        Op::Write { to, offset, data } => {
            let ino = find(fs, handles, to)?;
            let written = fs.write(ino, *offset, &data.bytes());
            data_result(fs, ino, written.map(|()| Value::Done))
        }
        Op::Append { to, data } => {
            let ino = find(fs, handles, to)?;
            data_result(fs, ino, fs.append(ino, &data.bytes()).map(Value::Offset))
        }
        Op::Sectors { to, offset, data } => {
            let ino = find(fs, handles, to)?;
            let held = match to {
                Target::Path(_) => None,
                Target::Handle(slot) => handles.get(slot).map(|open| &open.held),
            };
            let written = match held {
                None => fs.write_sectors(ino, *offset, &data.bytes()),
                Some(held) => fs.write_sectors_held(ino, held, *offset, &data.bytes()),
            };
            data_result(fs, ino, written.map(|()| Value::Done))
        }
        Op::Map { of } => mapped(fs, find(fs, handles, of)?, |ino| fs.map(ino)),
        Op::Unmap { of } => mapped(fs, find(fs, handles, of)?, |ino| fs.unmap(ino)),
        Op::Poke { to, offset, data } => {
            mapped(fs, find(fs, handles, to)?, |ino| fs.poke(ino, *offset, &data.bytes()))
        }
        Op::Leave { to, offset, data } => {
            mapped(fs, find(fs, handles, to)?, |ino| fs.leave(ino, *offset, &data.bytes()))
        }
        Op::Swap { to, offset, data } => {
            mapped(fs, find(fs, handles, to)?, |ino| fs.swap(ino, *offset, &data.bytes()))
        }
        Op::Read { from, offset, len } => {
            let ino = find(fs, handles, from)?;
            let mut bytes = vec![0xA5; *len as usize];
            let read = fs.read(ino, *offset, &mut bytes).map(|got| {
                bytes.truncate(got);
                Value::Bytes(bytes)
            });
            data_result(fs, ino, read)
        }
        Op::Fallocate { of, how, offset, len } => {
            let ino = find(fs, handles, of)?;
            data_result(fs, ino, fallocate(fs, ino, *how, *offset, *len))
        }
        _ => Err(Error::Invalid),
    }
}

fn mapped(fs: &dyn Fs, ino: Ino, work: impl FnOnce(Ino) -> Result<()>) -> Result<Value> {
    data_result(fs, ino, work(ino).map(|()| Value::Done))
}

fn fallocate(fs: &dyn Fs, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<Value> {
    fs.fallocate(ino, how, offset, len).map(|()| Value::Done)
}

/// Which error data operations give for what is not a file differs by caller; that they
/// fail does not.
fn data_result(fs: &dyn Fs, ino: Ino, result: Result<Value>) -> Result<Value> {
    match result {
        Err(_) if fs.getattr(ino)?.mode & mode::TYPE != mode::FILE => Err(Error::Invalid),
        other => other,
    }
}

/// An extended attribute with this value, whatever it was.
fn set_to<'a>(name: &'a [u8], value: &'a [u8]) -> XattrChange<'a> {
    XattrChange { name, value: Some(value), when: XattrWhen::Always }
}

/// The whole listing of a directory, sorted.
pub fn list(fs: &dyn Fs, dir: Ino) -> Result<Vec<(Vec<u8>, u32)>> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.kind));
        true
    })?;
    names.sort();
    Ok(names)
}

/// The changes that `attrs` ask for.
pub fn set_attr(attrs: &Attrs) -> SetAttr {
    SetAttr {
        mode: attrs.mode,
        uid: attrs.uid,
        gid: attrs.gid,
        size: attrs.size,
        atime_ns: attrs.atime,
        mtime_ns: attrs.mtime,
    }
}

fn find(fs: &dyn Fs, handles: &Handles, target: &Target) -> Result<Ino> {
    match target {
        Target::Path(path) => resolve(fs, path),
        Target::Handle(slot) => handles.get(slot).map(|open| open.ino).ok_or(Error::Invalid),
    }
}

/// The directory that holds (or is to hold) a path's last name, and that name.
fn parent<'p>(fs: &dyn Fs, path: &'p Path) -> Result<(Ino, &'p [u8])> {
    let (name, above) = path.0.split_last().ok_or(Error::Invalid)?;
    Ok((walk(fs, above)?, name))
}
