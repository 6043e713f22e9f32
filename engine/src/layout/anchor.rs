//! Anchor lines: an inode's identity, the headers of log pages and of table pieces.
//!
//! Written once in a life; behind the sealed bytes stand two words that change.

use lode_pmem::Line;

use super::Link;
use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use super::seal::{PoolSeed, put_seal, stored_seal};

/// Place of the link word in an anchor line.
pub const HEAD_AT: u64 = 40;
/// Place of the access time word in an identity line.
pub const IDENTITY_ATIME_AT: u64 = 48;

const IDENTITY: u32 = u32::from_le_bytes(*b"LINO");
const LOG_HEADER: u32 = u32::from_le_bytes(*b"LLOG");
const PIECE_HEADER: u32 = u32::from_le_bytes(*b"LTBL");

/// A line that anchors a chain.
pub trait Anchor: Sized {
    /// The line, sealed for offset `at`, with this link.
    fn line(&self, seed: &PoolSeed, at: u64, link: Option<Link>) -> Line;
    /// What a line found at offset `at` says, sealed or not; `None` if it can't be one there.
    fn read(line: &Line, at: u64) -> Option<Self>;
    /// The nonce that seals it.
    fn nonce(&self) -> u64;
    /// Reads a line found at offset `at`; `None` if it is not a valid one.
    fn parse(line: &Line, seed: &PoolSeed, at: u64) -> Option<Self> {
        let anchor = Self::read(line, at)?;
        (stored_seal(line) == seed.anchor(line, anchor.nonce(), at)).then_some(anchor)
    }
}

/// The identity of an inode: one life of its slot (PROTOCOL F3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Inode number.
    pub ino: u64,
    /// Nonce of this life.
    pub nonce: u64,
}

/// The header of a log page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// Inode number of the owner.
    pub ino: u64,
    /// Nonce of the owner.
    pub owner_nonce: u64,
    /// Nonce of this page.
    pub nonce: u64,
}

/// The header of a piece of inode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceHeader {
    /// log2 of its pages, 0 to 9.
    pub log2_pages: u8,
    /// The lane it belongs to.
    pub lane: u8,
    /// Page number of the piece.
    pub page: u64,
    /// Nonce of this life.
    pub nonce: u64,
}

fn sealed(mut line: Line, seed: &PoolSeed, nonce: u64, at: u64, link: Option<Link>) -> Line {
    let link_at = at + HEAD_AT;
    let word = link.map_or(Link::none(seed, link_at), |link| link.word(seed, link_at));
    put_u64(&mut line.0, HEAD_AT as usize, word);
    let seal = seed.anchor(&line, nonce, at);
    put_seal(&mut line, seal);
    line
}

fn is_a(line: &Line, magic: u32) -> bool {
    get_u32(&line.0, 0) == magic
}

impl Anchor for Identity {
    fn line(&self, seed: &PoolSeed, at: u64, link: Option<Link>) -> Line {
        let mut line = Line::ZERO;
        put_u32(&mut line.0, 0, IDENTITY);
        put_u64(&mut line.0, 8, self.ino);
        put_u64(&mut line.0, 16, self.nonce);
        sealed(line, seed, self.nonce, at, link)
    }

    fn read(line: &Line, at: u64) -> Option<Self> {
        let identity = Self { ino: get_u64(&line.0, 8), nonce: get_u64(&line.0, 16) };
        (is_a(line, IDENTITY) && identity.ino == super::ino_of(at)).then_some(identity)
    }

    fn nonce(&self) -> u64 {
        self.nonce
    }
}

impl Anchor for LogHeader {
    fn line(&self, seed: &PoolSeed, at: u64, link: Option<Link>) -> Line {
        let mut line = Line::ZERO;
        put_u32(&mut line.0, 0, LOG_HEADER);
        put_u64(&mut line.0, 8, self.ino);
        put_u64(&mut line.0, 16, self.owner_nonce);
        put_u64(&mut line.0, 24, self.nonce);
        sealed(line, seed, self.nonce, at, link)
    }

    fn read(line: &Line, _: u64) -> Option<Self> {
        let header = Self {
            ino: get_u64(&line.0, 8),
            owner_nonce: get_u64(&line.0, 16),
            nonce: get_u64(&line.0, 24),
        };
        is_a(line, LOG_HEADER).then_some(header)
    }

    fn nonce(&self) -> u64 {
        self.nonce
    }
}

impl Anchor for PieceHeader {
    fn line(&self, seed: &PoolSeed, at: u64, link: Option<Link>) -> Line {
        let mut line = Line::ZERO;
        put_u32(&mut line.0, 0, PIECE_HEADER);
        line.0[4] = self.log2_pages;
        line.0[5] = self.lane;
        put_u64(&mut line.0, 8, self.page);
        put_u64(&mut line.0, 16, self.nonce);
        sealed(line, seed, self.nonce, at, link)
    }

    fn read(line: &Line, at: u64) -> Option<Self> {
        let header = Self {
            log2_pages: line.0[4],
            lane: line.0[5],
            page: get_u64(&line.0, 8),
            nonce: get_u64(&line.0, 16),
        };
        let placed = header.page == at / crate::PAGE_BYTES && header.log2_pages <= 9;
        (is_a(line, PIECE_HEADER) && placed).then_some(header)
    }

    fn nonce(&self) -> u64 {
        self.nonce
    }
}
