//! What a log says that has ended and snapshots see: names, and values of attributes. A replay notes it for who checks that all
//! of it leads somewhere and can be read.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::dentries::Target;
use super::mix::Mix;
use crate::index::Xattr;
use crate::layout::{Body, Txid};
use crate::log::Found;
use crate::store::Store;
use crate::{Host, Result};

/// A name that led to an inode, and does in a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PastName {
    pub(crate) target: Target,
    /// Offset of its record.
    pub(crate) at: u64,
    /// Of the latest snapshot that sees it; until it ends, the epoch that it was born in.
    pub(crate) epoch: u32,
}

/// What has ended and snapshots see.
#[derive(Default)]
pub(crate) struct Past {
    /// Names that have not ended, by their records.
    begun: HashMap<(Txid, u16), PastName, Mix>,
    pub(crate) names: Vec<PastName>,
    /// Attributes with values in pages of their own, each with the epoch of the latest snapshot that sees it.
    pub(crate) values: Vec<(u32, Xattr)>,
}

impl Past {
    /// A name begins with this record.
    pub(super) fn begin(&mut self, found: &Found) -> Result<()> {
        let Body::Add { ino, kind, tag, .. } = found.parsed.body else { return Ok(()) };
        let target = Target { ino, tag, kind };
        let name = PastName { target, at: found.at, epoch: found.parsed.epoch };
        self.begun.try_reserve(1)?;
        self.begun.insert((found.parsed.header.txid, found.parsed.header.part), name);
        Ok(())
    }

    /// The name of this record ends in an epoch.
    pub(super) fn end<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
        add: (Txid, u16),
        died: u32,
    ) -> Result<()> {
        let Some(name) = self.begun.remove(&add) else { return Ok(()) };
        if let Some(epoch) = store.snapshots.last_to_see(name.epoch, died) {
            self.names.try_reserve(1)?;
            self.names.push(PastName { epoch, ..name });
        }
        Ok(())
    }

    /// An attribute ends in an epoch.
    pub(super) fn end_value<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
        xattr: &Xattr,
        died: u32,
    ) -> Result<()> {
        if xattr.runs.is_empty() {
            // (It is in the log, which is being read.)
            return Ok(());
        }
        if let Some(epoch) = store.snapshots.last_to_see(xattr.epoch, died) {
            let mut copy = Xattr { runs: Vec::new(), ..*xattr };
            copy.runs.try_reserve_exact(xattr.runs.len())?;
            copy.runs.extend_from_slice(&xattr.runs);
            self.values.try_reserve(1)?;
            self.values.push((epoch, copy));
        }
        Ok(())
    }
}
