//! Which of the lines that differ between images a run has looked at.
//!
//! Guarantee: the log names every watched line of which a run loaded a byte that the image gave
//! it (and not the run's own stores), in the order of the first loads. A run is deterministic, so
//! two images that agree on the lines of the log give the same run.

use lode_pmem::LINE_BYTES;

const LINE: u64 = LINE_BYTES as u64;
const LINES_A_PAGE: u64 = 64;

/// The watched lines that were not loaded yet, and those that were.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// A bit for each watched line, a word for each page.
    left: Vec<u64>,
    log: Vec<u64>,
}

impl Watch {
    /// Watches these lines (offsets) of a region of `bytes`.
    pub fn new(bytes: u64, lines: impl IntoIterator<Item = u64>) -> Self {
        let mut left = vec![0; (bytes / LINE / LINES_A_PAGE) as usize];
        for at in lines {
            let line = at / LINE;
            left[(line / LINES_A_PAGE) as usize] |= 1 << (line % LINES_A_PAGE);
        }
        Self { left, log: Vec::new() }
    }

    /// The lines that were loaded, in order.
    pub fn log(&self) -> &[u64] {
        &self.log
    }

    /// Notes a load of `len` bytes at `at`.
    pub(super) fn loaded(&mut self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, last) = (at / LINE, (at + len - 1) / LINE);
        for page in first / LINES_A_PAGE..=last / LINES_A_PAGE {
            let left = &mut self.left[page as usize];
            if *left == 0 {
                continue;
            }
            let from = first.saturating_sub(page * LINES_A_PAGE);
            let to = (last - page * LINES_A_PAGE).min(LINES_A_PAGE - 1);
            let mask = (u64::MAX << from) & (u64::MAX >> (LINES_A_PAGE - 1 - to));
            let mut hit = *left & mask;
            *left &= !mask;
            while hit != 0 {
                self.log.push((page * LINES_A_PAGE + u64::from(hit.trailing_zeros())) * LINE);
                hit &= hit - 1;
            }
        }
    }

    /// Notes that the whole line at `at` is the run's own from now on.
    pub(super) fn overwritten(&mut self, at: u64) {
        let line = at / LINE;
        self.left[(line / LINES_A_PAGE) as usize] &= !(1 << (line % LINES_A_PAGE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_loads_are_logged_once_and_in_order() {
        let mut watch = Watch::new(8192, [0, 128, 4096, 4160]);
        watch.loaded(64, 64);
        assert!(watch.log().is_empty());
        watch.loaded(4100, 8);
        watch.loaded(120, 4000);
        watch.loaded(0, 8192);
        assert_eq!(watch.log(), [4096, 128, 0, 4160]);
    }

    #[test]
    fn what_a_run_wrote_itself_is_not_logged() {
        let mut watch = Watch::new(4096, [0, 64]);
        watch.overwritten(64);
        watch.loaded(0, 4096);
        assert_eq!(watch.log(), [0]);
    }
}
