//! How far a change of the level has come.
//!
//! Guarantees: what is told never gets smaller, and is all there is to be done only when all is done. Each part of the change has
//! its share, about as long as it takes; within a part it is pages or inodes that count.

use crate::Protection;

/// What a change consists of, in steps.
pub(super) const STEPS: u64 = 1000;
/// Of these, for what comes at the end: the pool is opened anew and closed.
const END: u64 = 20;

/// A part of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// All metadata is checked.
    Check,
    /// All file data is compared with its checksums.
    Scrub,
    /// What lies where second copies go moves away.
    MoveForCopies,
    /// Second copies are stored.
    Copies,
    /// What lies where tables of checksums and parity go moves away.
    MoveForTables,
    /// Checksums and parity are stored.
    Strips,
}

impl Part {
    /// The parts of a change, in order.
    fn of(from: Protection, to: Protection) -> &'static [Self] {
        use Part::{Check, Copies, MoveForCopies, MoveForTables, Scrub, Strips};
        use Protection::{Full, Metadata, None};
        match (from, to) {
            (None, Full) => &[Check, MoveForCopies, Copies, MoveForTables, Strips],
            (None, _) => &[Check, MoveForCopies, Copies],
            (Metadata, Full) => &[Check, MoveForTables, Strips],
            (Metadata, _) => &[Check],
            (Full, _) => &[Check, Scrub],
        }
    }

    /// How long it takes, compared with others.
    const fn weight(self) -> u64 {
        match self {
            Self::Check | Self::MoveForCopies | Self::MoveForTables => 2,
            Self::Copies => 1,
            Self::Scrub | Self::Strips => 5,
        }
    }
}

/// Tells how far a change has come.
pub(super) struct Progress<'t> {
    tell: &'t mut dyn FnMut(u64, u64),
    parts: &'static [Part],
    /// The steps of the part that it is at: from where to where.
    part: (u64, u64),
    /// The steps of the stage of that part.
    stage: (u64, u64),
    /// What was told last.
    told: Option<u64>,
}

impl<'t> Progress<'t> {
    /// Of a change between these levels, to `tell`, which gets steps done and steps in all.
    pub(super) fn new(from: Protection, to: Protection, tell: &'t mut dyn FnMut(u64, u64)) -> Self {
        let parts = Part::of(from, to);
        Self { tell, parts, part: (0, 0), stage: (0, 0), told: None }
    }

    /// This part begins.
    pub(super) fn begin(&mut self, part: Part) {
        let weights = |parts: &[Part]| parts.iter().map(|part| part.weight()).sum::<u64>();
        let at = self.parts.iter().position(|one| *one == part).unwrap_or(self.parts.len());
        let (before, rest) = self.parts.split_at(at);
        let step = |weight: u64| (STEPS - END) * weight / weights(self.parts).max(1);
        let first = weights(before);
        let own = rest.first().map_or(0, |part| part.weight());
        self.part = (step(first), step(first + own));
        self.stage = self.part;
        self.set(0, 1);
    }

    /// Stage `stage` of `stages` of round `round` of the part begins, of which there may be any number: each round has half of
    /// what is left.
    pub(super) fn at_round(&mut self, round: u32, stage: u64, stages: u64) {
        let (from, to) = self.part;
        let left = |round: u32| (to - from).checked_shr(round).unwrap_or_default();
        let (first, len) = (to - left(round), left(round) - left(round + 1));
        let step = |stage: u64| first + len * stage / stages.max(1);
        self.stage = (step(stage), step(stage + 1));
        self.set(0, 1);
    }

    /// `done` of `all` there is in this stage is done.
    pub(super) fn set(&mut self, done: u64, all: u64) {
        let (from, to) = self.stage;
        let (done, all) = (done.min(all), all.max(1));
        self.tell(from + (to - from).saturating_mul(done) / all);
    }

    /// All is done.
    pub(super) fn end(&mut self) {
        self.tell(STEPS);
    }

    fn tell(&mut self, step: u64) {
        if self.told.is_none_or(|told| told < step) {
            self.told = Some(step);
            (self.tell)(step, STEPS);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn it_never_goes_back_and_all_is_done_at_the_end_alone() {
        let levels = || Protection::ALL.into_iter();
        let all = levels()
            .flat_map(|from| levels().flat_map(move |to| [(from, to, false), (from, to, true)]));
        for (from, to, by_rounds) in all {
            let mut told: Vec<u64> = Vec::new();
            let mut tell = |done, all| {
                assert_eq!(all, STEPS);
                told.push(done);
            };
            let mut progress = Progress::new(from, to, &mut tell);
            for part in Part::of(from, to) {
                progress.begin(*part);
                if !by_rounds {
                    (0..=100).for_each(|done| progress.set(done, 100));
                    continue;
                }
                // More rounds than there are steps, each of which finds more to do when it is at it.
                for (round, stage) in (0..70).flat_map(|round| (0..3).map(move |at| (round, at))) {
                    progress.at_round(round, stage, 3);
                    (0..100).for_each(|done| progress.set(done, 60 + done / 2));
                }
            }
            progress.end();
            assert!(told.is_sorted_by(|one, next| one < next), "{from:?} {to:?}: {told:?}");
            assert_eq!((told.first(), told.last()), (Some(&0), Some(&STEPS)));
            assert!(told.len() < 2 || told[told.len() - 2] <= STEPS - END, "{told:?}");
            let widest = told.windows(2).map(|two| two[1] - two[0]).max();
            assert!(widest <= Some(END), "{from:?} {to:?}: {told:?}");
        }
    }
}
