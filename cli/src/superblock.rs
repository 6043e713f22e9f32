//! A reader of raw superblocks, written from `docs/format.md` and independent of the engine.
//!
//! It tells what a file holds before anything is destroyed (`mkfs`), and shows what is
//! left of a pool that can't be opened (`dump`). It trusts no byte.

use std::io;

use serde::Serialize;

use crate::human::{hex, printable, uuid_text};
use crate::raw::Raw;

/// The first bytes of every pool.
pub(crate) const MAGIC: &[u8; 8] = b"LODEPOOL";
const PAGE: u64 = 4096;
const BYTES: usize = 512;

/// One copy of the superblock as it is on the medium.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Copy {
    /// Offset in the pool, in bytes.
    pub(crate) at: u64,
    /// Magic, version, length and CRC are right.
    pub(crate) valid: bool,
    /// What is wrong, where it isn't valid.
    pub(crate) problem: Option<String>,
    /// Format version.
    pub(crate) version: u32,
    /// Compatible, read-only compatible, incompatible features, in hexadecimal.
    pub(crate) features: [String; 3],
    /// UUID.
    pub(crate) uuid: String,
    /// Secret of the seals, in hexadecimal.
    pub(crate) secret: String,
    /// Pages of 4 KiB in the pool.
    pub(crate) pages: u64,
    /// Lanes.
    pub(crate) lanes: u32,
    /// First page of the lane table.
    pub(crate) lane_table_page: u32,
    /// Protection level.
    pub(crate) protection: u8,
    /// Number of the default page class.
    pub(crate) page_class: u8,
    /// Inode number of the root directory.
    pub(crate) root_inode: u64,
    /// Label.
    pub(crate) label: String,
    /// Raised by each write of the superblock.
    pub(crate) update: u64,
    /// Session.
    pub(crate) session: u32,
    /// Epoch.
    pub(crate) epoch: u32,
    /// First page of the checkpoint, 0 for none.
    pub(crate) checkpoint_page: u64,
    /// Session of the checkpoint.
    pub(crate) checkpoint_session: u32,
}

/// Reads both copies: at the start, and where the end of `bytes` bytes says.
///
/// Copies without the magic are left out: a file that is no pool has none.
///
/// # Errors
/// Those of reading.
pub(crate) fn read_copies(raw: &Raw, bytes: u64) -> io::Result<Vec<Copy>> {
    let mut copies = Vec::new();
    let last = (bytes / PAGE).saturating_sub(1) * PAGE;
    for at in [0, last] {
        if at + BYTES as u64 > bytes || copies.iter().any(|copy: &Copy| copy.at == at) {
            continue;
        }
        let mut copy = [0u8; BYTES];
        raw.read_exact_at(&mut copy, at)?;
        if copy.starts_with(MAGIC) {
            copies.push(Copy::parse(at, &copy));
        }
    }
    Ok(copies)
}

impl Copy {
    fn parse(at: u64, raw: &[u8; BYTES]) -> Self {
        let label = &raw[128..192];
        let label = label.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut uuid = [0u8; 16];
        uuid.copy_from_slice(&raw[40..56]);
        let problem = problem_of(raw);
        Self {
            at,
            valid: problem.is_none(),
            problem,
            version: u32_at(raw, 8),
            features: [16, 24, 32].map(|at| format!("{:#x}", u64_at(raw, at))),
            uuid: uuid_text(&uuid),
            secret: hex(&raw[56..72]),
            pages: u64_at(raw, 72),
            lanes: u32_at(raw, 80),
            lane_table_page: u32_at(raw, 84),
            protection: raw[88],
            page_class: raw[89],
            root_inode: u64_at(raw, 96),
            label: printable(label),
            update: u64_at(raw, 192),
            session: u32_at(raw, 200),
            epoch: u32_at(raw, 204),
            checkpoint_page: u64_at(raw, 208),
            checkpoint_session: u32_at(raw, 216),
        }
    }
}

fn problem_of(raw: &[u8; BYTES]) -> Option<String> {
    let stored = u32_at(raw, 508);
    let computed = lode_pmem::crc32c(0, &raw[..508]);
    if stored != computed {
        return Some(format!("checksum is {stored:#010x}, should be {computed:#010x}"));
    }
    if u32_at(raw, 8) != 1 {
        return Some(format!("format version {} is not known here", u32_at(raw, 8)));
    }
    if u32_at(raw, 12) != BYTES as u32 {
        return Some(format!("length is {}, should be {BYTES}", u32_at(raw, 12)));
    }
    None
}

fn u32_at(raw: &[u8; BYTES], at: usize) -> u32 {
    u32::from_le_bytes(field(raw, at))
}

fn u64_at(raw: &[u8; BYTES], at: usize) -> u64 {
    u64::from_le_bytes(field(raw, at))
}

/// The bytes of a field; zeros beyond the end.
fn field<const N: usize>(raw: &[u8; BYTES], at: usize) -> [u8; N] {
    let bytes = raw.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().unwrap_or([0; N])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;

    /// A superblock that is right in every field this reader looks at.
    pub(crate) fn sample(pages: u64) -> [u8; BYTES] {
        let mut raw = [0u8; BYTES];
        raw[..8].copy_from_slice(MAGIC);
        raw[8..12].copy_from_slice(&1u32.to_le_bytes());
        raw[12..16].copy_from_slice(&512u32.to_le_bytes());
        raw[72..80].copy_from_slice(&pages.to_le_bytes());
        raw[128..132].copy_from_slice(b"home");
        let crc = lode_pmem::crc32c(0, &raw[..508]);
        raw[508..].copy_from_slice(&crc.to_le_bytes());
        raw
    }

    #[test]
    fn both_copies_are_found_and_judged() {
        let mut file = tempfile::tempfile().unwrap();
        let mut page = [0u8; 4096];
        page[..512].copy_from_slice(&sample(2));
        file.write_all(&page).unwrap();
        page[300] = 1;
        file.write_all(&page).unwrap();
        let file = Raw::File(file);
        let copies = read_copies(&file, 8192).unwrap();
        assert_eq!(copies.len(), 2);
        assert!(copies[0].valid && copies[0].label == "home" && copies[0].pages == 2);
        assert!(!copies[1].valid && copies[1].problem.as_deref().unwrap().contains("checksum"));
        assert_eq!(read_copies(&file, 4096).unwrap().len(), 1);
        assert_eq!(read_copies(&file, 100).unwrap().len(), 0);
    }
}
