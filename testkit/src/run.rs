//! Runs a sequence on a system and on the model, side by side, and shrinks what fails.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::{Error, Result};
use lode_model::Model;

use crate::execute::{Handles, Value, execute};
use crate::fs::is_gone;
use crate::op::{Op, print};
use crate::snapshot::{Times, difference, snapshot};
use crate::system::System;

/// What a run compares, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The whole tree each time so many operations were done, and at the end.
    pub tree_every: usize,
    /// Which times.
    pub times: Times,
    /// Free pages above which `NoSpace` is a failure.
    pub no_space_above: u64,
    /// Also at each tree comparison: the system's own check.
    pub check: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { tree_every: 50, times: Times::ALL, no_space_above: 512, check: true }
    }
}

/// A sequence that does not do the same on both.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The index of the operation at which it was seen.
    pub step: usize,
    /// What was seen.
    pub what: String,
    /// The sequence, up to that operation.
    pub ops: Vec<Op>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "operation {}: {}", self.step, self.what)?;
        writeln!(f, "--- the {} operations:", self.ops.len())?;
        f.write_str(&print(&self.ops))
    }
}

/// Time of the operation with this index.
pub fn time_of(step: usize) -> i64 {
    2_000_000_000 + step as i64 * 1_000
}

/// Runs `ops` on `system` and on a new model.
pub fn run(
    system: &mut dyn System,
    ops: &[Op],
    rules: &Rules,
) -> std::result::Result<Model, Failure> {
    let mut pair = Pair {
        system,
        model: Model::new(),
        handles: Handles::new(),
        model_handles: Handles::new(),
        rules,
    };
    for (step, op) in ops.iter().enumerate() {
        pair.step(step, op).map_err(|what| Failure { step, what, ops: ops[..=step].to_vec() })?;
    }
    let at_end = pair.compare_trees();
    at_end.map_err(|what| Failure { step: ops.len(), what, ops: ops.to_vec() })?;
    Ok(pair.model)
}

struct Pair<'a> {
    system: &'a mut dyn System,
    model: Model,
    handles: Handles,
    model_handles: Handles,
    rules: &'a Rules,
}

impl Pair<'_> {
    fn step(&mut self, step: usize, op: &Op) -> std::result::Result<(), String> {
        self.system.set_now(time_of(step));
        self.model.set_now(time_of(step));
        if matches!(op, Op::Remount | Op::Crash) {
            self.handles.clear();
            self.model_handles.clear();
            self.system.remount(*op == Op::Remount)?;
            System::remount(&mut self.model, true)?;
            return self.compare_trees();
        }
        if let Op::Cpus(cpus) = op {
            self.system.set_cpus(*cpus);
        }
        let found = execute(self.system.fs(), &mut self.handles, op);
        if found == Err(Error::NoSpace) {
            self.no_space(op)?;
        } else {
            let wanted = execute(&self.model, &mut self.model_handles, op);
            if !same(&wanted, &found) {
                return Err(format!("{op}: {} expected, {} found", show(&wanted), show(&found)));
            }
        }
        if (step + 1).is_multiple_of(self.rules.tree_every) {
            self.compare_trees()?;
        }
        Ok(())
    }

    /// The pool says that it is full: it must be, and nothing may have happened.
    fn no_space(&mut self, op: &Op) -> std::result::Result<(), String> {
        let asked = match op {
            Op::Write { data, .. } | Op::Append { data, .. } | Op::Sectors { data, .. } => data.len,
            Op::Fallocate { len, .. } => *len,
            _ => 0,
        };
        let free = self.system.fs().pages_free().unwrap_or(u64::MAX);
        if free > asked / 4096 + 2 + self.rules.no_space_above {
            return Err(format!("{op}: no space, but {free} pages are free"));
        }
        self.compare_trees().map_err(|what| format!("{op}: no space, but changed: {what}"))
    }

    fn compare_trees(&mut self) -> std::result::Result<(), String> {
        let wanted = snapshot(&self.model, self.rules.times, None)
            .map_err(|what| format!("the model itself: {what}"))?;
        let found = snapshot(self.system.fs(), self.rules.times, Some(&wanted))?;
        if let Some(what) = difference(&wanted, &found) {
            return Err(format!("trees differ: {what}"));
        }
        self.compare_open()?;
        let inodes = (self.model.inodes(), self.system.fs().inodes());
        if inodes.0 != inodes.1 {
            return Err(format!("{} inodes in use expected, {} found", inodes.0, inodes.1));
        }
        if self.rules.check {
            self.system.check()?;
        }
        Ok(())
    }

    /// What is open is as it should be, named or not.
    fn compare_open(&self) -> std::result::Result<(), String> {
        let fs = self.system.fs();
        for (slot, wanted) in &self.model_handles {
            let found = self.handles.get(slot).ok_or_else(|| format!("@{slot} is not open"))?;
            let fail = |error: Error| format!("open file @{slot}: {error:?}");
            let want = self.model.getattr(wanted.ino()).map_err(fail)?;
            let have = fs.getattr(found.ino()).map_err(fail)?;
            if Value::of(&want) != Value::of(&have) {
                return Err(format!("open file @{slot}: {want:?} expected, {have:?} found"));
            }
            if want.mode & lode_engine::mode::TYPE == lode_engine::mode::FILE {
                use crate::snapshot::contents;
                let want = contents(&self.model, wanted.ino(), want.size, None)?;
                let have = contents(fs, found.ino(), have.size, Some(&want))?;
                if want != have {
                    return Err(format!("open file @{slot}: contents differ"));
                }
            }
        }
        Ok(())
    }
}

/// Whether two outcomes are equal; "gone" can be said in two ways.
pub fn same(one: &Result<Value>, other: &Result<Value>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one == other || (is_gone(*one) && is_gone(*other)),
        _ => false,
    }
}

/// An outcome as text.
pub fn show(outcome: &Result<Value>) -> String {
    match outcome {
        Ok(value) => value.show(),
        Err(error) => format!("{error:?}"),
    }
}

/// As [`run`] on a new system, with a panic turned into a failure.
pub fn run_new<S: System>(
    new: &dyn Fn() -> std::result::Result<S, String>,
    ops: &[Op],
    rules: &Rules,
) -> std::result::Result<S, Failure> {
    let failed = |what| Failure { step: ops.len(), what, ops: ops.to_vec() };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut system = new().map_err(failed)?;
        run(&mut system, ops, rules).map(|_| system)
    }));
    outcome.unwrap_or_else(|payload| Err(failed(panic_text(payload.as_ref()))))
}

/// The message of a panic.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("(no text)"))
}

/// Runs `ops`; a failure is shrunk by leaving out operations while it still fails, with at
/// most `tries` more runs.
pub fn run_and_shrink<S: System>(
    new: &dyn Fn() -> std::result::Result<S, String>,
    ops: &[Op],
    rules: &Rules,
    tries: usize,
) -> std::result::Result<S, Failure> {
    let mut failure = match run_new(new, ops, rules) {
        Ok(system) => return Ok(system),
        Err(failure) => failure,
    };
    // Rarely compared trees hide the step that went wrong.
    let eager = Rules { tree_every: 1, ..*rules };
    if let Err(sooner) = run_new(new, &failure.ops, &eager) {
        failure = sooner;
    }
    Err(shrink(failure, tries, &|ops| run_new(new, ops, &eager).err()))
}

/// Leaves out pieces of a failing sequence, large ones first, while `fails` still fails.
pub fn shrink(failure: Failure, tries: usize, fails: &dyn Fn(&[Op]) -> Option<Failure>) -> Failure {
    let mut best = failure;
    let mut left = tries;
    let mut piece = (best.ops.len() / 2).max(1);
    loop {
        let before = best.ops.len();
        let mut from = 0;
        while from < best.ops.len() && left > 0 {
            left -= 1;
            let mut fewer = best.ops.clone();
            fewer.drain(from..(from + piece).min(fewer.len()));
            match fails(&fewer) {
                Some(failure) => best = failure,
                None => from += piece,
            }
        }
        if left == 0 || (piece == 1 && best.ops.len() == before) {
            return best;
        }
        piece = (piece / 2).max(1);
    }
}
