//! Entries of directories that have ended, and that snapshots see.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::dentries::Target;
use super::names::load_name;
use super::state::State;
use crate::index::Entry;
use crate::layout::{Body, Parsed};
use crate::store::Store;
use crate::{Host, Ino, NAME_MAX, Result};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedEntry {
    /// The epoch of the latest snapshot that sees it.
    pub(crate) epoch: u32,
    /// The directory.
    pub(crate) dir: Ino,
    pub(crate) target: Target,
    /// Offset of its record in the pool.
    pub(crate) at: u64,
}

/// What an entry leads to that this record made.
pub(crate) fn target_of(entry: &Entry, add: &Parsed) -> Option<Target> {
    let Body::Add { tag, .. } = add.body else { return None };
    Some(Target { ino: entry.ino, tag, kind: entry.kind })
}

/// Notes an entry of a directory that ended in the epoch `died`, where a snapshot sees it.
#[inline(never)]
pub(super) fn note<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    (entry, died): (&Entry, u32),
    ended: &mut Vec<EndedEntry>,
) -> Result<()> {
    let (add, _) = load_name(store, state, entry, &mut [0; NAME_MAX])?;
    let seen = store.snapshots.last_to_see(add.epoch, died);
    if let (Some(epoch), Some(target)) = (seen, target_of(entry, &add)) {
        ended.try_reserve(1)?;
        ended.push(EndedEntry { epoch, dir: state.log.ino, target, at: entry.at });
    }
    Ok(())
}
