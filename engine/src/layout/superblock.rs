//! The superblock and its replica.

use alloc::vec::Vec;

use core::num::NonZeroU32;

use lode_pmem::{Losses, crc32c};

use super::bad::{BAD_PAGES_MOST, BadPage, bad_crc};
use super::bytes::{get_i64, get_u32, get_u64, put_i64, put_u32, put_u64};
use super::geometry::{
    Geometry, LOG_LINES_LEAST, LOG_LINES_MOST, POOL_PAGES_LEAST, POOL_PAGES_MOST,
};
use super::seal::PoolSeed;
use super::sector::SectorArea;
use super::strips::{GROUP_LOG2_LEAST, GROUP_LOG2_MOST, STRIP_LOG2_LEAST, STRIP_LOG2_MOST, Strips};
use crate::{LABEL_MAX, PAGE_BYTES, PageClass, Protection, Unusable};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 512;
/// Read-only compatible: the pool has, or had, snapshots. Who does not know them would use what they keep.
pub const FEATURE_SNAPSHOTS: u64 = 1;
/// Incompatible: the pool has, or had, files that were mapped for writing at level full. Who does not know that would take their
/// pages for damaged ones.
pub const FEATURE_EXEMPT: u64 = 1;
/// Incompatible: there is a sector journal. Who does not know that would use its pages, and leave torn what it tells of.
pub const FEATURE_SECTORS: u64 = 2;
/// The format this program writes.
pub const FORMAT_VERSION: u32 = 1;
/// Compatible features this program knows.
pub const FEATURES_COMPATIBLE: u64 = 0;
/// Read-only compatible features this program knows.
pub const FEATURES_READ_ONLY: u64 = FEATURE_SNAPSHOTS;
/// Incompatible features this program knows.
pub const FEATURES_INCOMPATIBLE: u64 = FEATURE_EXEMPT | FEATURE_SECTORS;

/// log2 of the most pages between twins: they lie in one GiB.
pub const TWIN_LOG2_MOST: u8 = 17;

const MAGIC: u64 = u64::from_le_bytes(*b"LODEPOOL");
const CRC_AT: usize = 508;

/// What is known of a pool before anything else is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Compatible, read-only compatible and incompatible features.
    pub features: [u64; 3],
    /// UUID.
    pub uuid: [u8; 16],
    /// Random bytes that go into every seal.
    pub secret: [u8; 16],
    /// Pages in the pool.
    pub pages: u64,
    /// Lanes on the medium.
    pub lanes: u32,
    /// Protection level.
    pub protection: Protection,
    /// log2 of the pages between a page of metadata and its twin; 0 at level `none`.
    pub twin_log2: u8,
    /// log2 of the bytes of a strip of file data; 0 below level `full`.
    pub strip_log2: u8,
    /// log2 of the pages of a group, which has its tables for strips together; 0 below level `full`.
    pub group_log2: u8,
    /// Pages of a group in front of its tables; 0 for the fewest possible.
    pub group_before: u32,
    /// Default page class of files.
    pub page_class: PageClass,
    /// log2 of the pages in a new piece of inode table.
    pub piece_log2: u8,
    /// Record lines of a log page.
    pub log_lines: u8,
    /// The root directory.
    pub root: u64,
    /// Its nonce.
    pub root_nonce: u64,
    /// When the pool was made.
    pub created_ns: i64,
    /// Label, padded with zeros.
    pub label: [u8; LABEL_MAX],
    /// Raised with each write of the superblock.
    pub update: u64,
    /// Raised with each read-write open.
    pub session: u32,
    /// The epoch of what is born now; each snapshot ends one.
    pub epoch: u32,
    /// First page of the checkpoint, 0 for none.
    pub checkpoint: u64,
    /// Session of the checkpoint.
    pub checkpoint_session: u32,
    /// The epoch that the pool is to be rolled back to by its next opening, 0 for none.
    pub rollback: u32,
    /// The inode whose extended attributes are the list of snapshots, 0 for none.
    pub snapshots: u64,
    /// Its nonce.
    pub snapshots_nonce: u64,
    /// How often the memory had lost what was stored when the pool was opened for writing; `None` where it does not tell.
    pub losses: Option<Losses>,
    /// The sector journal and its nonce, if there is one.
    pub sectors: Option<(SectorArea, u64)>,
    /// Pages with memory that can't be loaded, in order: the list lies behind the superblock.
    pub bad: Vec<BadPage>,
}

/// What a superblock says of the list of bad memory behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadSaid {
    /// Pages in it.
    pub(crate) pages: usize,
    /// Its checksum.
    pub(crate) crc: u32,
}

impl Superblock {
    /// The bytes on the medium.
    pub fn encode(&self, raw: &mut [u8; SUPERBLOCK_BYTES]) {
        raw.fill(0);
        put_u64(raw, 0, MAGIC);
        put_u32(raw, 8, FORMAT_VERSION);
        put_u32(raw, 12, SUPERBLOCK_BYTES as u32);
        put_u64(raw, 16, self.features[0]);
        put_u64(raw, 24, self.features[1]);
        put_u64(raw, 32, self.features[2]);
        raw[40..56].copy_from_slice(&self.uuid);
        raw[56..72].copy_from_slice(&self.secret);
        put_u64(raw, 72, self.pages);
        put_u32(raw, 80, self.lanes);
        put_u32(raw, 84, 1);
        raw[88] = self.protection as u8;
        raw[89] = self.page_class as u8;
        raw[90] = self.piece_log2;
        raw[91] = self.log_lines;
        raw[92] = self.twin_log2;
        raw[93] = self.strip_log2;
        raw[94] = self.group_log2;
        put_u64(raw, 96, self.root);
        put_u64(raw, 104, self.root_nonce);
        put_i64(raw, 112, self.created_ns);
        raw[128..192].copy_from_slice(&self.label);
        put_u64(raw, 192, self.update);
        put_u32(raw, 200, self.session);
        put_u32(raw, 204, self.epoch);
        put_u64(raw, 208, self.checkpoint);
        put_u32(raw, 216, self.checkpoint_session);
        put_u32(raw, 220, self.rollback);
        put_u64(raw, 224, self.snapshots);
        put_u64(raw, 232, self.snapshots_nonce);
        put_u32(raw, 240, self.bad.len() as u32);
        put_u32(raw, 244, bad_crc(&self.bad));
        put_u32(raw, 248, self.group_before);
        if let Some(losses) = self.losses {
            put_u32(raw, 252, losses.of.get());
            put_u64(raw, 256, losses.count);
        }
        if let Some((sectors, nonce)) = self.sectors {
            put_u64(raw, 264, sectors.page);
            put_u32(raw, 272, sectors.lanes);
            put_u32(raw, 276, sectors.slot_pages);
            put_u64(raw, 280, nonce);
        }
        let crc = crc32c(0, &raw[..CRC_AT]);
        put_u32(raw, CRC_AT, crc);
    }

    /// Whether these bytes begin with the magic of a pool.
    pub fn has_magic(raw: &[u8; SUPERBLOCK_BYTES]) -> bool {
        get_u64(raw, 0) == MAGIC
    }

    /// Reads one copy. What comes back is sealed and possible; its list of bad memory is still to be read.
    pub fn parse(raw: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, Unusable> {
        if !Self::has_magic(raw) {
            return Err(Unusable::NoMagic);
        }
        if get_u32(raw, CRC_AT) != crc32c(0, &raw[..CRC_AT]) {
            return Err(Unusable::BadSuperblock);
        }
        Self::read(raw)
    }

    /// What a copy says of its list of bad memory; `None` where it can't be so long.
    pub(crate) fn bad_said(raw: &[u8; SUPERBLOCK_BYTES]) -> Option<BadSaid> {
        let pages = get_u32(raw, 240) as usize;
        (pages <= BAD_PAGES_MOST).then_some(BadSaid { pages, crc: get_u32(raw, 244) })
    }

    /// What a copy says, sealed or not, where that is possible.
    pub(crate) fn read(raw: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, Unusable> {
        let version = get_u32(raw, 8);
        if version != FORMAT_VERSION {
            return Err(Unusable::Version(version));
        }
        let mut superblock = Self {
            features: [get_u64(raw, 16), get_u64(raw, 24), get_u64(raw, 32)],
            uuid: [0; 16],
            secret: [0; 16],
            pages: get_u64(raw, 72),
            lanes: get_u32(raw, 80),
            protection: Protection::from_number(raw[88])
                .ok_or(Unusable::Geometry("protection level"))?,
            twin_log2: raw[92],
            strip_log2: raw[93],
            group_log2: raw[94],
            page_class: PageClass::from_number(raw[89]).ok_or(Unusable::Geometry("page class"))?,
            piece_log2: raw[90],
            log_lines: raw[91],
            root: get_u64(raw, 96),
            root_nonce: get_u64(raw, 104),
            created_ns: get_i64(raw, 112),
            label: [0; LABEL_MAX],
            update: get_u64(raw, 192),
            session: get_u32(raw, 200),
            epoch: get_u32(raw, 204),
            checkpoint: get_u64(raw, 208),
            checkpoint_session: get_u32(raw, 216),
            rollback: get_u32(raw, 220),
            snapshots: get_u64(raw, 224),
            snapshots_nonce: get_u64(raw, 232),
            losses: NonZeroU32::new(get_u32(raw, 252))
                .map(|of| Losses { of, count: get_u64(raw, 256) }),
            sectors: (get_u64(raw, 32) & FEATURE_SECTORS != 0).then(|| {
                let (lanes, slot_pages) = (get_u32(raw, 272), get_u32(raw, 276));
                let area = SectorArea { page: get_u64(raw, 264), lanes, slot_pages };
                (area, get_u64(raw, 280))
            }),
            bad: Vec::new(),
            group_before: get_u32(raw, 248),
        };
        superblock.uuid.copy_from_slice(&raw[40..56]);
        superblock.secret.copy_from_slice(&raw[56..72]);
        superblock.label.copy_from_slice(&raw[128..192]);
        superblock.possible(get_u32(raw, 12), get_u32(raw, 84))?;
        Ok(superblock)
    }

    fn possible(&self, size: u32, lane_page: u32) -> Result<(), Unusable> {
        let unknown = self.features[2] & !FEATURES_INCOMPATIBLE;
        if unknown != 0 {
            return Err(Unusable::Features(unknown));
        }
        if size as usize != SUPERBLOCK_BYTES || lane_page != 1 {
            return Err(Unusable::Geometry("size of the superblock or place of the lane table"));
        }
        if !(POOL_PAGES_LEAST..=POOL_PAGES_MOST).contains(&self.pages) {
            return Err(Unusable::Geometry("number of pages"));
        }
        if self.lanes == 0 || self.lanes > 256 || self.piece_log2 > 9 {
            return Err(Unusable::Geometry("number of lanes or size of a table piece"));
        }
        if !(LOG_LINES_LEAST..=LOG_LINES_MOST).contains(&self.log_lines) {
            return Err(Unusable::Geometry("record lines of a log page"));
        }
        let geometry = self.geometry();
        if geometry.first_page() + 2 > geometry.end_page() {
            return Err(Unusable::Geometry("no room behind the lane table"));
        }
        if !self.twins_possible() {
            return Err(Unusable::Geometry("distance between copies of metadata"));
        }
        if !self.strips_possible() {
            return Err(Unusable::Geometry("strips of file data"));
        }
        if !geometry.holds_metadata(self.root / 8, 1) || self.session == 0 || self.epoch == 0 {
            return Err(Unusable::Geometry("root inode, session or epoch"));
        }
        let counted_out = self.session == u32::MAX || self.epoch == u32::MAX;
        if self.update > u64::MAX / 2 || counted_out {
            return Err(Unusable::Geometry("a counter that has run out"));
        }
        if self.checkpoint != 0 && !geometry.holds(self.checkpoint, 1) {
            return Err(Unusable::Geometry("place of the checkpoint"));
        }
        if self.snapshots != 0 && !geometry.holds_metadata(self.snapshots / 8, 1) {
            return Err(Unusable::Geometry("place of the list of snapshots"));
        }
        if self.sectors.is_some_and(|(sectors, _)| !sectors.is_possible(&geometry)) {
            return Err(Unusable::Geometry("place of the sector journal"));
        }
        if self.rollback >= self.epoch || self.rollback != 0 && self.snapshots == 0 {
            return Err(Unusable::Geometry("epoch to roll back to"));
        }
        Ok(())
    }

    /// Says that there is a sector journal, with its nonce, or none.
    pub(crate) fn set_sectors(&mut self, sectors: Option<(SectorArea, u64)>) {
        self.features[2] &= !FEATURE_SECTORS;
        if sectors.is_some() {
            self.features[2] |= FEATURE_SECTORS;
        }
        self.sectors = sectors;
    }

    /// Whether the distance of twins suits level and pool: the lane table and its twin do not
    /// overlap, and there is room for twins.
    fn twins_possible(&self) -> bool {
        if self.protection == Protection::None {
            return self.twin_log2 == 0;
        }
        let geometry = self.geometry();
        let apart =
            self.twin_log2 <= TWIN_LOG2_MOST && geometry.twin_pages >= geometry.first_page();
        let pieces_fit = self.piece_log2 <= self.twin_log2;
        apart && pieces_fit && 2 * geometry.twin_pages <= geometry.end_page()
    }

    /// Whether the sizes of strips and of groups suit level and pool.
    fn strips_possible(&self) -> bool {
        if self.protection != Protection::Full {
            return (self.strip_log2, self.group_log2, self.group_before) == (0, 0, 0);
        }
        let strips = (STRIP_LOG2_LEAST..=STRIP_LOG2_MOST).contains(&self.strip_log2);
        let groups = (GROUP_LOG2_LEAST..=GROUP_LOG2_MOST).contains(&self.group_log2);
        let before = self.group_before == 0
            || u64::from(self.group_before) >= self.least_before()
                && self.geometry().strips.fit_their_group();
        strips && groups && before && self.geometry().strips.pool_pages_least() <= self.pages
    }

    /// The fewest pages of a group in front of its tables: the lane table and, where that is in the same
    /// group, its twin.
    pub(crate) fn least_before(&self) -> u64 {
        let twin_pages = 1 << self.twin_log2.min(TWIN_LOG2_MOST);
        let one_group = twin_pages >> self.group_log2.min(GROUP_LOG2_MOST) == 0;
        let first = Geometry::first_page_of(self.lanes);
        if one_group { twin_pages + first } else { first }
    }

    /// Sizes and places that follow.
    pub fn geometry(&self) -> Geometry {
        let twin_pages = match self.protection {
            Protection::None => 0,
            Protection::Metadata | Protection::Full => 1 << self.twin_log2.min(TWIN_LOG2_MOST),
        };
        let log_lines = u32::from(self.log_lines);
        let (pages, lanes, strips) = (self.pages, self.lanes, Strips::NONE);
        let without = Geometry { pages, lanes, log_lines, twin_pages, strips };
        let strips = match self.protection {
            Protection::None | Protection::Metadata => strips,
            Protection::Full => {
                let before = match self.group_before {
                    0 => self.least_before(),
                    before => u64::from(before),
                };
                Strips::new(self.strip_log2, self.group_log2, before)
            }
        };
        Geometry { strips, ..without }
    }

    /// Bytes of a strip of file data, 0 where that has no checksums.
    pub fn strip_bytes(&self) -> u32 {
        if self.strip_log2 == 0 { 0 } else { 1 << self.strip_log2.min(STRIP_LOG2_MOST) }
    }

    /// What all seals begin with.
    pub fn seed(&self) -> PoolSeed {
        PoolSeed::new(&self.uuid, &self.secret)
    }

    /// The label without its padding.
    pub fn label(&self) -> &[u8] {
        let end = self.label.iter().position(|&byte| byte == 0).unwrap_or(self.label.len());
        self.label.get(..end).unwrap_or(&[])
    }

    /// Offsets of copies A and B in a pool of `pages` pages.
    pub const fn places(pages: u64) -> [u64; 2] {
        [0, (pages - 1) * PAGE_BYTES]
    }
}

const _: () = assert!(CRC_AT + 4 == SUPERBLOCK_BYTES);

/// Eight bytes of the secret as a number, for keyed hashes.
pub(crate) fn secret_word(secret: &[u8; 16], from: usize) -> u64 {
    get_u64(secret, from)
}
