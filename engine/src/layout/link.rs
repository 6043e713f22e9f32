//! Link words: one aligned 8-byte word that names a page and its life (PROTOCOL F3).

use super::seal::{PoolSeed, tag_of};

const PAGE_BITS: u32 = 34;
const TAG_BITS: u32 = 16;
const INLINE_DEAD: u64 = 1 << 50;
const RESERVED: u64 = 1 << 51;
const LOW_BITS: u32 = 52;
const LOW: u64 = (1 << LOW_BITS) - 1;

/// A link to a page: of a log, or of an inode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Page number of the target, never 0.
    pub page: u64,
    /// Low 16 bits of the tag of the target's nonce.
    pub tag: u16,
    /// Of a head only: the inline slots are dead, the log begins at the target.
    pub inline_dead: bool,
}

impl Link {
    /// A link to `page`, whose nonce is `nonce`.
    pub const fn new(page: u64, nonce: u64, inline_dead: bool) -> Self {
        Self { page, tag: tag_of(nonce) as u16, inline_dead }
    }

    /// The word to store at offset `at`.
    pub fn word(&self, seed: &PoolSeed, at: u64) -> u64 {
        let flag = if self.inline_dead { INLINE_DEAD } else { 0 };
        sealed(self.page | u64::from(self.tag) << PAGE_BITS | flag, seed, at)
    }

    /// The word at offset `at` that says there is no link.
    pub fn none(seed: &PoolSeed, at: u64) -> u64 {
        sealed(0, seed, at)
    }

    /// Reads the word at offset `at`: `None` for no link, `Err` for damage.
    pub fn parse(word: u64, seed: &PoolSeed, at: u64) -> Result<Option<Self>, &'static str> {
        if word != sealed(word & LOW, seed, at) {
            return Err("link word has a wrong check");
        }
        Self::parse_unchecked(word)
    }

    /// As [`Link::parse`], the check apart.
    pub fn parse_unchecked(word: u64) -> Result<Option<Self>, &'static str> {
        let low = word & LOW;
        if low == 0 {
            return Ok(None);
        }
        let page = low & ((1 << PAGE_BITS) - 1);
        if page == 0 || low & RESERVED != 0 {
            return Err("link word is impossible");
        }
        let tag = (low >> PAGE_BITS & ((1 << TAG_BITS) - 1)) as u16;
        Ok(Some(Self { page, tag, inline_dead: low & INLINE_DEAD != 0 }))
    }

    /// Whether a target with this nonce is the one that was meant.
    pub const fn names(&self, nonce: u64) -> bool {
        self.tag == tag_of(nonce) as u16
    }
}

fn sealed(low: u64, seed: &PoolSeed, at: u64) -> u64 {
    low | u64::from(seed.link_check(at, low)) << LOW_BITS
}

const _: () = assert!(PAGE_BITS + TAG_BITS == 50);
