//! The workloads are what they say: each case is one of its kind, can be done, gives on a
//! pool what it gives on the model, and is the same after a trip through its text.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_crash::case::Case;
use lode_crash::explore::Stop;
use lode_crash::workload::{
    pair_count, pairs, parse_script, print_script, random_case, scenarios, seq1, share, two_threads,
};
use lode_engine::{AccessTimes, Error, FormatOptions, OpenOptions};
use lode_model::Model;
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::op::Op;
use lode_testkit::run::{panic_text, same, time_of};
use lode_testkit::snapshot::{Times, difference, snapshot};
use lode_testkit::system::{PoolSystem, System};

/// How a list of cases went.
#[derive(Default, Debug)]
struct Count {
    before: usize,
    ops: usize,
    /// Of `ops` and `beside`, those that gave an error, no space apart.
    errors: usize,
    no_space: usize,
    verbs: BTreeMap<String, usize>,
}

/// A pool and the model, side by side.
struct Both {
    pool: PoolSystem,
    model: Model,
    handles: Handles,
    model_handles: Handles,
    times: Times,
    step: usize,
    may_be_full: bool,
}

impl Both {
    fn new(case: &Case) -> Result<Self, String> {
        let geometry = &case.geometry;
        let host = TestHost::with_cpus(1, geometry.lanes as usize);
        host.set_cpu(0);
        let format = FormatOptions {
            lanes: geometry.lanes,
            page_class: geometry.class,
            log_lines: case.geometry.log_lines,
            ..FormatOptions::default()
        };
        let options = OpenOptions {
            relaxed: geometry.relaxed,
            atime: if geometry.atime { AccessTimes::Relative } else { AccessTimes::Never },
            ..OpenOptions::default()
        };
        Ok(Self {
            pool: PoolSystem::new(geometry.bytes, host, &format, options)?,
            model: Model::new(),
            handles: Handles::new(),
            model_handles: Handles::new(),
            times: Times { changes: true, access: !geometry.atime },
            step: 0,
            may_be_full: may_be_full(case),
        })
    }

    /// Does an operation on both; the error it gave.
    fn step(&mut self, op: &Op) -> Result<Option<Error>, String> {
        self.pool.set_now(time_of(self.step));
        self.model.set_now(time_of(self.step));
        self.pool.host().set_cpu(self.step);
        self.step += 1;
        match op {
            Op::Remount | Op::Crash => {
                self.handles.clear();
                self.model_handles.clear();
                self.model.release_all();
                self.remount(*op == Op::Remount)?;
            }
            Op::Cpus(cpus) => self.pool.set_cpus(*cpus),
            _ => {}
        }
        let found = execute(self.pool.fs(), &mut self.handles, op);
        if found == Err(Error::NoSpace) {
            return Ok(Some(Error::NoSpace));
        }
        let wanted = execute(&self.model, &mut self.model_handles, op);
        match same(&wanted, &found) {
            true => Ok(found.err()),
            false => Err(format!("{op}: {wanted:?} expected, {found:?} found")),
        }
    }

    /// A pool without room for a checkpoint opens as after a crash, and that is all.
    fn remount(&mut self, clean: bool) -> Result<(), String> {
        let mounted = self.pool.remount(clean);
        let opening = self.pool.pool().opening();
        match mounted {
            Err(_) if self.may_be_full && clean && !opening.clean && opening.damage.is_empty() => {
                Ok(())
            }
            other => other,
        }
    }

    fn compare(&self) -> Result<(), String> {
        let wanted = snapshot(&self.model, self.times, None)?;
        let found = snapshot(self.pool.fs(), self.times, Some(&wanted))?;
        match difference(&wanted, &found) {
            Some(what) => Err(format!("trees differ: {what}")),
            None => self.pool.check(),
        }
    }
}

/// Runs a case, `beside` behind `ops` or in front of them.
fn run(case: &Case, beside_first: bool, count: &mut Count) -> Result<(), String> {
    let mut both = Both::new(case)?;
    for op in &case.before {
        match both.step(op).map_err(|what| format!("before, {what}"))? {
            None => {}
            Some(Error::NoSpace) if may_be_full(case) => {}
            Some(_) if is_random(case) => {}
            Some(error) => return Err(format!("before, {op}: {error:?}")),
        }
    }
    both.compare().map_err(|what| format!("before: {what}"))?;
    let lists = match beside_first {
        true => [&case.beside, &case.ops],
        false => [&case.ops, &case.beside],
    };
    for op in lists.into_iter().flatten() {
        match both.step(op)? {
            None => {}
            Some(Error::NoSpace) if may_be_full(case) => count.no_space += 1,
            Some(Error::NoSpace) => return Err(format!("{op}: no space")),
            Some(_) => count.errors += 1,
        }
        both.compare().map_err(|what| format!("{op}: {what}"))?;
        let verb = op.to_string().split(' ').next().unwrap_or_default().to_owned();
        *count.verbs.entry(verb).or_default() += 1;
    }
    both.step(&Op::Remount)?;
    both.compare().map_err(|what| format!("at the end: {what}"))
}

fn is_random(case: &Case) -> bool {
    case.name.starts_with("random")
}

/// Cases that are about a full pool, or that know nothing of its size.
fn may_be_full(case: &Case) -> bool {
    case.name.contains("full:") || case.name.starts_with("a full pool") || is_random(case)
}

/// Runs all of `cases`, as often as there are orders of their threads.
fn run_all(what: &str, cases: &[Case]) -> Count {
    let mut count = Count::default();
    let mut failed = Vec::new();
    let mut names = BTreeSet::new();
    for case in cases {
        assert!(names.insert(&case.name), "{}: twice", case.name);
        let is_making = case.name.starts_with("a pool is made");
        assert!(is_making || !case.ops.is_empty(), "{}: nothing to do", case.name);
        count.before += case.before.len();
        count.ops += case.ops.len() + case.beside.len();
        for beside_first in [false, true] {
            if beside_first && case.beside.is_empty() {
                continue;
            }
            let done = catch_unwind(AssertUnwindSafe(|| run(case, beside_first, &mut count)));
            let done = done.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
            failed.extend(done.err().map(|why| format!("{}: {why}\n", case.name)));
        }
        // A script is of operations: the making of a pool has none.
        if !is_making {
            let again = parse_script(&print_script(case));
            assert_eq!(again.as_ref(), Ok(case), "{}", print_script(case));
        }
    }
    println!("{what}: {} cases, {count:?}", cases.len());
    let shown = failed.iter().take(60).cloned().collect::<String>();
    assert!(failed.is_empty(), "{what}: {} of {} fail\n{shown}", failed.len(), cases.len());
    count
}

#[test]
fn every_operation_alone_can_be_done() {
    let count = run_all("seq-1", &seq1());
    let all = [
        "create",
        "symlink",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "setattr",
        "write",
        "append",
        "read",
        "fallocate",
        "stat",
        "readlink",
        "list",
        "open",
        "close",
        "fsync",
        "maintain",
        "remount",
        "crash",
    ];
    let missing: Vec<_> = all.iter().filter(|verb| !count.verbs.contains_key(**verb)).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
}

#[test]
fn a_share_of_all_pairs_can_be_done() {
    pairs_can_be_done(&share(0, 16));
}

#[test]
#[ignore = "keeps two processors busy for a minute"]
fn every_pair_can_be_done() {
    pairs_can_be_done(&(0..pair_count()).collect::<Vec<_>>());
}

fn pairs_can_be_done(numbers: &[usize]) {
    let count = run_all("seq-2", &pairs(numbers, &Stop::NEVER));
    assert!(count.errors * 10 < count.ops, "too many pairs are senseless: {} errors", count.errors);
}

#[test]
fn shares_are_all_pairs_once() {
    let mut all: Vec<_> = (0..7).flat_map(|number| share(number, 7)).collect();
    all.sort();
    assert_eq!(all, (0..pair_count()).collect::<Vec<_>>());
    let sizes: Vec<_> = (0..7).map(|number| share(number, 7).len()).collect();
    assert!(sizes.iter().all(|&len| len * 7 * 5 > pair_count() * 4), "{sizes:?}");
}

#[test]
fn two_threads_can_go_in_either_order() {
    run_all("two threads", &two_threads());
}

#[test]
fn scenarios_and_random_cases_can_be_done() {
    run_all("scenarios", &scenarios());
    run_all("random", &(0..200).map(|number| random_case(number, 1)).collect::<Vec<_>>());
}

/// Examples of the page about scripts: its blocks, and the second column of its last table.
#[test]
fn examples_of_the_documentation_are_scripts() {
    let page = include_str!("../../../docs/crash-scripts.md");
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let case = parse_script(block).unwrap_or_else(|why| panic!("{why} in:\n{block}"));
        assert_eq!(parse_script(&print_script(&case)), Ok(case));
    }
    let operations = page.split("## Operations").nth(1).unwrap();
    let mut examples = 0;
    for row in operations.lines().filter(|line| line.starts_with("| `")) {
        for example in row.split('|').nth(2).unwrap().split('`').skip(1).step_by(2) {
            example.parse::<Op>().unwrap_or_else(|why| panic!("{example}: {why}"));
            examples += 1;
        }
    }
    assert!(examples > 29, "{examples} examples");
}
