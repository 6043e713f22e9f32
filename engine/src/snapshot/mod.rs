//! Snapshots: what the whole pool was at a moment, kept (NOVA-Fortis 4.1).
//!
//! Each record says in which *epoch* it was born. A snapshot ends an epoch, and is nothing but its number: what a
//! log says up to it is what the snapshot has. So none takes time or space to make. What ends later is kept for
//! it (`store::snapshots`), and pages that it sees are not stored to in place.
//!
//! `list` is which there are, in extended attributes of an inode that no name leads to, each an `entry`; `take` makes
//! and ends them; `view` looks into them; `whole` tells what of one can't be read; `rollback` makes a pool what it was; `receive` lets one come from elsewhere.

mod entry;
mod list;
mod receive;
mod rollback;
mod take;
mod view;
mod whole;

pub use entry::SnapshotId;
pub use list::SnapshotInfo;
pub(crate) use list::{read_list, received_over};
pub use receive::Receiving;
pub use rollback::Back;
pub use whole::{SnapshotLoss, SnapshotLosses};
