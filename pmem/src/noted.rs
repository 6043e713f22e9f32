//! Where loads have met bad memory, until somebody asks.
//!
//! What this file guarantees: to note takes no lock and no memory. What finds no room is not noted: it is met again.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::LINE_BYTES;

/// Lines that are remembered.
const LINES_MAX: usize = 32;

/// Numbers of lines, and 1; 0 is a free place.
#[derive(Debug)]
pub(crate) struct Noted([AtomicU64; LINES_MAX]);

impl Default for Noted {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; LINES_MAX])
    }
}

impl Noted {
    /// Notes the line that `at` is in.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&self, at: u64) {
        let line = at / LINE_BYTES as u64 + 1;
        for place in &self.0 {
            // (Where much is bad, nearly all places are taken: only a free one is worth an exchange.)
            let known = match place.load(Acquire) {
                0 => place.compare_exchange(0, line, AcqRel, Acquire).err().unwrap_or(line),
                other => other,
            };
            if known == line {
                return;
            }
        }
    }

    /// Calls `each` with the offset of each line, and forgets it.
    pub(crate) fn take(&self, each: &mut dyn FnMut(u64)) {
        for place in &self.0 {
            if place.load(Relaxed) != 0
                && let Some(line) = place.swap(0, AcqRel).checked_sub(1)
            {
                each(line * LINE_BYTES as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_told_once() {
        let noted = Noted::default();
        for at in [70, 64, 0, 127, 4096] {
            noted.note(at);
        }
        let mut told = [0; 4];
        let mut count = 0;
        noted.take(&mut |at| {
            told[count] = at;
            count += 1;
        });
        assert_eq!((told, count), ([64, 0, 4096, 0], 3));
        noted.take(&mut |_| count += 1);
        assert_eq!(count, 3);
    }
}
