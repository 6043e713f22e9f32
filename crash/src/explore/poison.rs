//! Besides what a crash left, a line of memory can't be loaded, or 512 bytes: of what was looked at when the state was
//! judged, half of it what was in flight.
//!
//! What is looked at then is not logged: states are told apart by what they show where nothing is bad.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::Protection;
use lode_testkit::rng::Rng;
use lode_testkit::run::panic_text;

use super::cuts::Wrong;
use super::path::Stage;
use super::{CutReport, Explorer, Leg};
use crate::judge::{Allowed, Bad, Look};
use crate::region::{Pages, Watch};
use crate::states::Choice;

const LINE: u64 = 64;
/// Lines of a block.
const BLOCK: u64 = 8;
/// Where there is something to restore memory from, that many times more of the states are tried.
const MORE: u64 = 8;

impl Explorer<'_> {
    /// Of one state in so many, some memory can't be loaded; 0 for none.
    pub(super) fn poisoned_every(&self) -> u64 {
        let every = self.limits.poisoned_every;
        match self.setup.geometry.format().protection {
            Protection::None => every,
            _ if every == 0 => 0,
            _ => (every / MORE).max(1),
        }
    }

    /// Judges a state that is right once more, with bad memory; `dice` is equal for states that look the same.
    pub(super) fn poisoned(
        &mut self,
        image: &Pages,
        allowed: &[Allowed<'_>],
        dice: u64,
    ) -> Result<(), Wrong> {
        let replayed = self.only.map(|legs| legs.first().filter(|leg| is_within(leg, image)));
        let all = match replayed {
            Some(leg) => leg.map(bad_of).into_iter().collect(),
            None => self.drawn(dice),
        };
        for bad in all {
            let setup = self.setup;
            let judged = catch_unwind(AssertUnwindSafe(|| {
                Look { mends: true, ..Look::new(setup, allowed, Vec::new()) }.poisoned(image, &bad)
            }));
            let judged = judged.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
            self.tally.poisoned += 1;
            let (place, bad_words) = ("of what that left".to_owned(), Some(bad.to_string()));
            let cut =
                CutReport { place, fence: None, stores: Vec::new(), bit: None, bad: bad_words };
            if replayed.is_some() {
                self.note_cut(cut.clone());
            }
            let (step, point) = (bad.lines as usize, (bad.at / LINE) as usize);
            let leg = Leg { stage: Stage::Poison, step, point, choice: Choice(vec![0]) };
            judged.map_err(|what| Wrong::from(what).after(leg, cut))?;
        }
        Ok(())
    }

    /// Memory that was looked at: some that was in flight, and any.
    fn drawn(&self, dice: u64) -> Vec<Bad> {
        let mut rng = Rng::new(dice);
        let in_flight = self.watches.last().map(Watch::log).unwrap_or_default();
        let all = self.looked.log();
        let mut found = Vec::new();
        for lines in [in_flight, all].iter().filter(|lines| !lines.is_empty()) {
            let at = lines[rng.below(lines.len() as u64) as usize];
            let block = Bad { at: at / (BLOCK * LINE) * (BLOCK * LINE), lines: BLOCK };
            found.push(if rng.once_in(2) { block } else { Bad { at, lines: 1 } });
        }
        found
    }
}

fn bad_of(leg: &Leg) -> Bad {
    Bad { at: leg.point as u64 * LINE, lines: leg.step as u64 }
}

/// Whether an id speaks of memory that there is.
fn is_within(leg: &&Leg, image: &Pages) -> bool {
    let lines = (image.bytes() / LINE) as usize;
    leg.point < lines && leg.step <= lines - leg.point
}
