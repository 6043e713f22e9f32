//! Random numbers that cost next to nothing.

/// A generator of 64-bit numbers (xorshift64*), the same on every run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that differ from those of every other `seed`.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds are to give distant beginnings.
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`, which is less than 2^32; 0 where that is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (high * limit) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_reach_every_place_about_equally() {
        let mut random = Random::new(0);
        let mut hits = [0u32; 16];
        for _ in 0..16_000 {
            hits[random.below(16) as usize] += 1;
        }
        assert!(hits.iter().all(|hits| (800..1200).contains(hits)), "{hits:?}");
        assert_eq!(random.below(0), 0);
    }
}
