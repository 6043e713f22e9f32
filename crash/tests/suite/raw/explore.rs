//! Cuts the power in the requests of a case, and judges the sectors.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_crash::region::{LeftOut, Point, Profile, Rules, Simulated, Watch};
use lode_crash::states::{Budget, Choice, Judged, explore_point, units_of};
use lode_pmem::RawRule;
use lode_testkit::rng::{Rng, mix};
use lode_testkit::run::panic_text;

use super::memory::Memory;
use super::steps::{Case, Known, Run, SECTOR, Step, Way, open, stamped};

/// What was looked at.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) points: u64,
    pub(super) judged: u64,
    /// Of them, those in which some sector was torn.
    pub(super) torn: u64,
    pub(super) sites: BTreeSet<LeftOut>,
}

/// What is explored, and what is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) way: Way,
    pub(super) rules: Rules,
    pub(super) left_out: Option<RawRule>,
    pub(super) budget: Budget,
}

/// Explores a case; the first state that is wrong is an error.
pub(super) fn explore(case: &Case, task: Task, tally: &mut Tally) -> Result<(), String> {
    let place = format!("{}, {:?}, {:?}", case.name, task.way, task.rules.profile);
    let done = catch_unwind(AssertUnwindSafe(|| steps(case, task, tally)));
    let done = done.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
    done.map_err(|what| format!("{place}: {what}"))
}

fn steps(case: &Case, task: Task, tally: &mut Tally) -> Result<(), String> {
    let mut run = Run::new(task.way, task.rules, task.left_out);
    let medium = run.memory.medium.clone();
    for (number, step) in case.steps.iter().enumerate() {
        run.during(*step);
        let during = run.known.clone();
        medium.record(true);
        let end = run.step(*step)?;
        medium.record(false);
        run.after(*step);
        let mut points: Vec<(Point, &Known)> =
            medium.take_points().into_iter().map(|point| (point, &during)).collect();
        if task.rules.profile == Profile::Eadr {
            // What was stored is durable.
            medium.settle();
            points.extend([(end, &during), (medium.point(), &run.known)]);
        } else {
            points.push((end, &run.known));
        }
        let count = points.len();
        for (at, (point, known)) in points.iter().enumerate() {
            let place = format!("step {number}, {step:?}, point {} of {count}", at + 1);
            states(point, known, task, tally).map_err(|what| format!("{place}: {what}"))?;
        }
    }
    tally.sites.extend(medium.sites().into_keys());
    Ok(())
}

/// The states of a point.
fn states(point: &Point, known: &Known, task: Task, tally: &mut Tally) -> Result<(), String> {
    tally.points += 1;
    let profile = task.rules.profile;
    let units = units_of(point, profile, task.budget.all_tears());
    let mut rng = Rng::new(mix(tally.points));
    let mut one = |choice: &Choice| {
        let image = units.image(&point.durable, &choice.0);
        let watch = Watch::new(image.bytes(), units.lines());
        let medium = Simulated::plain(&image);
        medium.watch(vec![watch]);
        tally.judged += 1;
        let result = judge(&medium, known, task).map(|torn| tally.torn += u64::from(torn));
        let lines = medium.take_watches().pop().map(|watch| watch.log()).unwrap_or_default();
        Judged { result, lines, known: false }
    };
    let (_, result) = explore_point(point, &units, profile, task.budget, &mut rng, &mut one);
    result.map_err(|(choice, what): (Choice, String)| format!("[{choice}]: {what}"))
}

/// Whether each sector is one that it may be: a version that is known whole, where there is one only, and else words of those that
/// are possible. Gives whether any of them is torn.
fn judge(medium: &Simulated, known: &Known, task: Task) -> Result<bool, String> {
    let memory = Memory::new(medium.clone(), task.rules.profile, None);
    let device = open(memory, task.way);
    let mut is_torn = false;
    for (sector, versions) in known {
        let mut held = vec![0; SECTOR as usize];
        device.read(sector * SECTOR, &mut held).map_err(|error| error.to_string())?;
        let legal: Vec<Vec<u8>> =
            versions.iter().map(|version| stamped(*sector, *version)).collect();
        if legal.contains(&held) {
            continue;
        }
        is_torn = true;
        for (at, word) in held.chunks(8).enumerate() {
            if !legal.iter().any(|one| &one[8 * at..8 * at + 8] == word) {
                let version = u64::from_le_bytes(held[..8].try_into().unwrap());
                return Err(format!(
                    "word {at} of sector {sector} (which says {version}) is of none of the versions {versions:?}"
                ));
            }
        }
    }
    Ok(is_torn)
}

/// A case that has this step is one that the other kind of device has no use for.
pub(super) fn is_for(case: &Case, way: Way) -> bool {
    case.steps.iter().all(|step| match step {
        Step::FlushWhileWritten(..) => way.deferred == Some(1),
        Step::Watched(..) => way.deferred.is_none(),
        _ => way.deferred != Some(1),
    })
}
