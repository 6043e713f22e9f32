//! The bytes on the medium, typed. `docs/format.md` describes each of them.
//!
//! Parsing happens here and nowhere else: what leaves this module as a type has
//! had its seal checked, or says in its name that it has not.

mod anchor;
mod bad;
mod bytes;
mod checkpoint;
mod geometry;
mod lane;
mod link;
mod locator;
mod record;
mod seal;
mod sector;
mod strips;
mod superblock;

pub use anchor::{Anchor, HEAD_AT, IDENTITY_ATIME_AT, Identity, LogHeader, PieceHeader};
pub use bad::{BAD_AT, BAD_PAGES_MOST, BadPage};
pub(crate) use bad::{BAD_IN_LINE, bad_crc, bad_line, bad_pages_in, bad_possible};
pub(crate) use bytes::{get_u64, put_u64};
pub use checkpoint::{SEGMENT_HEADER_BYTES, Segment};
pub use geometry::{
    DEATH_LINE, Geometry, INLINE_LINES, LINE, LOG_LINES_LEAST, LOG_LINES_MOST, POOL_PAGES_LEAST,
    POOL_PAGES_MOST, SLOT_BYTES, ino_of, slot_at,
};
pub use lane::{LANE_BYTES, LANE_CHAIN_AT, Watermark};
pub use link::Link;
pub use locator::{LOCATOR_AT, located, locator};
pub use record::{
    Body, Header, Parsed, TEXT_BYTES, Txid, XATTR_RUN_BYTES, XATTR_RUNS_MAX, XATTR_TEXT_MAX,
    text_lines,
};
pub use seal::{LogSeed, PoolSeed, SEAL_AT, put_seal, stored_seal, tag_of};
pub use sector::{SECTOR_PAGES_MOST, SectorArea, SectorLine};
pub use strips::{
    CRC_BYTES, CrcTable, GROUP_LOG2_LEAST, GROUP_LOG2_MOST, PAGE_STRIPS_MOST, STRIP_LOG2_LEAST,
    STRIP_LOG2_MOST, Strips,
};
pub(crate) use superblock::secret_word;
pub use superblock::{
    FEATURE_EXEMPT, FEATURE_SECTORS, FEATURE_SNAPSHOTS, FEATURES_COMPATIBLE, FEATURES_INCOMPATIBLE,
    FEATURES_READ_ONLY, FORMAT_VERSION, SUPERBLOCK_BYTES, Superblock, TWIN_LOG2_MOST,
};
