//! Logs that are about to roll over and to be collected.
//!
//! What an operation comes to hangs on how full and how dead the logs are that it writes. So pasts
//! of a pool are tried in memory until one is found in which the operations bring about both
//! kinds of collection, or else an operation in front of them does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::OpenOptions;
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::op::Op;
use lode_testkit::run::{panic_text, time_of};
use lode_testkit::system::{PoolSystem, System};

use crate::case::Case;
use crate::workload::build::operations;

/// Records that are tried, at most: a log has come to both collections with fewer.
const RECORDS_MOST: u64 = 18;

/// What the operations of a case bring about.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Outcome {
    /// Pages were unlinked.
    pub(super) fast: bool,
    /// A log was written again.
    pub(super) thorough: bool,
    /// Of each operation, whether it succeeded.
    succeeded: Vec<bool>,
}

impl Outcome {
    /// Both collectors ran.
    pub(super) fn both(&self) -> bool {
        self.fast && self.thorough
    }
}

/// The case with a past of some of `files` and `directories` (the root is one) that it writes, or
/// of others, which an operation in front of its own writes. Its own end as they did before.
pub(super) fn aged(case: Case, files: &[&str], directories: &[&str], seed: u64) -> Case {
    let Ok(plain) = outcome(&case) else { return case };
    let touched = |path: &&&str| case.ops.iter().any(|op| touches(op, path));
    let directories: Vec<&str> = directories.iter().filter(touched).copied().collect();
    let files = files.iter().filter(touched).copied();
    let all: Vec<&str> = files.chain(directories.iter().copied()).collect();
    let wanted = &plain.succeeded;
    let thorough = Past { of: dying, aside: "/w", seed, wanted };
    let fast = Past { of: coming_and_going, aside: "/v", seed, wanted };
    let own = |case: &Case| {
        let older = thorough.own(case, &all, |ran| ran.thorough)?;
        fast.own(&older, &directories, Outcome::both)
    };
    let in_front = |case: &Case| {
        let older = fast.aside(case, |ran| ran.fast)?;
        let own = thorough.own(&older, &all, Outcome::both);
        own.or_else(|| thorough.aside(&older, Outcome::both))
    };
    own(&case).or_else(|| in_front(&case)).unwrap_or(case)
}

/// A way for logs to become old.
struct Past<'w> {
    /// What gives the log of a path so many records.
    of: fn(&str, u64) -> String,
    /// A directory for this way alone.
    aside: &'static str,
    /// Decides how many records are tried first.
    seed: u64,
    /// Which of the case's own operations succeed.
    wanted: &'w [bool],
}

impl Past<'_> {
    /// The first past of one of these paths that is good.
    fn own(&self, case: &Case, paths: &[&str], good: fn(&Outcome) -> bool) -> Option<Case> {
        let past = |path: &str, records| with_past(case, &(self.of)(path, records), "");
        let of_path = |path| self.records().map(move |records| past(path, records));
        self.first(paths.iter().copied().flat_map(of_path), good)
    }

    /// The first past of another directory that is good, where that is written first.
    fn aside(&self, case: &Case, good: fn(&Outcome) -> bool) -> Option<Case> {
        let path = self.aside;
        let written = format!("chmod {path} 0o711");
        let past = |records| format!("mkdir {path}; {}", (self.of)(path, records));
        self.first(self.records().map(|records| with_past(case, &past(records), &written)), good)
    }

    fn records(&self) -> impl Iterator<Item = u64> + use<> {
        let seed = self.seed;
        (0..RECORDS_MOST).map(move |number| (number + seed) % RECORDS_MOST)
    }

    fn first(
        &self,
        mut cases: impl Iterator<Item = Case>,
        good: fn(&Outcome) -> bool,
    ) -> Option<Case> {
        let is_good = |ran: Outcome| good(&ran) && ran.succeeded.ends_with(self.wanted);
        cases.find(|older| outcome(older).is_ok_and(is_good))
    }
}

/// Records each of which ends the one before.
fn dying(path: &str, records: u64) -> String {
    (0..records).map(|number| format!("chmod {path} 0o7{}0;", number % 8)).collect()
}

/// Names that stay, and one that comes and goes: a log that is more alive than dead, but for whole
/// pages.
fn coming_and_going(directory: &str, records: u64) -> String {
    let dir = directory.trim_end_matches('/');
    let stay = format!("create {dir}/p; link {dir}/p {dir}/q; link {dir}/p {dir}/r;");
    let come_and_go = |number: u64| match number % 2 {
        0 => format!("link {dir}/p {dir}/o;"),
        _ => format!("unlink {dir}/o;"),
    };
    stay + &(0..records).map(come_and_go).collect::<String>()
}

/// Whether an operation names a path, or a name in it.
fn touches(op: &Op, path: &str) -> bool {
    let text = op.to_string();
    let mut paths = text.split(' ').filter(|word| word.starts_with(['/', '@']));
    paths.any(|word| {
        let parent = word.rsplit_once('/').map_or("", |(parent, _)| parent);
        // What is open in the cases of pairs is this file.
        word == path || parent == path.trim_end_matches('/') || word == "@0" && path == "/a"
    })
}

/// The case with more in its past, and in front of its operations.
fn with_past(case: &Case, past: &str, in_front: &str) -> Case {
    let mut older = case.clone();
    // What is open may have no name any more.
    let opens = |op: &Op| matches!(op, Op::Open { .. } | Op::Tmpfile { .. });
    let at = older.before.iter().position(opens).unwrap_or(older.before.len());
    older.before.splice(at..at, operations(past));
    older.ops.splice(..0, operations(in_front));
    older
}

/// What the operations of a case bring about, or why what is before them can't be done. (Where the
/// engine panics, that is not told here, but by who explores the case.)
pub(super) fn outcome(case: &Case) -> Result<Outcome, String> {
    let done = catch_unwind(AssertUnwindSafe(|| run(case)));
    done.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())))
}

fn run(case: &Case) -> Result<Outcome, String> {
    let geometry = &case.geometry;
    let host = TestHost::in_order(1, geometry.lanes as usize);
    let options = OpenOptions { relaxed: geometry.relaxed, ..OpenOptions::default() };
    let mut pool = PoolSystem::new(geometry.bytes, host, &geometry.format(), options)?;
    let (mut handles, mut step) = (Handles::new(), 0);
    let mut step_of = |pool: &mut PoolSystem, op: &Op| {
        pool.set_now(time_of(step));
        pool.host().set_cpu(step);
        step += 1;
        if matches!(op, Op::Remount | Op::Crash) {
            handles.clear();
            pool.remount(*op == Op::Remount)?;
        }
        execute(pool.fs(), &mut handles, op).map_err(|error| format!("{op}: {error:?}"))
    };
    for op in &case.before {
        step_of(&mut pool, op)?;
    }
    let [fast, thorough] = pool.collected();
    let succeeded = case.ops.iter().map(|op| step_of(&mut pool, op).is_ok()).collect();
    let now = pool.collected();
    Ok(Outcome { fast: now[0] > fast, thorough: now[1] > thorough, succeeded })
}
