//! An entry of the list of snapshots: the value of its extended attribute (docs/format.md, section 14).
//!
//! Guarantees: what is read of an entry is what was written, or nothing; an entry of a snapshot that was made here
//! has the first form, which says least.

use alloc::vec::Vec;

use crate::Result;

/// The entry is of what is being received: its epoch is of what the pool was before.
const RECEIVING: u32 = 1;
/// What was received is given up.
const ABANDONED: u32 = 2;
/// Bytes of the form that a snapshot has which was made here.
const OWN_BYTES: usize = 16;
/// Bytes of the form of one that was received; a note follows while it is.
const RECEIVED_BYTES: usize = 36;

/// Which snapshot it is, whatever its name and wherever a copy of it is: the pool that it was made in, the epoch
/// that it ended there, and when.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotId {
    /// UUID of the pool that it was made in.
    pub pool: [u8; 16],
    /// The epoch that it ended in that pool.
    pub epoch: u32,
    /// When it was made there, in nanoseconds since 1970.
    pub created_ns: i64,
}

/// What the list says of a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    pub(super) epoch: u32,
    pub(super) created_ns: i64,
    flags: u32,
    /// Of which pool it is, and its epoch there, where it was received.
    origin: Option<([u8; 16], u32)>,
    /// What who receives it wants to know.
    pub(super) note: Vec<u8>,
}

/// An entry and its name.
#[derive(Clone, Default)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) entry: Entry,
}

impl Entry {
    /// A snapshot that is made here.
    pub(super) fn own(epoch: u32, created_ns: i64) -> Self {
        Self { epoch, created_ns, ..Self::default() }
    }

    /// A snapshot that has been received.
    pub(super) fn received(epoch: u32, id: &SnapshotId) -> Self {
        let origin = Some((id.pool, id.epoch));
        Self { epoch, created_ns: id.created_ns, origin, ..Self::default() }
    }

    /// A snapshot that is being received into a pool which `epoch` has as it was before.
    pub(super) fn mark(epoch: u32, id: &SnapshotId, note: Vec<u8>) -> Self {
        Self { flags: RECEIVING, note, ..Self::received(epoch, id) }
    }

    /// The same, which is given up: the note is wanted no more.
    pub(super) fn abandoned(self) -> Self {
        Self { flags: RECEIVING | ABANDONED, note: Vec::new(), ..self }
    }

    /// The same with another note.
    pub(super) fn with_note(self, note: Vec<u8>) -> Self {
        Self { note, ..self }
    }

    /// Whether it is of what is being received.
    pub(super) fn is_mark(&self) -> bool {
        self.flags & RECEIVING != 0
    }

    /// Whether it is of what was received and is given up.
    pub(super) fn is_abandoned(&self) -> bool {
        self.flags & ABANDONED != 0
    }

    /// Which snapshot it is, in a pool with this UUID.
    pub(super) fn id(&self, own: [u8; 16]) -> SnapshotId {
        let (pool, epoch) = self.origin.unwrap_or((own, self.epoch));
        SnapshotId { pool, epoch, created_ns: self.created_ns }
    }

    /// The value that says it.
    pub(super) fn value(&self) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        value.try_reserve_exact(RECEIVED_BYTES + self.note.len())?;
        value.extend_from_slice(&self.epoch.to_le_bytes());
        value.extend_from_slice(&self.flags.to_le_bytes());
        value.extend_from_slice(&self.created_ns.to_le_bytes());
        if let Some((pool, epoch)) = &self.origin {
            value.extend_from_slice(pool);
            value.extend_from_slice(&epoch.to_le_bytes());
            value.extend_from_slice(&self.note);
        }
        Ok(value)
    }

    /// What a value says; `None` if it is none.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*value.get(at..)?.first_chunk()?));
        let created_ns = i64::from_le_bytes(*value.get(8..)?.first_chunk()?);
        let mut entry = Self { epoch: word(0)?, created_ns, flags: word(4)?, ..Self::default() };
        if value.len() > OWN_BYTES {
            entry.origin = Some((*value.get(16..)?.first_chunk()?, word(32)?));
            let note = value.get(RECEIVED_BYTES..)?;
            entry.note.try_reserve_exact(note.len()).ok()?;
            entry.note.extend_from_slice(note);
        }
        let known = match entry.flags {
            0 => entry.note.is_empty(),
            RECEIVING => entry.origin.is_some(),
            flags => flags == RECEIVING | ABANDONED && entry.origin.is_some(),
        };
        known.then_some(entry)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else() {
        let id = SnapshotId { pool: [7; 16], epoch: 3, created_ns: -5 };
        let mark = Entry::mark(9, &id, b"note".to_vec());
        let all = [
            Entry::own(5, 77),
            Entry::received(6, &id),
            mark.clone(),
            mark.abandoned(),
            Entry::mark(9, &id, Vec::new()),
        ];
        for entry in all {
            let value = entry.value().unwrap();
            assert_eq!(Entry::parse(&value), Some(entry.clone()));
            let (least, is_mark) = (value.len().min(36), entry.is_mark());
            for short in 0..least {
                let read = Entry::parse(&value[..short]);
                assert!(read.is_none() || short == 16 && !is_mark, "{short}");
            }
            let mut odd = value.clone();
            odd[4] ^= 4;
            assert_eq!(Entry::parse(&odd), None);
            if !is_mark {
                odd = value.clone();
                odd.push(0);
                assert_eq!(Entry::parse(&odd), None);
            }
            assert_eq!(entry.id([1; 16]).epoch, if entry.epoch == 5 { 5 } else { 3 });
        }
    }
}
