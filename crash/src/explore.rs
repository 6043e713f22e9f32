//! Runs operations on a simulated medium, cuts the power at every fence and between
//! operations, and judges what is found afterwards by the model.
//!
//! An image is right if it opens, shows the tree of before or after the operation in
//! flight (of after it, once it has returned), passes the check, can be used and emptied,
//! and if all of that is so too when the power fails once more while it is recovered.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::{Error, FormatOptions, OpenOptions, PageClass, Pool};
use lode_model::Model;

use crate::images::choose;
use crate::judge::Judge;
use crate::pages::Pages;
use crate::simulated::{LeftOut, LineStores, Point, Simulated};
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, Value, execute};
use lode_testkit::op::{Op, print};
use lode_testkit::rng::Rng;
use lode_testkit::run::{panic_text, same, time_of};
use lode_testkit::snapshot::{Snapshot, Times, snapshot};

/// A pool on a simulated medium.
pub type SimulatedPool = Pool<Simulated, TestHost>;

/// What is explored, and how far.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides everything random.
    pub seed: u64,
    /// Bytes of the pool.
    pub bytes: u64,
    /// Lanes on the medium, and CPUs that operations take turns on.
    pub lanes: u32,
    /// Record lines of a log page.
    pub log_lines: u8,
    /// Class of the files' pages.
    pub class: PageClass,
    /// Data in place, atomic by 8-byte words only.
    pub relaxed: bool,
    /// Access times are kept.
    pub atime: bool,
    /// How lines are streamed.
    pub line_stores: LineStores,
    /// Images of each point at most.
    pub images: usize,
    /// Images at most of each point inside a recovery.
    pub images_inside: usize,
    /// The recovery of one in so many images is itself cut off.
    pub inside_every: u64,
    /// One in so many images is used and emptied.
    pub use_every: u64,
    /// What to leave out, to see that it is missed.
    pub left_out: Option<LeftOut>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 0,
            bytes: 1 << 20,
            lanes: 1,
            log_lines: 63,
            class: PageClass::Small,
            relaxed: false,
            atime: false,
            line_stores: LineStores::Words,
            images: 16,
            images_inside: 4,
            inside_every: 4,
            use_every: 4,
            left_out: None,
        }
    }
}

/// How much was looked at.
#[derive(Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Tally {
    pub operations: u64,
    pub points: u64,
    pub images: u64,
    pub points_inside: u64,
    pub images_inside: u64,
    pub emptied: u64,
    pub no_space: u64,
    /// The places in the code that fenced and wrote back, in operations and recoveries.
    pub sites: BTreeSet<LeftOut>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { operations, points, images, points_inside, images_inside, .. } = self;
        let Tally { emptied, no_space, sites, .. } = self;
        write!(f, "{operations} operations ({no_space} without space), {points} points, ")?;
        write!(f, "{images} images ({emptied} emptied), inside recovery {points_inside} points, ")?;
        write!(f, "{images_inside} images, {} places", sites.len())
    }
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.points += other.points;
        self.images += other.images;
        self.points_inside += other.points_inside;
        self.images_inside += other.images_inside;
        self.emptied += other.emptied;
        self.no_space += other.no_space;
        self.sites.extend(other.sites.iter().copied());
    }
}

/// A broken promise, with all that it takes to see it again.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What was found.
    pub what: String,
    /// Where the power failed: operation, fence, and what was kept.
    pub cut: String,
    /// The setup.
    pub setup: Box<Setup>,
    /// Operations done before anything was explored.
    pub before: Vec<Op>,
    /// The operations explored, up to the one in flight.
    pub ops: Vec<Op>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}--- {:?}", self.what, self.cut, self.setup)?;
        if !self.before.is_empty() {
            writeln!(f, "--- {} operations before:\n{}", self.before.len(), print(&self.before))?;
        }
        writeln!(f, "--- {} operations:\n{}", self.ops.len(), print(&self.ops))
    }
}

/// A file system at a moment, as the model has it.
pub(crate) struct Expected {
    pub(crate) tree: Snapshot,
    pub(crate) model: Model,
}

/// Does `before` without a cut, then `ops` with the power failing everywhere.
pub fn explore(setup: &Setup, before: &[Op], ops: &[Op]) -> Result<Tally, Box<Violation>> {
    let violation = |(step, what, cut): (usize, String, String)| {
        let ops = ops[..ops.len().min(step + 1)].to_vec();
        let setup = Box::new(setup.clone());
        Box::new(Violation { what, cut, setup, before: before.to_vec(), ops })
    };
    let mut run = Run::new(setup).map_err(|what| violation((0, what, String::new())))?;
    for (step, op) in before.iter().enumerate() {
        let done = run.quietly(step, op);
        done.map_err(|what| violation((0, format!("before, {op}: {what}"), String::new())))?;
    }
    for (step, op) in ops.iter().enumerate() {
        let done = run.step(before.len() + step, op);
        done.map_err(|(what, cut)| violation((step, what, cut)))?;
    }
    let done = run.step(before.len() + ops.len(), &Op::Remount);
    done.map_err(|(what, cut)| violation((ops.len(), what, cut)))?;
    Ok(run.tally)
}

/// As [`explore`]; a violation is made shorter by leaving out operations.
pub fn explore_and_shrink(
    setup: &Setup,
    before: &[Op],
    ops: &[Op],
    tries: usize,
) -> Result<Tally, Box<Violation>> {
    let mut best = match explore(setup, before, ops) {
        Ok(tally) => return Ok(tally),
        Err(violation) => violation,
    };
    // More images, so that what is left is not missed by chance.
    let eager = Setup { images: 4 * setup.images, inside_every: 1, use_every: 1, ..setup.clone() };
    let mut left = tries;
    let mut at = 0;
    while at < best.before.len() + best.ops.len() && left > 0 {
        left -= 1;
        let (mut before, mut ops) = (best.before.clone(), best.ops.clone());
        if at < before.len() {
            before.remove(at);
        } else {
            ops.remove(at - before.len());
        }
        match explore(&eager, &before, &ops) {
            Ok(_) => at += 1,
            Err(violation) => best = violation,
        }
    }
    Err(best)
}

struct Run<'s> {
    setup: &'s Setup,
    host: TestHost,
    pool: SimulatedPool,
    model: Model,
    handles: Handles,
    model_handles: Handles,
    expected: Expected,
    exploring: bool,
    rng: Rng,
    tally: Tally,
}

impl Setup {
    /// How the pool is opened.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { relaxed: self.relaxed, noatime: !self.atime, ..OpenOptions::default() }
    }

    pub(crate) fn host(&self, salt: u64) -> TestHost {
        let rule = match self.left_out {
            Some(LeftOut::Rule(rule)) => Some(rule),
            _ => None,
        };
        // The pool is recovered on a machine with fewer CPUs than it was used on.
        let cpus = if salt == 7 { 1 } else { self.lanes as usize };
        TestHost::with_cpus(self.seed.wrapping_mul(1000) + salt, cpus).leaving_out(rule)
    }

    pub(crate) fn medium(&self, pages: Pages) -> Simulated {
        Simulated::new(pages, self.line_stores).leaving_out(self.left_out)
    }

    pub(crate) fn times(&self) -> Times {
        Times { changes: true, access: !self.atime }
    }

    fn expected(&self, model: &Model) -> Result<Expected, String> {
        let model = model.clone();
        let tree = snapshot(&model, self.times(), None)?;
        model.release_all();
        Ok(Expected { tree, model })
    }
}

impl<'s> Run<'s> {
    fn new(setup: &'s Setup) -> Result<Self, String> {
        let host = setup.host(0);
        host.set_cpu(0);
        // The model's root was born at 0.
        host.set_now(0);
        let format = FormatOptions {
            lanes: setup.lanes,
            log_lines: setup.log_lines,
            page_class: setup.class,
            ..Default::default()
        };
        let whole = Simulated::new(Pages::new(setup.bytes), setup.line_stores);
        Pool::format(whole.clone(), host.clone(), &format).map_err(|e| format!("format: {e:?}"))?;
        let pending = whole.point().pending;
        if let Some(store) = pending.first() {
            return Err(format!("format leaves a store of {} in doubt", store.site));
        }
        let medium = setup.medium(whole.seen());
        let pool = Pool::open(medium, host.clone(), &setup.options())
            .map_err(|error| format!("open: {error:?}"))?;
        let model = Model::new();
        let expected = setup.expected(&model)?;
        Ok(Self {
            setup,
            host,
            pool,
            expected,
            exploring: false,
            model,
            handles: Handles::new(),
            model_handles: Handles::new(),
            rng: Rng::new(setup.seed),
            tally: Tally::default(),
        })
    }

    /// Does an operation on the pool and on the model.
    fn quietly(&mut self, step: usize, op: &Op) -> Result<(), String> {
        self.host.set_now(time_of(step));
        self.model.set_now(time_of(step));
        self.host.set_cpu(step);
        if matches!(op, Op::Remount | Op::Crash) {
            self.remount(*op == Op::Remount)?;
        } else {
            let found = self.guarded(op)?;
            // Short log pages have no room for the longest names.
            let long = self.setup.log_lines < 7 && found == Err(Error::NameTooLong);
            if long || found == Err(Error::NoSpace) {
                self.tally.no_space += 1;
            } else {
                let wanted = execute(&self.model, &mut self.model_handles, op);
                if !same(&wanted, &found) {
                    return Err(format!("{op}: {wanted:?} expected, {found:?} found"));
                }
            }
        }
        self.expected = self.setup.expected(&self.model)?;
        Ok(())
    }

    fn guarded(&mut self, op: &Op) -> Result<lode_engine::Result<Value>, String> {
        let (pool, handles) = (&self.pool, &mut self.handles);
        let done = catch_unwind(AssertUnwindSafe(|| execute(pool, handles, op)));
        done.map_err(|payload| format!("{op}: {}", panic_text(payload.as_ref())))
    }

    /// Ends the session, cleanly or by a power cut; opens again.
    fn remount(&mut self, clean: bool) -> Result<(), String> {
        self.handles.clear();
        self.model_handles.clear();
        self.model.release_all();
        let medium = if clean {
            self.pool.close().map_err(|error| format!("close: {error:?}"))?;
            self.pool.medium().clone()
        } else {
            // Between operations nothing is in doubt that shows, whatever is kept.
            let images = choose(&self.pool.medium().point(), 8, &mut self.rng);
            let medium = self.setup.medium(self.rng.pick(&images).pages);
            medium.record(self.exploring);
            medium
        };
        self.pool = Pool::open(medium, self.host.clone(), &self.setup.options())
            .map_err(|error| format!("open: {error:?}"))?;
        let opening = self.pool.opening();
        if opening.clean != clean || opening.superblock_repaired {
            return Err(format!("opened after clean={clean} as {opening:?}"));
        }
        Ok(())
    }

    /// An operation with the power failing at each of its fences and after it.
    fn step(&mut self, step: usize, op: &Op) -> Result<(), (String, String)> {
        let empty = Expected { tree: Snapshot::default(), model: Model::new() };
        // What was recorded before is not this operation's.
        drop(self.pool.medium().take_points());
        self.exploring = true;
        self.pool.medium().record(true);
        let before = std::mem::replace(&mut self.expected, empty);
        self.quietly(step, op).map_err(|what| (what, String::new()))?;
        let medium = self.pool.medium().clone();
        medium.record(false);
        let mut points = medium.take_points();
        points.push(medium.point());
        self.tally.operations += 1;
        self.tally.sites.extend(medium.sites().into_keys());
        for (number, point) in points.iter().enumerate() {
            self.tally.points += 1;
            let cut = format!("    {op}: point {number} of {}", points.len());
            self.cut(point, &before, &cut)?;
        }
        Ok(())
    }

    fn cut(
        &mut self,
        point: &Point,
        before: &Expected,
        place: &str,
    ) -> Result<(), (String, String)> {
        let place = match point.fence {
            Some(site) => format!("{place}, at the fence of {site}\n"),
            None => format!("{place}, after it\n"),
        };
        let returned = [&self.expected];
        let in_flight = [before, &self.expected];
        let allowed: &[&Expected] = if point.fence.is_some() { &in_flight } else { &returned };
        for image in choose(point, self.setup.images, &mut self.rng) {
            self.tally.images += 1;
            let mut judge = Judge {
                setup: self.setup,
                allowed,
                inside: self.rng.once_in(self.setup.inside_every),
                used: self.rng.once_in(self.setup.use_every),
                rng: Rng::new(self.rng.bits()),
                tally: &mut self.tally,
            };
            let judged = catch_unwind(AssertUnwindSafe(|| judge.judge(&image.pages)));
            let judged = judged.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
            judged.map_err(|what| (what, format!("{place}{}", image.kept)))?;
        }
        Ok(())
    }
}
