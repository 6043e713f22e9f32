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

/// (No word is 0: damage that leaves zeros must not say "no link", nor count beside a copy that is right.)
fn sealed(low: u64, seed: &PoolSeed, at: u64) -> u64 {
    match low | u64::from(seed.link_check(at, low)) << LOW_BITS {
        0 => CHECK_FOR_ZERO << LOW_BITS,
        word => word,
    }
}

/// The check of "no link" where its sum is 0.
const CHECK_FOR_ZERO: u64 = 0xfff;

const _: () = assert!(PAGE_BITS + TAG_BITS == 50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_zeros_is_a_link_nowhere() {
        let seed = PoolSeed::new(&[7; 16], &[9; 16]);
        let mut zero_sums = 0;
        for at in (0..8 << 20).step_by(64) {
            zero_sums += u32::from(seed.link_check(at, 0) == 0);
            assert!(Link::parse(0, &seed, at).is_err(), "{at:#x}");
            assert_eq!(Link::parse(Link::none(&seed, at), &seed, at), Ok(None));
        }
        assert!(zero_sums > 10, "{zero_sums}");
    }
}
