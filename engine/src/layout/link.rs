//! Link words: one aligned 8-byte word that names a page and its life (PROTOCOL F3).

use super::seal::{PoolSeed, tag_of};

const PAGE_BITS: u32 = 36;
const TAG_BITS: u32 = 16;
const INLINE_DEAD: u64 = 1 << 52;
const LOW: u64 = (1 << 56) - 1;
const RESERVED: u64 = 0b111 << 53;

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
        let low = self.page | u64::from(self.tag) << PAGE_BITS | flag;
        low | u64::from(seed.link_check(at, low)) << 56
    }

    /// Reads the word at offset `at`: `None` for no link, `Err` for damage.
    pub fn parse(word: u64, seed: &PoolSeed, at: u64) -> Result<Option<Self>, &'static str> {
        if word == 0 {
            return Ok(None);
        }
        let low = word & LOW;
        if (word >> 56) as u8 != seed.link_check(at, low) {
            return Err("link word has a wrong check");
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

const _: () = assert!(PAGE_BITS + TAG_BITS == 52);
