//! Random cases as a strategy of proptest: a failing one is made shorter, then simpler.

use std::cell::RefCell;

use lode_crash::case::Case;
use lode_crash::workload::random_case;
use lode_testkit::op::{Fill, Op, Target};
use proptest::prelude::Rng;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Runs of the property that making a failing case shorter may take.
const SHRINK_MAX: u32 = 2000;

/// All random cases.
#[derive(Debug)]
pub struct Sequences;

/// A case on its way to a simpler one.
pub struct SequenceTree {
    case: Case,
    /// What the last step changed, to take it back.
    previous: Option<Case>,
    /// What is tried next.
    next: Step,
    /// Whether a step since the first one of this round was good.
    better: bool,
}

/// The steps of a round, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Leave out this many operations from here on, of all.
    LeaveOut {
        from: usize,
        count: usize,
    },
    /// Take the simpler form with this number of the operation at this place.
    Simplify {
        at: usize,
        form: usize,
    },
    Done,
}

impl Strategy for Sequences {
    type Tree = SequenceTree;
    type Value = Case;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let case = random_case(runner.rng().next_u64(), 1);
        let next = Step::first(&case);
        Ok(SequenceTree { case, previous: None, next, better: false })
    }
}

impl ValueTree for SequenceTree {
    type Value = Case;

    fn current(&self) -> Case {
        self.case.clone()
    }

    /// The last step's case still fails (or is the first): goes on from it.
    fn simplify(&mut self) -> bool {
        if self.previous.is_some() {
            self.better = true;
            // What follows has moved to where the left out ones were.
            if let Step::Simplify { at, .. } = self.next {
                self.next = Step::Simplify { at, form: 0 };
            }
        }
        self.step()
    }

    /// The last step's case is good: takes it back, and goes on behind it.
    fn complicate(&mut self) -> bool {
        let Some(previous) = self.previous.take() else {
            return false;
        };
        self.case = previous;
        self.next = match self.next {
            Step::LeaveOut { from, count } => Step::LeaveOut { from: from + count, count },
            Step::Simplify { at, form } => Step::Simplify { at, form: form + 1 },
            Step::Done => Step::Done,
        };
        self.step()
    }
}

impl Step {
    fn first(case: &Case) -> Self {
        Step::LeaveOut { from: 0, count: (length(case) / 2).max(1) }
    }
}

impl SequenceTree {
    /// Makes the next change that changes anything; false if there is none left. `next` stays
    /// at it until it is known whether it was good.
    fn step(&mut self) -> bool {
        loop {
            let changed = match self.next {
                Step::LeaveOut { from, count } if from >= length(&self.case) => {
                    self.next = match count {
                        0 | 1 => Step::Simplify { at: 0, form: 0 },
                        _ => Step::LeaveOut { from: 0, count: count / 2 },
                    };
                    continue;
                }
                Step::LeaveOut { from, count } => Some(left_out(&self.case, from, count)),
                Step::Simplify { at, .. } if at >= length(&self.case) => {
                    // What is simpler may let others be left out.
                    let again = std::mem::take(&mut self.better);
                    self.next = if again { Step::first(&self.case) } else { Step::Done };
                    continue;
                }
                Step::Simplify { at, form } => simplified(&self.case, at, form),
                Step::Done => {
                    self.previous = None;
                    return false;
                }
            };
            match (changed, self.next) {
                (Some(changed), _) if !changed.ops.is_empty() => {
                    self.previous = Some(std::mem::replace(&mut self.case, changed));
                    return true;
                }
                // Something must stay; nothing simpler is left of this operation.
                (Some(_), Step::LeaveOut { from, count }) => {
                    self.next = Step::LeaveOut { from: from + count, count };
                }
                (_, Step::Simplify { at, .. }) => {
                    self.next = Step::Simplify { at: at + 1, form: 0 }
                }
                (_, _) => self.next = Step::Done,
            }
        }
    }
}

/// Operations in all lists.
fn length(case: &Case) -> usize {
    case.before.len() + case.ops.len() + case.beside.len()
}

/// Without the ones left out; if none of `ops` is left, the last of those before takes their place.
fn left_out(case: &Case, from: usize, count: usize) -> Case {
    let mut case = case.clone();
    let mut at = 0;
    for list in [&mut case.before, &mut case.ops, &mut case.beside] {
        list.retain(|_| {
            at += 1;
            !(from..from + count).contains(&(at - 1))
        });
    }
    if case.ops.is_empty() {
        case.ops.extend(case.before.pop());
    }
    case
}

fn simplified(case: &Case, at: usize, form: usize) -> Option<Case> {
    let mut case = case.clone();
    let mut all = case.before.iter_mut().chain(&mut case.ops).chain(&mut case.beside);
    let op = all.nth(at)?;
    *op = simpler(op).into_iter().nth(form)?;
    Some(case)
}

/// Simpler forms of an operation, the simplest first. None leads back to a less simple one.
fn simpler(op: &Op) -> Vec<Op> {
    match op {
        Op::Write { to, offset, data } => {
            let write = |offset, data| Op::Write { to: to.clone(), offset, data };
            let offsets = less(*offset).into_iter().map(|offset| write(offset, *data));
            offsets.chain(fills(*data).into_iter().map(|data| write(*offset, data))).collect()
        }
        Op::Append { to, data } => {
            let append = |data| Op::Append { to: to.clone(), data };
            fills(*data).into_iter().map(append).collect()
        }
        Op::Fallocate { of, how, offset, len } => {
            let of_range = |offset, len| Op::Fallocate { of: of.clone(), how: *how, offset, len };
            let offsets = less(*offset).into_iter().map(|offset| of_range(offset, *len));
            let lengths = less(*len).into_iter().filter(|len| *len > 0);
            offsets.chain(lengths.map(|len| of_range(*offset, len))).collect()
        }
        Op::SetAttr { of: Target::Path(path), attrs } => {
            let of = || Target::Path(path.clone());
            let mut sizes = less(attrs.size.unwrap_or(0));
            sizes.truncate(if attrs.size.is_some() { sizes.len() } else { 0 });
            let set = |size| lode_testkit::op::Attrs { size: Some(size), ..*attrs };
            sizes.into_iter().map(|size| Op::SetAttr { of: of(), attrs: set(size) }).collect()
        }
        _ => Vec::new(),
    }
}

fn fills(data: Fill) -> Vec<Fill> {
    let lengths = less(data.len).into_iter().filter(|len| *len > 0);
    let mut fills: Vec<Fill> = lengths.map(|len| Fill { len, ..data }).collect();
    if data.fill > 1 {
        fills.push(Fill { fill: 1, ..data });
    }
    fills
}

/// Numbers that are less and simpler.
fn less(number: u64) -> Vec<u64> {
    let mut all =
        vec![0, 1, number / 4096 * 4096, number / 64 * 64, number / 2, number.saturating_sub(1)];
    all.retain(|less| *less < number);
    all.dedup();
    all
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Broken {
    /// The simplest case found in which it does not.
    pub case: Case,
    /// What the property said of it.
    pub why: String,
}

/// Tries the property on so many random cases, the same ones for a seed.
pub fn holds_for_all(
    seed: u64,
    cases: u32,
    property: impl Fn(&Case) -> Result<(), String>,
) -> Result<(), Box<Broken>> {
    let config = Config {
        cases,
        max_shrink_iters: SHRINK_MAX,
        failure_persistence: None,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let said = RefCell::new(String::new());
    let outcome = TestRunner::new_with_rng(config, rng).run(&Sequences, |case| {
        property(&case).map_err(|why| {
            said.replace(why.clone());
            TestCaseError::fail(why)
        })
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(_, case)) => Err(Box::new(Broken { case, why: said.into_inner() })),
        Err(TestError::Abort(why)) => panic!("the test itself: {why}"),
    }
}
