//! The power fails: at each point of an operation, in every way that the budget allows, and
//! inside what follows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use lode_engine::Rule;
use lode_testkit::op::{Fill, Op, Path, Target};
use lode_testkit::rng::{Rng, mix};
use lode_testkit::run::panic_text;
use lode_testkit::snapshot::Snapshot;

use super::memo::Question;
use super::path::Stage;
use super::run::Run;
use super::{CrashPath, CutReport, Failure, Images, Leg, Limits, Memo, Setup, Tally};
use crate::case::{Case, Trouble};
use crate::judge::{Allowed, Expected, Health, Look, health_of};
use crate::region::{Pages, Point, Profile, Watch};
use crate::schedule::Schedule;
use crate::states::{Budget, Choice, Explored, Judged, Units, explore_point, units_of};

/// What went wrong, and what is known of the way to it, the last cut first.
pub(super) struct Wrong {
    what: String,
    schedule: Option<Schedule>,
    legs: Vec<Leg>,
    cuts: Vec<CutReport>,
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self { what, schedule: None, legs: Vec::new(), cuts: Vec::new() }
    }
}

/// Explores cases one way.
pub struct Explorer<'a> {
    pub(super) setup: &'a Setup,
    pub(super) limits: Limits,
    pub(super) tally: Tally,
    /// The images that were judged.
    images: Images,
    memo: &'a mut Memo,
    /// Logs of the states that are being judged, from the outermost one.
    pub(super) watches: Vec<Watch>,
    /// What was looked at of the state that was judged last.
    pub(super) looked: Watch,
    /// Only this way is gone: the legs that are left of it.
    pub(super) only: Option<&'a [Leg]>,
    /// Only this schedule is run.
    pub(super) schedule: Option<&'a Schedule>,
    /// The power failures of that way, as far as it was gone.
    cuts: Vec<CutReport>,
    /// That way does not begin here: it is of another case or version.
    pub(super) lost: bool,
}

/// What a replay showed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The story, whether it ends well or not; [`Failure::what`] says which.
    pub story: Box<Failure>,
    /// The state is wrong.
    pub wrong: bool,
    /// The way led to a state; if not, the id is of another version of the code.
    pub reached: bool,
    /// Rules that the engine asked for on this way.
    pub rules: Vec<Rule>,
}

/// Stands for a tree where it matters to nobody which it is.
const ANY_TREE: u64 = 0;

/// Of the points of recoveries, the states of one in so many are judged as thoroughly as others.
const WHOLE_LOOK_EVERY: u64 = 16;

/// Since when it is known that a state is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// The same image was judged before.
    Before,
    /// It was judged now.
    Now,
}

/// What becomes of a state besides being judged.
struct Chance {
    /// Its recovery is cut off, too.
    inside: bool,
    /// Operations follow it.
    then: bool,
    /// The one that was cut off is left out of these.
    skips: bool,
    /// Some of its memory can't be loaded.
    poison: bool,
}

/// A point of an operation, and where it is.
pub(super) struct Cut<'c> {
    pub(super) stage: Stage,
    pub(super) step: usize,
    pub(super) number: usize,
    pub(super) point: &'c Point,
    pub(super) place: String,
}

/// Explores a case, until [`Setup::stop`] ends it. `memo` knows what was judged of it under other
/// profiles.
pub fn explore(
    case: &Case,
    setup: &Setup,
    limits: &Limits,
    memo: &mut Memo,
) -> Result<Tally, Box<Failure>> {
    let mut explorer = Explorer {
        setup,
        limits: *limits,
        tally: Tally::default(),
        images: Images::default(),
        memo,
        watches: Vec::new(),
        looked: Watch::default(),
        only: None,
        schedule: None,
        cuts: Vec::new(),
        lost: false,
    };
    let began = Instant::now();
    let explored = explorer.guarded(case);
    if !explorer.tally.cut_short {
        explored.map_err(|wrong| wrong.failure(case))?;
    }
    explorer.tally.time = began.elapsed();
    explorer.tally.rules.extend(setup.asked.rules());
    explorer.tally.images = explorer.images;
    Ok(explorer.tally)
}

/// Goes the one way that a replay id names.
pub fn replay(case: &Case, setup: &Setup, path: &CrashPath) -> Replay {
    let limits = Limits { inside_every: 1, then_every: 1, ..Limits::FULL };
    let (tally, watches, memo) = (Tally::default(), Vec::new(), &mut Memo::default());
    let mut explorer = Explorer {
        setup,
        limits,
        tally,
        images: Images::default(),
        memo,
        watches,
        looked: Watch::default(),
        only: Some(&path.legs),
        schedule: path.schedule.as_ref(),
        cuts: Vec::new(),
        lost: path.schedule.is_some() == case.beside.is_empty(),
    };
    if let Err(wrong) = explorer.guarded(case) {
        let rules = setup.asked.rules().collect();
        return Replay { story: wrong.failure(case), wrong: true, reached: true, rules };
    }
    let (cuts, case) = (explorer.cuts, case.clone());
    let reached = !explorer.lost && cuts.len() == path.legs.len();
    let what = match path.legs.first() {
        Some(_) => "this state is judged right",
        None => "the id names no state: without a power failure all goes right",
    };
    let what = what.to_owned();
    let story = Box::new(Failure { what, path: path.clone(), cuts, case });
    Replay { story, wrong: false, reached, rules: setup.asked.rules().collect() }
}

impl Wrong {
    /// Says how two threads took turns.
    pub(super) fn in_schedule(self, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..self }
    }

    /// What went wrong after this.
    pub(super) fn after(mut self, leg: Leg, cut: CutReport) -> Self {
        self.legs.push(leg);
        self.in_cut(cut)
    }

    /// The same, where the id need not say which state it is: a replay comes to it by itself.
    pub(super) fn in_cut(mut self, cut: CutReport) -> Self {
        self.cuts.push(cut);
        self
    }

    fn failure(mut self, case: &Case) -> Box<Failure> {
        self.legs.reverse();
        self.cuts.reverse();
        let path = CrashPath { schedule: self.schedule, legs: self.legs };
        Box::new(Failure { what: self.what, path, cuts: self.cuts, case: case.clone() })
    }
}

impl Explorer<'_> {
    /// A case. What panics outside a state, such as the tree that finds the judge not deterministic,
    /// is told, too.
    fn guarded(&mut self, case: &Case) -> Result<(), Wrong> {
        let done = catch_unwind(AssertUnwindSafe(|| self.case(case)));
        done.unwrap_or_else(|payload| Err(Wrong::from(panic_text(payload.as_ref()))))
    }

    fn case(&mut self, case: &Case) -> Result<(), Wrong> {
        if case.before.is_empty() && case.ops.is_empty() {
            return self.making();
        }
        let mut run = Run::new(self.setup)?;
        for (step, op) in case.before.iter().enumerate() {
            run.step(step, op).map_err(|what| format!("before: {what}"))?;
        }
        if case.trouble == Trouble::Bit {
            return self.flips(case, run);
        }
        if !case.beside.is_empty() {
            return self.threads(case, run);
        }
        let first = case.before.len();
        for (step, op) in case.ops.iter().chain([&Op::Remount]).enumerate() {
            let kind = op.to_string().split(' ').next().unwrap_or_default().to_owned();
            self.credited(&kind, |explorer| {
                let numbers = (step, first + step);
                explorer.operation(&mut run, Stage::Operation, numbers, op, &case.ops)
            })?;
        }
        self.tally.no_space += run.no_space;
        Ok(())
    }

    /// Does a piece of work, and notes what was looked at in it for this kind of operation.
    pub(super) fn credited(
        &mut self,
        kind: &str,
        work: impl FnOnce(&mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let before = std::mem::take(&mut self.tally);
        let result = work(self);
        let mut part = std::mem::replace(&mut self.tally, before);
        let (points, states) = part.total();
        let row = part.by_operation.entry(kind.to_owned()).or_default();
        row.0 += points;
        row.1.add(&states);
        self.tally.add(&part);
        result
    }

    /// An operation with the power failing at each of its points.
    fn operation(
        &mut self,
        run: &mut Run<'_>,
        stage: Stage,
        (step, number): (usize, usize),
        op: &Op,
        ops: &[Op],
    ) -> Result<(), Wrong> {
        let before = run.expected()?;
        let medium = run.pool.medium().clone();
        medium.watch(std::mem::take(&mut self.watches));
        drop(medium.take_points());
        medium.record(true);
        run.step(number, op)?;
        medium.record(false);
        self.watches = medium.take_watches();
        let mut points = medium.take_points();
        points.push(medium.point());
        let mut in_flight = points.len() - 1;
        if self.setup.rules.profile == Profile::Eadr {
            // What was stored is durable: only before the return may it be missing.
            medium.settle();
            points.push(medium.point());
            in_flight += 1;
        }
        self.tally.operations += u64::from(stage == Stage::Operation);
        self.tally.sites.extend(medium.sites().into_keys());
        let after = run.expected()?;
        // (What is behind the end of a file may be torn where this was cut off, and a scrub tells of it.)
        let may_be_torn = after.health == Health::Scrubbed && *op != Op::Scrub;
        let torn = may_be_torn.then(|| after.clone().of(Health::Sound));
        let before = if may_be_torn { before.of(Health::Sound) } else { before };
        let in_it = torn.as_ref().unwrap_or(&after);
        let all = [Allowed { name: "before", expected: &before }, after_of(in_it)];
        let done = [after_of(&after)];
        for (at, point) in points.iter().enumerate() {
            let allowed = if at < in_flight { &all[..] } else { &done[..] };
            let place = format!("{op} (point {} of {})", at + 1, points.len());
            let cut = Cut { stage, step, number: at, point, place };
            self.point(&cut, allowed, &ops[step.min(ops.len())..])?;
        }
        Ok(())
    }

    /// The states of a point.
    pub(super) fn point(
        &mut self,
        cut: &Cut<'_>,
        allowed: &[Allowed<'_>],
        next: &[Op],
    ) -> Result<(), Wrong> {
        let points = self.limits.points_of(&self.setup.geometry);
        let budget = if cut.stage == Stage::After { self.limits.then } else { points };
        let units = self.units(cut.point, budget);
        let mut judge = |explorer: &mut Self, choice: &Choice| {
            let image = units.image(&cut.point.durable, &choice.0);
            let (which, known) = explorer.state(&image, allowed)?;
            let Chance { inside, then, skips, poison } = explorer.chance(cut, &units, choice);
            let dice = explorer.hash(cut, &units, choice);
            // (What else is lost would be lost for good.)
            if poison && known == Known::Now && health_of(allowed) != Health::Hurt {
                explorer.poisoned(&image, allowed, dice)?;
            }
            if inside {
                explorer.inside(&image, allowed, dice)?;
            }
            if let (Some(which), true) = (which, then) {
                let next = &next[usize::from(skips).min(next.len())..];
                explorer.then(&image, allowed[which].expected, next)?;
            }
            Ok(known)
        };
        self.states(cut, &units, budget, &mut judge)
    }

    /// The units of a point. (A replay knows all ways to tear them.)
    pub(super) fn units(&self, point: &Point, budget: Budget) -> Units {
        let all_tears = self.only.is_some() || budget.all_tears();
        units_of(point, self.setup.rules.profile, all_tears)
    }

    /// Tries the states of a point, or the one that is to be replayed.
    pub(super) fn states(
        &mut self,
        cut: &Cut<'_>,
        units: &Units,
        budget: Budget,
        judge: &mut dyn FnMut(&mut Self, &Choice) -> Result<Known, Wrong>,
    ) -> Result<(), Wrong> {
        let profile = self.setup.rules.profile;
        let mut judged = |explorer: &mut Self, choice: &Choice| {
            if let Err(stopped) = explorer.may_go_on() {
                return Judged { known: false, result: Err(stopped), lines: Vec::new() };
            }
            let outer = explorer.watches.len();
            explorer.watches.push(Watch::new(explorer.setup.geometry.bytes, units.lines()));
            let result = catch_unwind(AssertUnwindSafe(|| judge(explorer, choice)));
            let result =
                result.unwrap_or_else(|payload| Err(Wrong::from(panic_text(payload.as_ref()))));
            // What was broken off has left watches of its own, or lost some.
            explorer.watches.truncate(outer + 1);
            let lines = explorer.watches.pop().map(|watch| watch.log()).unwrap_or_default();
            Judged { known: matches!(result, Ok(Known::Before)), result: result.map(|_| ()), lines }
        };
        let outcome = if let Some(only) = self.only {
            let Some((leg, rest)) = only.split_first() else { return Ok(()) };
            if (leg.stage, leg.step, leg.point) != (cut.stage, cut.step, cut.number) {
                return Ok(());
            }
            let Some(choice) = units.fit(&leg.choice) else { return Ok(()) };
            self.cuts.push(CutReport::new(cut.place.clone(), cut.point, units, &choice));
            self.only = Some(rest);
            let Judged { result, .. } = judged(self, &choice);
            self.only = Some(only);
            (Explored { judged: 1, ..Explored::default() }, result.map_err(|w| (choice, w)))
        } else {
            let mut rng = Rng::new(self.setup.seed ^ hash_of(cut, &[]));
            let mut judged = |choice: &Choice| judged(self, choice);
            explore_point(cut.point, units, profile, budget, &mut rng, &mut judged)
        };
        self.count(cut.stage, &outcome.0);
        outcome.1.map_err(|(choice, mut wrong)| {
            wrong.cuts.push(CutReport::new(cut.place.clone(), cut.point, units, &choice));
            let Cut { stage, step, number, .. } = *cut;
            wrong.legs.push(Leg { stage, step, point: number, choice });
            wrong
        })
    }

    /// Ends everything if the exploration is to stop: as what is wrong does, but nothing is.
    pub(super) fn may_go_on(&mut self) -> Result<(), Wrong> {
        self.tally.cut_short |= self.setup.stop.is_asked();
        if self.tally.cut_short { Err(Wrong::from("stopped".to_owned())) } else { Ok(()) }
    }

    /// The bit of this place that a replay is to flip; `None` where all are.
    pub(super) fn wanted(&self, (step, point): (usize, usize)) -> Option<Vec<usize>> {
        let legs = self.only?;
        let here = |leg: &&Leg| (leg.stage, leg.step, leg.point) == (Stage::Bit, step, point);
        let bits =
            legs.first().filter(here).map(|leg| leg.choice.0.iter().map(|bit| (*bit).into()));
        Some(bits.into_iter().flatten().collect())
    }

    /// Notes a power failure of the way that is replayed.
    pub(super) fn note_cut(&mut self, cut: CutReport) {
        self.cuts.push(cut);
    }

    fn count(&mut self, stage: Stage, explored: &Explored) {
        let (points, states) = match stage {
            Stage::Operation => (&mut self.tally.points, &mut self.tally.states),
            Stage::Recovery => (&mut self.tally.inside_points, &mut self.tally.inside),
            Stage::After => (&mut self.tally.then_points, &mut self.tally.then),
            Stage::Bit | Stage::Poison => return,
        };
        *points += 1;
        states.add(explored);
    }

    /// What becomes of a state besides being judged. Decided by
    /// what was looked at, so that states that look the same are treated the same.
    fn chance(&self, cut: &Cut<'_>, units: &Units, choice: &Choice) -> Chance {
        let hash = self.hash(cut, units, choice);
        let skips = hash >> 40 & 1 == 1;
        if let Some(only) = self.only {
            let next = only.first().map(|leg| leg.stage);
            let [inside, then, poison] =
                [Stage::Recovery, Stage::After, Stage::Poison].map(|stage| next == Some(stage));
            return Chance { inside, then, skips, poison };
        }
        let one_in = |every: u64, hash: u64| every > 0 && hash.is_multiple_of(every);
        let first = cut.stage == Stage::Operation;
        let Limits { inside_every, then_every, .. } = self.limits;
        let then = first && one_in(then_every, hash >> 16 & 0xFFFF);
        let inside = one_in(inside_every, hash & 0xFFFF);
        let poison = first && one_in(self.poisoned_every(), hash >> 44);
        Chance { inside, then, skips, poison }
    }

    /// Scatters what was looked at of a state.
    fn hash(&self, cut: &Cut<'_>, units: &Units, choice: &Choice) -> u64 {
        let log = self.watches.last().map(Watch::log).unwrap_or_default();
        let units = log.into_iter().filter_map(|line| units.unit_of(line));
        let looked_at: Vec<(usize, u16)> = units.map(|unit| (unit, choice.0[unit])).collect();
        hash_of(cut, &looked_at)
    }

    /// Judges one state; says which of those allowed it is, and whether that was known.
    pub(super) fn state(
        &mut self,
        image: &Pages,
        allowed: &[Allowed<'_>],
    ) -> Result<(Option<usize>, Known), Wrong> {
        self.images.note(image);
        let question = Question::of(image, allowed, self.setup.in_place());
        let trees = allowed.iter().map(|allowed| allowed.expected.hash);
        if let Some(which) = self.recall(&question, trees) {
            return Ok((Some(which), Known::Before));
        }
        self.watches.push(Watch::all(image.bytes()));
        // A replay is to show what it does.
        let memo = self.only.is_none().then_some(&mut *self.memo);
        let watches = std::mem::take(&mut self.watches);
        let mut look = Look::new(self.setup, allowed, watches).knowing(memo);
        let found = look.recover(image)?;
        look.use_up(&found.pool, &found.tree)?;
        self.watches = look.watches;
        let tree = found.which.map(|which| allowed[which].expected.hash);
        self.remember(question, tree);
        Ok((found.which, Known::Now))
    }

    /// Which of these trees an image showed that was judged before.
    fn recall(
        &mut self,
        question: &Question,
        trees: impl IntoIterator<Item = u64>,
    ) -> Option<usize> {
        // A replay is to show what it does.
        let known = self.only.is_none().then_some(&*self.memo);
        known.and_then(|memo| memo.recall(question, trees, &mut self.watches))
    }

    /// Notes which tree an image showed, if it is one of those allowed, with what the last watch saw.
    fn remember(&mut self, question: Question, tree: Option<u64>) {
        let Some(watch) = self.watches.pop() else { return };
        if let Some(tree) = tree {
            self.memo.note(question, tree, &watch);
        }
        self.looked = watch;
    }

    /// The recovery of a state is cut off at each of its points; `dice` is equal for states that look
    /// the same.
    fn inside(&mut self, image: &Pages, allowed: &[Allowed<'_>], dice: u64) -> Result<(), Wrong> {
        let question = Question::of(image, allowed, self.setup.in_place());
        let question = question.inside(self.setup.rules.profile);
        if self.recall(&question, [ANY_TREE]).is_some() {
            return Ok(());
        }
        self.watches.push(Watch::all(image.bytes()));
        let mut look = Look::new(self.setup, allowed, std::mem::take(&mut self.watches));
        let (medium, tree) = look.recover_recorded(image)?;
        self.watches = look.watches;
        self.tally.sites.extend(medium.sites().into_keys());
        let mut points = medium.take_points();
        points.push(medium.point());
        let hash = crate::judge::hash_of(&tree);
        let found = allowed.iter().find(|allowed| allowed.expected.hash == hash);
        self.recovery(&points, &tree, (found, health_of(allowed)), dice)?;
        self.remember(question, Some(ANY_TREE));
        Ok(())
    }

    /// A recovery that shows `tree`, which is what was `found` (nothing of it where its data is mixed).
    fn recovery(
        &mut self,
        points: &[Point],
        tree: &Snapshot,
        (found, health): (Option<&Allowed<'_>>, Health),
        dice: u64,
    ) -> Result<(), Wrong> {
        let (hash, large) = (crate::judge::hash_of(tree), tree.has_large_files());
        for (number, point) in points.iter().enumerate() {
            let units = self.units(point, self.limits.inside);
            let place = format!("the recovery (point {} of {})", number + 1, points.len());
            let cut = Cut { stage: Stage::Recovery, step: 0, number, point, place };
            // Not for some states of a point only: those that look the same must be treated so.
            let whole = mix(dice ^ number as u64).is_multiple_of(WHOLE_LOOK_EVERY);
            let mut judge = |explorer: &mut Self, choice: &Choice| {
                let image = units.image(&point.durable, &choice.0);
                if let Some(found) = found.filter(|_| whole) {
                    return explorer.state(&image, &[*found]).map(|(_, known)| known);
                }
                explorer.images.note(&image);
                let question = Question::again(&image, hash, large, health);
                if explorer.recall(&question, [hash]).is_some() {
                    return Ok(Known::Before);
                }
                explorer.watches.push(Watch::all(image.bytes()));
                let watches = std::mem::take(&mut explorer.watches);
                let mut look = Look::new(explorer.setup, &[], watches).at(health);
                look.again(&image, tree)?;
                explorer.watches = look.watches;
                explorer.remember(question, Some(hash));
                Ok(Known::Now)
            };
            self.states(&cut, &units, self.limits.inside, &mut judge)?;
        }
        Ok(())
    }

    /// A few operations after the recovery, with the power failing again.
    fn then(&mut self, image: &Pages, found: &Expected, next: &[Op]) -> Result<(), Wrong> {
        let mut run = Run::resume(self.setup, image.clone(), found, &mut self.watches)?;
        let file = Path::of("/and then");
        let more = [
            Op::Create { path: file.clone(), mode: 0o100_644, rdev: 0 },
            Op::Append { to: Target::Path(file), data: Fill { len: 200, fill: 9 } },
        ];
        // (Two lines that are damaged at a time may be one of which nothing is left.)
        let next = next.iter().filter(|op| !matches!(op, Op::Damage(_)));
        let ops: Vec<Op> = next.take(2).chain(&more).cloned().collect();
        for (step, op) in ops.iter().enumerate() {
            self.operation(&mut run, Stage::After, (step, 1000 + step), op, &ops)?;
        }
        Ok(())
    }
}

/// Scatters a point and what was looked at of it.
fn hash_of(cut: &Cut<'_>, looked_at: &[(usize, u16)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (cut.step, cut.number, looked_at).hash(&mut hasher);
    hasher.finish()
}

fn after_of(expected: &Expected) -> Allowed<'_> {
    Allowed { name: "after", expected }
}
