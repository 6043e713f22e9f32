//! What is known of files and directories in memory, rebuilt from their logs.

mod entries;
mod extents;

pub(crate) use entries::{Entries, Entry, hash};
pub(crate) use extents::{Extent, Extents};
