//! What is known of files and directories in memory, rebuilt from their logs.

mod entries;
mod extents;
mod sorted;
mod xattrs;

pub(crate) use entries::{Entries, Entry, hash};
pub(crate) use extents::{Extent, Extents};
pub(crate) use xattrs::{Xattr, Xattrs};
