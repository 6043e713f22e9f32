//! What the pool keeps of how far a stream was received.

use lode_engine::SnapshotId;

use crate::wire::{Header, Parts, id_bytes, id_in};

const VERSION: u32 = 1;

/// How far a stream was received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Note {
    /// Where it is to go on; 0 until all is ready for the first frame.
    pub(super) offset: u64,
    /// Checksum of what was received.
    pub(super) chain: u32,
    /// Frames of it.
    pub(super) frames: u64,
    /// What the stream is the difference to.
    pub(super) older: Option<SnapshotId>,
    /// Name of the directory for what moves.
    pub(super) staging: Vec<u8>,
}

impl Note {
    /// Nothing of the stream that begins so.
    pub(super) fn of(header: &Header) -> Self {
        let older = header.older.as_ref().map(|(_, id)| *id);
        Self { older, staging: header.staging.clone(), ..Self::default() }
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend(self.chain.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.frames.to_le_bytes());
        bytes.extend(u32::from(self.older.is_some()).to_le_bytes());
        bytes.extend(self.older.iter().flat_map(id_bytes));
        bytes.extend(&self.staging);
        bytes
    }

    /// A note from its bytes; `None` if they are none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let parts = &mut Parts(bytes);
        if parts.u32()? != VERSION {
            return None;
        }
        let (chain, offset, frames) = (parts.u32()?, parts.u64()?, parts.u64()?);
        let older = match parts.u32()? {
            0 => None,
            1 => Some(id_in(parts)?),
            _ => return None,
        };
        Some(Self { offset, chain, frames, older, staging: parts.rest().to_vec() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let older = Some(SnapshotId { pool: [3; 16], epoch: 4, created_ns: 5 });
        for older in [None, older] {
            let note = Note { offset: 1, chain: 2, frames: 3, older, staging: b".x".to_vec() };
            assert_eq!(Note::parse(&note.encode()), Some(note));
        }
        assert_eq!((Note::parse(&[]), Note::parse(&[2; 60])), (None, None));
    }
}
