//! A broken promise, with all that it takes to understand it and to see it again.

use std::fmt;

use super::CrashPath;
use crate::case::Case;
use crate::region::{Point, Site, Way};
use crate::states::{Choice, Units};
use crate::workload::pool_words;

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was found, against what was expected.
    pub what: String,
    /// The way to it; empty where no power failure was needed.
    pub path: CrashPath,
    /// Each power failure of the way.
    pub cuts: Vec<CutReport>,
    /// The case.
    pub case: Case,
}

/// One power failure.
#[derive(Clone, Debug)]
pub struct CutReport {
    /// In which operation or recovery, and at which of its points.
    pub place: String,
    /// The fence that was about to take effect.
    pub fence: Option<Site>,
    /// What was in flight.
    pub stores: Vec<StoreReport>,
    /// Which bit flips, where it is not the power that fails.
    pub bit: Option<String>,
    /// What can't be loaded, where it is not the power that fails.
    pub bad: Option<String>,
}

/// A store in flight.
#[derive(Clone, Debug)]
pub struct StoreReport {
    /// Offset of its line.
    pub line: u64,
    /// The code that made it.
    pub site: Site,
    /// How.
    pub way: Way,
    /// Its 8-byte words in the line, a bit each.
    pub words: u8,
    /// Those that reached the memory.
    pub kept: u8,
}

impl CutReport {
    /// What a choice kept of a point's stores.
    pub(super) fn new(place: String, point: &Point, units: &Units, choice: &Choice) -> Self {
        let mut stores: Vec<StoreReport> = point
            .pending
            .iter()
            .map(|store| {
                let touched = |word: &u32| store.mask >> (8 * word) & 0xFF != 0;
                let words = (0..8).filter(touched).map(|word| 1u8 << word).sum();
                let (line, site, way) = (store.line, store.site, store.way);
                StoreReport { line, site, way, words, kept: 0 }
            })
            .collect();
        for (unit, alternative) in units.units.iter().zip(&choice.0) {
            let content = &unit.alternatives[usize::from(*alternative)];
            for (store, kept) in unit.stores.iter().zip(&content.kept) {
                stores[*store].kept = stores[*store].words & kept;
            }
        }
        Self { place, fence: point.fence, stores, bit: None, bad: None }
    }

    /// The stores for people: neighbours of one line and one place in the code, of other words
    /// each, are one row.
    pub fn rows(&self) -> Vec<StoreReport> {
        let mut rows: Vec<StoreReport> = Vec::new();
        for store in &self.stores {
            let same = |last: &&mut StoreReport| {
                (last.line, last.site, last.way) == (store.line, store.site, store.way)
                    && last.words & store.words == 0
            };
            match rows.last_mut().filter(same) {
                Some(last) => {
                    last.words |= store.words;
                    last.kept |= store.kept;
                }
                None => rows.push(store.clone()),
            }
        }
        rows
    }
}

/// Rows of a report that are printed.
const SHOWN: usize = 48;

impl fmt::Display for CutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bit) = &self.bit {
            return writeln!(f, "one bit flips {}: {bit}", self.place);
        }
        if let Some(bad) = &self.bad {
            return writeln!(f, "memory can't be loaded {}: {bad}", self.place);
        }
        write!(f, "power fails in {}", self.place)?;
        match self.fence {
            Some(site) => writeln!(f, ", at the fence of {site}")?,
            None => writeln!(f, ", after its last fence")?,
        }
        if self.stores.is_empty() {
            return writeln!(f, "    nothing in flight");
        }
        let rows = self.rows();
        let shown = shown(&rows);
        for store in &shown {
            let mark = |word: u32| match (store.words >> word & 1, store.kept >> word & 1) {
                (0, _) => ' ',
                (_, 1) => '#',
                _ => '.',
            };
            let marks: String = (0..8).map(mark).collect();
            let how = match store.way {
                Way::Cached => "cached",
                Way::Words => "streamed",
                Way::Whole => "streamed whole",
            };
            writeln!(f, "    line {:#8x} [{marks}] {how} by {}", store.line, store.site)?;
        }
        if rows.len() > shown.len() {
            let of = |rows: &mut dyn Iterator<Item = &StoreReport>| {
                rows.filter(|row| row.kept == row.words).count()
            };
            let (all, listed) = (of(&mut rows.iter()), of(&mut shown.iter().copied()));
            let (more, there) = (rows.len() - shown.len(), all - listed);
            writeln!(f, "    and {more} more, {there} of which reached the memory")?;
        }
        Ok(())
    }
}

/// As many rows as are printed, in their order: those that fared as few others did are among them.
fn shown(rows: &[StoreReport]) -> Vec<&StoreReport> {
    let there = rows.iter().filter(|row| row.kept == row.words).count();
    let absent = rows.iter().filter(|row| row.kept == 0).count();
    let is_rare = |row: &StoreReport| match row.kept {
        0 => absent < there,
        kept if kept == row.words => there <= absent,
        _ => true,
    };
    let rare = rows.iter().filter(|row| is_rare(row)).count().min(SHOWN);
    let (mut rare, mut common) = (rare, SHOWN - rare);
    let mut listed = Vec::new();
    for row in rows {
        let left = if is_rare(row) { &mut rare } else { &mut common };
        if *left > 0 {
            *left -= 1;
            listed.push(row);
        }
    }
    listed
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.case.name, self.what)?;
        for cut in &self.cuts {
            write!(f, "{cut}")?;
        }
        if let Some(schedule) = &self.path.schedule {
            writeln!(f, "two threads: {}", schedule.in_words())?;
        }
        writeln!(f, "(# reached the memory, . did not; a mark for each 8-byte word)")?;
        writeln!(f, "pool {}", pool_words(&self.case.geometry))?;
        for (title, ops) in
            [("before", &self.case.before), ("ops", &self.case.ops), ("beside", &self.case.beside)]
        {
            if !ops.is_empty() {
                writeln!(f, "{title}:")?;
            }
            for op in ops {
                writeln!(f, "    {op}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_store_that_reached_the_memory_is_among_those_that_are_shown() {
        let site = Site { file: "x", line: 1 };
        let store = |line: u64| {
            let kept = if line == 77 * 64 { 0xFF } else { 0 };
            StoreReport { line, site, way: Way::Cached, words: 0xFF, kept }
        };
        let stores: Vec<StoreReport> = (0..100).map(|line| store(line * 64)).collect();
        let cut = CutReport { place: "x".into(), fence: None, stores, bit: None, bad: None };
        let text = cut.to_string();
        assert_eq!(text.matches("[########]").count(), 1, "{text}");
        assert_eq!(text.matches("[........]").count(), SHOWN - 1, "{text}");
        assert!(text.contains("and 52 more, 0 of which reached the memory"), "{text}");
    }
}
