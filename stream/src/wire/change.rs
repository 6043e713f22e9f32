//! Changes, and the contents of their frames.
//!
//! Paths are from the root of the tree, without a `/` in front; the root itself is the empty one. Guarantee: each part
//! of a path that was read is a name.

use super::header::is_name;
use super::parts::Parts;

/// One step from one tree to the other. What moves is meanwhile in the directory that the header names, under its
/// number.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub(crate) enum Change {
    /// A directory leaves its place, and waits.
    Leave { path: Vec<u8>, number: u64 },
    /// What is not a directory gets another name there, where it waits.
    Hold { path: Vec<u8>, number: u64 },
    /// An entry goes; a directory is empty by then.
    Remove { path: Vec<u8>, is_directory: bool },
    /// A new inode: its type (and permissions), its device number, its target.
    Make { path: Vec<u8>, mode: u32, rdev: u64, target: Vec<u8> },
    /// Another name of what is at `existing`.
    Link { path: Vec<u8>, existing: Vec<u8> },
    /// A directory that waits comes.
    Come { path: Vec<u8>, number: u64 },
    /// Another name of what waits.
    Attach { path: Vec<u8>, number: u64 },
    /// Nothing waits any more.
    Clear,
    /// The size of a file.
    Size { path: Vec<u8>, size: u64 },
    /// Bytes of a file.
    Write { path: Vec<u8>, offset: u64, data: Vec<u8> },
    /// Bytes of a file are zeros, and have pages.
    Zero { path: Vec<u8>, offset: u64, len: u64 },
    /// Bytes behind the end of a file have pages.
    Allocate { path: Vec<u8>, offset: u64, len: u64 },
    /// Bytes of a file become a hole.
    Punch { path: Vec<u8>, offset: u64, len: u64 },
    /// An extended attribute.
    SetXattr { path: Vec<u8>, name: Vec<u8>, value: Vec<u8> },
    /// An extended attribute goes.
    RemoveXattr { path: Vec<u8>, name: Vec<u8> },
    /// Permissions, owner and times.
    Attr { path: Vec<u8>, mode: u32, uid: u32, gid: u32, atime_ns: i64, mtime_ns: i64 },
    /// That is all: so many frames came before.
    End { frames: u64 },
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

impl Change {
    /// The number of its kind.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Leave { .. } => 1,
            Self::Hold { .. } => 2,
            Self::Remove { .. } => 3,
            Self::Make { .. } => 4,
            Self::Link { .. } => 5,
            Self::Come { .. } => 6,
            Self::Attach { .. } => 7,
            Self::Clear => 8,
            Self::Size { .. } => 9,
            Self::Write { .. } => 10,
            Self::Zero { .. } => 11,
            Self::Allocate { .. } => 12,
            Self::Punch { .. } => 13,
            Self::SetXattr { .. } => 14,
            Self::RemoveXattr { .. } => 15,
            Self::Attr { .. } => 16,
            Self::End { .. } => 17,
        }
    }

    /// What it changes.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Leave { path, .. }
            | Self::Hold { path, .. }
            | Self::Remove { path, .. }
            | Self::Make { path, .. }
            | Self::Link { path, .. }
            | Self::Come { path, .. }
            | Self::Attach { path, .. }
            | Self::Size { path, .. }
            | Self::Write { path, .. }
            | Self::Zero { path, .. }
            | Self::Allocate { path, .. }
            | Self::Punch { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Attr { path, .. } => path,
            Self::Clear | Self::End { .. } => &[],
        }
    }

    /// Puts the contents of its frame behind what is in `out`.
    pub(crate) fn put_contents(&self, out: &mut Vec<u8>) {
        if !matches!(self, Self::Clear | Self::End { .. }) {
            put_bytes(out, self.path());
        }
        match self {
            Self::Leave { number, .. } | Self::Hold { number, .. } => {
                out.extend(number.to_le_bytes());
            }
            Self::Come { number, .. } | Self::Attach { number, .. } => {
                out.extend(number.to_le_bytes());
            }
            Self::Remove { is_directory, .. } => out.push(u8::from(*is_directory)),
            Self::Make { mode, rdev, target, .. } => {
                out.extend(mode.to_le_bytes());
                out.extend(rdev.to_le_bytes());
                out.extend(target);
            }
            Self::Link { existing, .. } => put_bytes(out, existing),
            Self::Clear => {}
            Self::Size { size, .. } => out.extend(size.to_le_bytes()),
            Self::Write { offset, data, .. } => {
                out.extend(offset.to_le_bytes());
                out.extend(data);
            }
            Self::Zero { offset, len, .. }
            | Self::Allocate { offset, len, .. }
            | Self::Punch { offset, len, .. } => {
                out.extend(offset.to_le_bytes());
                out.extend(len.to_le_bytes());
            }
            Self::SetXattr { name, value, .. } => {
                put_bytes(out, name);
                out.extend(value);
            }
            Self::RemoveXattr { name, .. } => put_bytes(out, name),
            Self::Attr { mode, uid, gid, atime_ns, mtime_ns, .. } => {
                for number in [mode, uid, gid] {
                    out.extend(number.to_le_bytes());
                }
                out.extend(atime_ns.to_le_bytes());
                out.extend(mtime_ns.to_le_bytes());
            }
            Self::End { frames } => out.extend(frames.to_le_bytes()),
        }
    }

    /// A change from its kind and the contents of its frame; `None` if they make no sense.
    pub(crate) fn parse(kind: u8, contents: &[u8]) -> Option<Self> {
        let parts = &mut Parts(contents);
        let change = match kind {
            8 => Self::Clear,
            17 => Self::End { frames: parts.u64()? },
            1..=7 => Self::parse_names(kind, path_in(parts)?, parts)?,
            _ => Self::parse_inode(kind, path_in(parts)?, parts)?,
        };
        parts.0.is_empty().then_some(change)
    }

    fn parse_names(kind: u8, path: Vec<u8>, parts: &mut Parts<'_>) -> Option<Self> {
        if path.is_empty() {
            return None;
        }
        Some(match kind {
            1 => Self::Leave { path, number: parts.u64()? },
            2 => Self::Hold { path, number: parts.u64()? },
            3 => match parts.u8()? {
                what @ (0 | 1) => Self::Remove { path, is_directory: what == 1 },
                _ => return None,
            },
            4 => {
                let (mode, rdev) = (parts.u32()?, parts.u64()?);
                Self::Make { path, mode, rdev, target: parts.rest().to_vec() }
            }
            5 => Self::Link { path, existing: path_in(parts)? },
            6 => Self::Come { path, number: parts.u64()? },
            7 => Self::Attach { path, number: parts.u64()? },
            _ => return None,
        })
    }

    fn parse_inode(kind: u8, path: Vec<u8>, parts: &mut Parts<'_>) -> Option<Self> {
        Some(match kind {
            9 => Self::Size { path, size: parts.u64()? },
            10 => Self::Write { path, offset: parts.u64()?, data: parts.rest().to_vec() },
            11 => Self::Zero { path, offset: parts.u64()?, len: parts.u64()? },
            12 => Self::Allocate { path, offset: parts.u64()?, len: parts.u64()? },
            13 => Self::Punch { path, offset: parts.u64()?, len: parts.u64()? },
            14 => {
                let name = bytes_in(parts)?;
                Self::SetXattr { path, name, value: parts.rest().to_vec() }
            }
            15 => Self::RemoveXattr { path, name: bytes_in(parts)? },
            16 => Self::Attr {
                path,
                mode: parts.u32()?,
                uid: parts.u32()?,
                gid: parts.u32()?,
                atime_ns: parts.i64()?,
                mtime_ns: parts.i64()?,
            },
            _ => return None,
        })
    }
}

fn bytes_in(parts: &mut Parts<'_>) -> Option<Vec<u8>> {
    let len = parts.u16()?;
    parts.bytes(usize::from(len)).map(<[u8]>::to_vec)
}

/// A path: each part of it is a name.
fn path_in(parts: &mut Parts<'_>) -> Option<Vec<u8>> {
    let path = bytes_in(parts)?;
    let right = path.is_empty() || path.split(|byte| *byte == b'/').all(is_name);
    right.then_some(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Change> {
        let path = || b"a/b".to_vec();
        vec![
            Change::Leave { path: path(), number: 5 },
            Change::Hold { path: path(), number: 6 },
            Change::Remove { path: path(), is_directory: true },
            Change::Make { path: path(), mode: 0o120_777, rdev: 7, target: b"to".to_vec() },
            Change::Link { path: path(), existing: b"c".to_vec() },
            Change::Come { path: path(), number: 5 },
            Change::Attach { path: path(), number: 6 },
            Change::Clear,
            Change::Size { path: path(), size: 1 << 40 },
            Change::Write { path: path(), offset: 9, data: vec![1; 9] },
            Change::Zero { path: path(), offset: 9, len: 10 },
            Change::Allocate { path: path(), offset: 9, len: 11 },
            Change::Punch { path: path(), offset: 9, len: 12 },
            Change::SetXattr { path: Vec::new(), name: b"user.x".to_vec(), value: vec![0; 3] },
            Change::RemoveXattr { path: path(), name: b"user.x".to_vec() },
            Change::Attr { path: path(), mode: 0o644, uid: 1, gid: 2, atime_ns: -1, mtime_ns: 4 },
            Change::End { frames: 16 },
        ]
    }

    #[test]
    fn changes_are_read_as_they_were_written() {
        for (number, change) in one_of_each().into_iter().enumerate() {
            assert_eq!(usize::from(change.kind()), number + 1);
            let mut contents = Vec::new();
            change.put_contents(&mut contents);
            assert_eq!(Change::parse(change.kind(), &contents), Some(change.clone()));
            for len in 0..contents.len() {
                // (What comes last may be shorter.)
                let read = Change::parse(change.kind(), &contents[..len]);
                assert!(read.is_none_or(|read| read != change), "{change:?} cut at {len}");
            }
        }
    }

    #[test]
    fn paths_with_parts_that_are_no_names_are_refused() {
        for path in ["/", "a/", "/a", "a//b", ".", "a/..", "../a", "a\0b"] {
            let change = Change::Size { path: path.into(), size: 1 };
            let mut contents = Vec::new();
            change.put_contents(&mut contents);
            assert_eq!(Change::parse(9, &contents), None, "{path:?}");
        }
        let nowhere = Change::Remove { path: Vec::new(), is_directory: true };
        let mut contents = Vec::new();
        nowhere.put_contents(&mut contents);
        assert_eq!(Change::parse(3, &contents), None);
        assert_eq!((Change::parse(0, &[]), Change::parse(18, &[0; 10])), (None, None));
    }
}
