//! A set of numbers in which the next one is found in a few steps: a bit for each number, one for each word of these that has
//! any, and so on.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::gauges::list_bytes;

const WORD: usize = u64::BITS as usize;

/// Numbers below a limit.
pub(super) struct Marks {
    /// A bit for each number; then for each word before.
    levels: Vec<Vec<u64>>,
}

impl Marks {
    /// None yet, with room for those below `limit`.
    pub(super) fn new(limit: usize) -> Result<Self> {
        let mut levels = Vec::new();
        let mut left = limit;
        loop {
            left = left.div_ceil(WORD).max(1);
            let mut words = Vec::new();
            words.try_reserve_exact(left)?;
            words.resize(left, 0);
            levels.try_reserve(1).map_err(|_| Error::NoMemory)?;
            levels.push(words);
            if left == 1 {
                return Ok(Self { levels });
            }
        }
    }

    /// Adds a number below the limit.
    #[inline]
    pub(super) fn add(&mut self, number: usize) {
        let mut at = number;
        for words in &mut self.levels {
            let Some(bits) = words.get_mut(at / WORD) else { return };
            let was_empty = *bits == 0;
            *bits |= 1 << (at % WORD);
            if !was_empty {
                return;
            }
            at /= WORD;
        }
    }

    /// Takes one out.
    #[inline]
    pub(super) fn remove(&mut self, number: usize) {
        let mut at = number;
        for words in &mut self.levels {
            let Some(bits) = words.get_mut(at / WORD) else { return };
            *bits &= !(1 << (at % WORD));
            if *bits != 0 {
                return;
            }
            at /= WORD;
        }
    }

    /// The smallest from `from` on.
    #[inline]
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for (level, words) in self.levels.iter().enumerate() {
            let found = words.get(at / WORD)? & (u64::MAX << (at % WORD));
            if found != 0 {
                let first = at / WORD * WORD + found.trailing_zeros() as usize;
                return self.down(level, first, |bits| bits.trailing_zeros());
            }
            at = at / WORD + 1;
        }
        None
    }

    /// The largest of all.
    pub(super) fn last(&self) -> Option<usize> {
        self.down(self.levels.len(), 0, |bits| WORD as u32 - 1 - bits.leading_zeros())
    }

    /// The number that is found below a bit of this level. (Where memory has lost something, none.)
    #[inline]
    fn down(&self, level: usize, bit: usize, choose: fn(u64) -> u32) -> Option<usize> {
        let mut at = bit;
        for words in self.levels.get(..level)?.iter().rev() {
            let bits = *words.get(at)?;
            if bits == 0 {
                return None;
            }
            at = at * WORD + choose(bits) as usize;
        }
        Some(at)
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        let bits = self.levels.first().into_iter().flatten();
        bits.map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Whether this one is there.
    pub(super) fn has(&self, number: usize) -> bool {
        self.next(number) == Some(number)
    }

    /// Bytes of memory that this takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.levels.iter().map(|words| list_bytes::<u64>(words.capacity())).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::space::tests::Dice;
    use alloc::collections::BTreeSet;

    #[test]
    fn marks_say_what_a_set_would() {
        for (limit, seed) in [(1, 1), (64, 2), (65, 3), (5000, 4), (300_000, 5)] {
            let mut dice = Dice(seed);
            let (mut marks, mut set) = (Marks::new(limit).unwrap(), BTreeSet::new());
            for step in 0..4000u64 {
                let number = dice.roll(limit as u64) as usize;
                if dice.roll(3) == 0 || step > 3000 {
                    marks.remove(number);
                    set.remove(&number);
                    if let Some(&one) = set.first().filter(|_| step > 3000) {
                        marks.remove(one);
                        set.remove(&one);
                    }
                } else {
                    marks.add(number);
                    set.insert(number);
                }
                let from = dice.roll(limit as u64) as usize;
                assert_eq!(marks.next(from), set.range(from..).next().copied());
                assert_eq!(marks.last(), set.last().copied());
                assert_eq!(marks.count(), set.len() as u64);
                assert_eq!(marks.has(from), set.contains(&from));
            }
        }
    }
}
