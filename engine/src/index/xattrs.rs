//! The extended attributes of an inode: where in its log each of them is.
//!
//! There are few of them as a rule, so they are a list that is looked through by hash. Names
//! and values stay on the medium.

use alloc::vec::Vec;

use super::entries::digest;
use crate::gauges::list_bytes;
use crate::space::Run;
use crate::{Error, Result};

/// An extended attribute.
#[derive(Clone, Debug)]
pub(crate) struct Xattr {
    /// Of its name.
    pub(crate) hash: u64,
    /// Offset of its record.
    pub(crate) at: u64,
    /// Ordinal of the log page with its record.
    pub(crate) origin: u32,
    /// Bytes of the name.
    pub(crate) name_len: u8,
    /// Lines of the record.
    pub(crate) lines: u8,
    /// Bytes of the value.
    pub(crate) value_len: u32,
    /// Checksum of a value that is in pages of its own.
    pub(crate) crc: u32,
    /// Epoch of birth.
    pub(crate) epoch: u32,
    /// Those pages, in the value's order; none where the value is in the log.
    pub(crate) runs: Vec<Run>,
}

impl Xattr {
    /// Bytes of its name with a NUL behind it.
    pub(crate) fn list_bytes(&self) -> usize {
        usize::from(self.name_len) + 1
    }
}

/// The extended attributes of an inode, no two of one name.
#[derive(Debug, Default)]
pub(crate) struct Xattrs {
    list: Vec<Xattr>,
}

impl Xattrs {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of memory that they take, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let runs = self.list.iter().map(|xattr| list_bytes::<Run>(xattr.runs.capacity()));
        list_bytes::<Xattr>(self.list.capacity()) + runs.sum::<u64>()
    }

    /// All of them, in no stated order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Xattr> {
        self.list.iter()
    }

    /// As [`Xattrs::iter`].
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Xattr> {
        self.list.iter_mut()
    }

    /// Those whose names have this hash.
    pub(crate) fn candidates(&self, hash: u64) -> impl Iterator<Item = &Xattr> {
        self.list.iter().filter(move |xattr| xattr.hash == hash)
    }

    /// Makes sure that `count` more can be pushed.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<()> {
        self.list.try_reserve(count).map_err(Error::from)
    }

    /// Takes in one whose name is new.
    pub(crate) fn push(&mut self, xattr: Xattr) {
        self.list.push(xattr);
    }

    /// Takes out the one whose record is at offset `at`.
    pub(crate) fn remove(&mut self, at: u64) -> Option<Xattr> {
        let place = self.list.iter().position(|xattr| xattr.at == at)?;
        Some(self.list.swap_remove(place))
    }

    /// Lines of the records of all of them.
    pub(crate) fn lines(&self) -> u64 {
        self.list.iter().map(|xattr| u64::from(xattr.lines)).sum()
    }

    /// Lines of the longest record.
    pub(crate) fn longest(&self) -> u32 {
        self.list.iter().map(|xattr| u32::from(xattr.lines)).max().unwrap_or(0)
    }

    /// A number that others would hardly have: names, as far as their hashes tell, and what is known of the values.
    pub(crate) fn digest(&self) -> u64 {
        let value = |xattr: &Xattr| u64::from(xattr.crc) << 32 | u64::from(xattr.value_len);
        self.list.iter().fold(0, |sum, xattr| sum.wrapping_add(digest(xattr.hash, value(xattr))))
    }

    /// Bytes of all names, each with a NUL behind it.
    pub(crate) fn list_bytes(&self) -> usize {
        self.list.iter().map(Xattr::list_bytes).sum()
    }
}
