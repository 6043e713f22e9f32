//! How a stream begins: which snapshot it is, and which one it is the difference to.

use std::io::Read;

use lode_engine::SnapshotId;
use lode_pmem::crc32c;

use super::parts::Parts;
use crate::{Error, Result};

/// The first bytes of a stream.
pub(crate) const MAGIC: [u8; 8] = *b"LODESEND";
const VERSION: u32 = 1;
/// Bytes in front of the names.
const HEAD: usize = 84;
/// Bytes of an identity.
const ID: usize = 28;
/// Bytes of a name of a snapshot, at most.
const NAME_MAX: usize = 128;
/// Bytes of the name of the directory for what moves, at most.
const STAGING_MAX: usize = 32;

/// How a stream begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Name of the snapshot.
    pub name: Vec<u8>,
    /// Which one it is.
    pub id: SnapshotId,
    /// Name and identity of the one that it is the difference to, if it is one.
    pub older: Option<(Vec<u8>, SnapshotId)>,
    /// Name of a directory for what moves, which neither has in its root.
    pub(crate) staging: Vec<u8>,
}

/// An identity as bytes.
pub(crate) fn id_bytes(id: &SnapshotId) -> Vec<u8> {
    [&id.pool[..], &id.epoch.to_le_bytes(), &id.created_ns.to_le_bytes()].concat()
}

/// An identity from bytes.
pub(crate) fn id_in(parts: &mut Parts<'_>) -> Option<SnapshotId> {
    Some(SnapshotId { pool: parts.array()?, epoch: parts.u32()?, created_ns: parts.i64()? })
}

impl Header {
    /// The bytes of it, and their checksum, which that of the first frame goes on from.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let (older_name, older_id) = match &self.older {
            Some((name, id)) => (name.as_slice(), id_bytes(id)),
            None => (&[][..], vec![0; ID]),
        };
        let len = HEAD + self.name.len() + older_name.len() + self.staging.len() + 4;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((len as u32).to_le_bytes());
        bytes.extend(u32::from(self.older.is_some()).to_le_bytes());
        for name in [self.name.len(), older_name.len(), self.staging.len(), 0] {
            bytes.extend((name as u16).to_le_bytes());
        }
        bytes.extend(id_bytes(&self.id));
        bytes.extend(older_id);
        for name in [&self.name, older_name, &self.staging] {
            bytes.extend(name);
        }
        let crc = crc32c(0, &bytes);
        bytes.extend(crc.to_le_bytes());
        (bytes, crc)
    }

    /// Reads the header of a stream.
    ///
    /// # Errors
    /// [`Error::NotAStream`], [`Error::Version`], [`Error::Damaged`], [`Error::Cut`].
    pub fn read(from: &mut dyn Read) -> Result<Self> {
        let mut magic = [0; MAGIC.len()];
        read_all(from, &mut magic, 0)?;
        if magic != MAGIC { Err(Error::NotAStream) } else { Self::read_behind_magic(from) }
    }

    /// The same, where the first bytes were read.
    pub(crate) fn read_behind_magic(from: &mut dyn Read) -> Result<Self> {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEAD, 0);
        read_all(from, bytes.get_mut(MAGIC.len()..).unwrap_or_default(), 0)?;
        let version = Parts(bytes.get(8..).unwrap_or_default()).u32().unwrap_or(0);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let damaged = |what| Error::Damaged { offset: 0, what };
        let lens = lens_in(&bytes).ok_or(damaged("its header has impossible lengths"))?;
        bytes.resize(lens.0, 0);
        read_all(from, bytes.get_mut(HEAD..).unwrap_or_default(), 0)?;
        let (body, crc) = bytes.split_last_chunk().ok_or(damaged("its header is too short"))?;
        if crc32c(0, body) != u32::from_le_bytes(*crc) {
            return Err(damaged("the checksum of its header is wrong"));
        }
        Self::parse(body, lens.1).ok_or(damaged("its header makes no sense"))
    }

    fn parse(body: &[u8], [name, older, staging]: [usize; 3]) -> Option<Self> {
        let mut parts = Parts(body);
        parts.bytes(16)?;
        let flags = parts.u32()?;
        parts.bytes(8)?;
        let (id, older_id) = (id_in(&mut parts)?, id_in(&mut parts)?);
        let name = parts.bytes(name)?.to_vec();
        let older_name = parts.bytes(older)?.to_vec();
        let staging = parts.bytes(staging)?.to_vec();
        let is_known = flags < 2 && is_name(&name) && is_name(&staging);
        let older = (flags == 1).then_some((older_name, older_id));
        is_known.then_some(Self { name, id, older, staging })
    }
}

/// Whether bytes can be the name of an entry.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_odd = name.is_empty() || name == b"." || name == b"..";
    !is_odd && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Bytes of the whole header, and of its three names.
fn lens_in(head: &[u8]) -> Option<(usize, [usize; 3])> {
    let mut parts = Parts(head.get(12..)?);
    let len = parts.u32()? as usize;
    parts.u32()?;
    let mut lens = [0; 3];
    for (len, most) in lens.iter_mut().zip([NAME_MAX, NAME_MAX, STAGING_MAX]) {
        *len = usize::from(parts.u16()?);
        if *len > most {
            return None;
        }
    }
    (len == HEAD + lens.iter().sum::<usize>() + 4).then_some((len, lens))
}

/// Fills `into`, or says that the stream was cut off behind `offset`.
pub(crate) fn read_all(from: &mut dyn Read, into: &mut [u8], offset: u64) -> Result<()> {
    from.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::Cut { offset },
        _ => Error::Read(error),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_each_flipped_bit_is_seen() {
        let id = |epoch| SnapshotId { pool: [9; 16], epoch, created_ns: -3 };
        let full = Header { name: b"a".to_vec(), id: id(7), older: None, staging: b".s".to_vec() };
        let since = Header { older: Some((b"older".to_vec(), id(6))), ..full.clone() };
        for header in [full, since] {
            let (bytes, crc) = header.encode();
            assert_eq!(bytes[bytes.len() - 4..], crc.to_le_bytes());
            assert_eq!(Header::read(&mut bytes.as_slice()).unwrap(), header);
            for bit in 0..bytes.len() * 8 {
                let mut odd = bytes.clone();
                odd[bit / 8] ^= 1 << (bit % 8);
                assert!(Header::read(&mut odd.as_slice()).is_err(), "bit {bit}");
            }
            for len in 0..bytes.len() {
                let read = Header::read(&mut &bytes[..len]);
                assert!(matches!(read, Err(Error::Cut { offset: 0 })), "{len}");
            }
        }
    }
}
