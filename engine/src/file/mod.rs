//! Data: reading, writing, and the attributes that go with it.
//!
//! A write is planned as segments, each with the cheapest way that keeps it atomic:
//! fresh pages (copy-on-write), in place behind the end of the file, or through the
//! journal. All of a call is one transaction: the data is fenced, then its records.

mod ahead;
mod attr;
mod beside;
mod change;
mod claim;
mod exempt;
mod fallocate;
mod fresh;
mod journalled;
mod map;
mod ordinals;
mod places;
mod read;
mod relocate;
mod sectors;
mod segment;
mod shown;
mod unlocked;
mod whole;
mod write;
mod xattr;

pub(crate) use places::Places;
pub(crate) use xattr::Staged;
