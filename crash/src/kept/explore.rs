//! Cuts the power in the steps of a case.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_testkit::rng::{Rng, mix};
use lode_testkit::run::panic_text;

use super::judge::{Allowed, judge};
use super::run::{Known, Loose, Run, open};
use super::{KeptCase, Step};
use crate::region::{LeftOut, Pages, Point, Profile, Rules, Simulated, Watch};
use crate::states::{Budget, Choice, Judged, explore_point, units_of};

/// States of each point inside an opening.
const INSIDE: Budget = Budget { whole: 10, torn: 3 };

/// What was looked at.
#[derive(Clone, Debug, Default)]
pub struct KeptTally {
    /// Moments at which the power failed, in steps and in openings.
    pub points: u64,
    /// States that were judged.
    pub judged: u64,
    /// Those among them that a crash inside an opening has left.
    pub inside: u64,
    /// Places in the code that fenced or wrote back.
    pub sites: BTreeSet<LeftOut>,
}

/// A state that is wrong.
#[derive(Clone, Debug)]
pub struct KeptFailure {
    /// The case, the step and the point.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for KeptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

struct Explorer<'c> {
    case: &'c KeptCase,
    rules: Rules,
    budget: Budget,
    inside_every: u64,
    tally: KeptTally,
}

/// Explores a case under these rules of the memory; `budget` states of each point are judged, at most, and the opening of one in
/// `inside_every` is cut off, too.
///
/// # Errors
/// The first state that is wrong, or a step that fails.
pub fn explore_kept(
    case: &KeptCase,
    rules: Rules,
    budget: Budget,
    inside_every: u64,
) -> Result<KeptTally, KeptFailure> {
    let mut explorer = Explorer { case, rules, budget, inside_every, tally: KeptTally::default() };
    let done = catch_unwind(AssertUnwindSafe(|| explorer.case()));
    let done =
        done.unwrap_or_else(|payload| Err(explorer.failure("", panic_text(payload.as_ref()))));
    done.map(|()| explorer.tally)
}

impl Explorer<'_> {
    fn failure(&self, place: &str, what: String) -> KeptFailure {
        let KeptCase { name, ground, .. } = self.case;
        let place = format!("{name}, {ground:?}, {}: {place}", self.rules.profile);
        KeptFailure { place, what }
    }

    fn case(&mut self) -> Result<(), KeptFailure> {
        let failed = |explorer: &Self, what| explorer.failure("a step", what);
        let mut run = Run::new(self.case, self.rules).map_err(|what| failed(self, what))?;
        for step in &self.case.before {
            run.step(step).map_err(|what| failed(self, what))?;
        }
        for (number, step) in self.case.steps.iter().enumerate() {
            let (before, loose) = (run.known.clone(), run.loose(step));
            let medium = run.medium.clone();
            medium.record(true);
            run.step(step).map_err(|what| failed(self, what))?;
            medium.record(false);
            let mut points = medium.take_points();
            points.push(medium.point());
            let mut in_flight = points.len() - 1;
            if self.rules.profile == Profile::Eadr {
                // What was stored is durable: only before the return may it be missing.
                medium.settle();
                points.push(medium.point());
                in_flight += 1;
            }
            // (Who makes a heap over another may be left without any.)
            let none = Known::default();
            let is_made = *step == Step::Create;
            let between: &[&Known] = if is_made { &[&none] } else { &[] };
            let all = [between, &[&before, &run.known]].concat();
            for (at, point) in points.iter().enumerate() {
                let place =
                    format!("step {number}, {step:?}, point {} of {}", at + 1, points.len());
                let known = if at < in_flight { &all[..] } else { &all[all.len() - 1..] };
                let loose = if at < in_flight { loose.clone() } else { Loose::Nothing };
                self.point(point, &place, &Allowed { known, loose }, true)?;
            }
        }
        self.tally.sites.extend(run.medium.sites().into_keys());
        Ok(())
    }

    /// The states of a point.
    fn point(
        &mut self,
        point: &Point,
        place: &str,
        allowed: &Allowed<'_>,
        is_outer: bool,
    ) -> Result<(), KeptFailure> {
        self.tally.points += 1;
        let budget = if is_outer { self.budget } else { INSIDE };
        let units = units_of(point, self.rules.profile, budget.all_tears());
        let mut rng = Rng::new(mix(self.tally.points));
        let profile = self.rules.profile;
        let mut one = |choice: &Choice| {
            let image = units.image(&point.durable, &choice.0);
            let watch = Watch::new(image.bytes(), units.lines());
            let (result, lines) = self.state(image, watch, place, allowed, is_outer);
            Judged { result, lines, known: false }
        };
        let (_, result) = explore_point(point, &units, profile, budget, &mut rng, &mut one);
        result.map_err(|(choice, mut failure): (Choice, KeptFailure)| {
            failure.place = format!("{} [{choice}]", failure.place);
            failure
        })
    }

    /// One state, and the lines that its judge looked at.
    fn state(
        &mut self,
        image: Pages,
        watch: Watch,
        place: &str,
        allowed: &Allowed<'_>,
        is_outer: bool,
    ) -> (Result<(), KeptFailure>, Vec<u64>) {
        self.tally.judged += 1;
        self.tally.inside += u64::from(!is_outer);
        let ground = self.case.ground;
        let medium = Simulated::plain(&image);
        medium.watch(vec![watch]);
        let judged = catch_unwind(AssertUnwindSafe(|| judge(ground, &medium, allowed)));
        let judged = judged.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
        let lines = medium.take_watches().pop().map(|watch| watch.log()).unwrap_or_default();
        let mut result = judged.map_err(|what| self.failure(place, what));
        let is_cut = self.inside_every > 0 && self.tally.judged.is_multiple_of(self.inside_every);
        if is_outer && is_cut && result.is_ok() {
            result = self.inside(image, place, allowed);
        }
        (result, lines)
    }

    /// The opening of a state is cut off itself.
    fn inside(
        &mut self,
        image: Pages,
        place: &str,
        allowed: &Allowed<'_>,
    ) -> Result<(), KeptFailure> {
        let medium = Simulated::new(image, self.rules);
        medium.record(true);
        let opened = open(self.case.ground, medium.clone());
        medium.record(false);
        drop(opened);
        let mut points = medium.take_points();
        points.push(medium.point());
        self.tally.sites.extend(medium.sites().into_keys());
        for (at, point) in points.iter().enumerate() {
            let place = format!("{place}, its opening, point {} of {}", at + 1, points.len());
            self.point(point, &place, allowed, false)?;
        }
        Ok(())
    }
}
