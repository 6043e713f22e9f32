//! Which of the lines that differ between images a run has looked at.
//!
//! Guarantee: the log names every watched line of which a run loaded a byte that the image gave
//! it (and not the run's own stores), in the order of the first loads. A run is deterministic, so
//! two images that agree on the lines of the log give the same run. Several runs that begin with
//! the same image can share a log.

use lode_pmem::LINE_BYTES;

const LINE: u64 = LINE_BYTES as u64;
const LINES_A_PAGE: u64 = 64;

/// The lines that a run has stored as a whole: what it loads of these is its own.
#[derive(Clone, Debug, Default)]
pub struct Own(Vec<u64>);

impl Own {
    /// None of the lines of a region of `bytes`.
    pub fn none(bytes: u64) -> Self {
        Self(vec![0; (bytes / LINE / LINES_A_PAGE) as usize])
    }

    /// Notes that the whole line at `at` was stored.
    pub(super) fn stored(&mut self, at: u64) {
        let line = at / LINE;
        if let Some(page) = self.0.get_mut((line / LINES_A_PAGE) as usize) {
            *page |= 1 << (line % LINES_A_PAGE);
        }
    }

    fn page(&self, page: u64) -> u64 {
        self.0.get(page as usize).copied().unwrap_or_default()
    }
}

/// The watched lines that were not loaded yet, and those that were.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Not loaded yet: a bit for each watched line, a word for each page.
    left: Vec<u64>,
    /// Numbers of lines, in the order of their first loads.
    log: Vec<u32>,
}

impl Watch {
    /// Watches these lines (offsets) of a region of `bytes`.
    pub fn new(bytes: u64, lines: impl IntoIterator<Item = u64>) -> Self {
        let pages = (bytes / LINE / LINES_A_PAGE) as usize;
        let mut left = vec![0; pages];
        for at in lines {
            let line = at / LINE;
            left[(line / LINES_A_PAGE) as usize] |= 1 << (line % LINES_A_PAGE);
        }
        Self { left, log: Vec::new() }
    }

    /// Watches all lines of a region of `bytes`.
    pub fn all(bytes: u64) -> Self {
        let pages = (bytes / LINE / LINES_A_PAGE) as usize;
        Self { left: vec![u64::MAX; pages], log: Vec::new() }
    }

    /// Offsets of the lines that were loaded, in order.
    pub fn log(&self) -> Vec<u64> {
        self.log.iter().map(|line| u64::from(*line) * LINE).collect()
    }

    /// Numbers of the lines that were loaded, in order.
    pub fn lines(&self) -> impl Iterator<Item = u32> + '_ {
        self.log.iter().copied()
    }

    /// A run that was watched before, and looked at these lines, is not run again; before it `own` were stored.
    pub fn replay(&mut self, lines: &[u32], own: &Own) {
        for line in lines {
            self.loaded_line(u64::from(*line), own);
        }
    }

    /// Notes a load within one line, as nearly all are.
    fn loaded_line(&mut self, line: u64, own: &Own) {
        let page = line / LINES_A_PAGE;
        let left = &mut self.left[page as usize];
        let hit = *left & 1 << (line % LINES_A_PAGE);
        if hit != 0 && own.page(page) & hit == 0 {
            *left &= !hit;
            self.log.push(line as u32);
        }
    }

    /// Notes a load of `len` bytes at `at` by a run that has stored `own`.
    pub(super) fn loaded(&mut self, at: u64, len: u64, own: &Own) {
        if len == 0 {
            return;
        }
        let (first, last) = (at / LINE, (at + len - 1) / LINE);
        if first == last {
            return self.loaded_line(first, own);
        }
        for page in first / LINES_A_PAGE..=last / LINES_A_PAGE {
            let left = &mut self.left[page as usize];
            if *left == 0 {
                continue;
            }
            let from = first.saturating_sub(page * LINES_A_PAGE);
            let to = (last - page * LINES_A_PAGE).min(LINES_A_PAGE - 1);
            let mask = (u64::MAX << from) & (u64::MAX >> (LINES_A_PAGE - 1 - to));
            let mut hit = *left & mask & !own.page(page);
            *left &= !hit;
            while hit != 0 {
                self.log.push((page * LINES_A_PAGE) as u32 + hit.trailing_zeros());
                hit &= hit - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_loads_are_logged_once_and_in_order() {
        let mut watch = Watch::new(8192, [0, 128, 4096, 4160]);
        let own = Own::none(8192);
        watch.loaded(64, 64, &own);
        assert!(watch.log().is_empty());
        watch.loaded(4100, 8, &own);
        watch.loaded(120, 4000, &own);
        watch.loaded(0, 8192, &own);
        assert_eq!(watch.log(), [4096, 128, 0, 4160]);
    }

    #[test]
    fn what_a_run_wrote_itself_is_not_logged() {
        let mut watch = Watch::new(4096, [0, 64]);
        let mut own = Own::none(4096);
        own.stored(64);
        watch.loaded(0, 4096, &own);
        assert_eq!(watch.log(), [0]);
    }

    #[test]
    fn what_one_run_wrote_is_the_images_for_another() {
        let mut watch = Watch::all(4096);
        let mut own = Own::none(4096);
        own.stored(64);
        watch.loaded(0, 128, &own);
        watch.loaded(0, 192, &Own::none(4096));
        assert_eq!(watch.log(), [0, 64, 128]);
        let mut other = Watch::new(4096, [64, 128, 192]);
        let lines: Vec<u32> = watch.lines().collect();
        other.replay(&lines, &Own::default());
        assert_eq!(other.log(), [64, 128]);
        let mut third = Watch::new(4096, [64, 128, 192]);
        third.replay(&lines, &own);
        assert_eq!(third.log(), [128]);
    }
}
