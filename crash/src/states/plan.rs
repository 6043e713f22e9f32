//! Which states of a point are tried, in which order.
//!
//! None, all, each alone, all but one, prefixes in the order of the stores; then every combination
//! of whole stores that the judge can tell apart, while there is budget; where it ends, pairs and random
//! ones. Torn stores: with all others there, with none, and with each combination of others that the
//! judge was seen to tell apart.

use lode_testkit::rng::Rng;

use super::tree::{Place, Tree};
use super::{Choice, Units};
use crate::region::{Point, Profile};

/// How many states of a point are judged, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Of whole stores.
    pub whole: usize,
    /// With a torn store.
    pub torn: usize,
}

impl Budget {
    /// Whether it is enough for all the ways to tear a line, and not only for typical ones.
    pub fn all_tears(&self) -> bool {
        self.torn >= ALL_TEARS
    }
}

/// Ways to tear a line of eight words: some of them there, and some not.
const ALL_TEARS: usize = 254;

/// The first ways to tear a line: one word is missing. What no seal covers is torn off so.
const ONE_MISSING: u64 = 8;

/// Of one point no more states than this are counted: an unwritten page alone has more than atoms
/// could hold.
const COUNTED_MAX: f64 = 1e18;

/// What was tried at a point.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Explored {
    /// States tried, those that were pruned included; where all were, their number (of one point
    /// at most 1e18).
    pub states: f64,
    /// States judged.
    pub judged: u64,
    /// States that look like a judged one, or are one.
    pub pruned: f64,
    /// Points all of whose whole states were judged or pruned.
    pub exhausted: u64,
}

impl Explored {
    /// Adds another point's.
    pub fn add(&mut self, other: &Explored) {
        self.states += other.states;
        self.judged += other.judged;
        self.pruned += other.pruned;
        self.exhausted += other.exhausted;
    }
}

/// What came of one state.
#[derive(Clone, Debug)]
pub struct Judged<F> {
    /// The failure, if it is wrong.
    pub result: Result<(), F>,
    /// The lines that the judge looked at, in order.
    pub lines: Vec<u64>,
    /// The same image was judged before, and not again.
    pub known: bool,
}

struct Run<'u, F> {
    units: &'u Units,
    tree: Tree,
    explored: Explored,
    /// States that were judged so far: no two of them look alike.
    judged: Vec<Vec<u16>>,
    left: usize,
    judge: &'u mut dyn FnMut(&Choice) -> Judged<F>,
}

/// Tries the states of a point; ends at the first failure.
pub fn explore_point<F>(
    point: &Point,
    units: &Units,
    profile: Profile,
    budget: Budget,
    rng: &mut Rng,
    judge: &mut dyn FnMut(&Choice) -> Judged<F>,
) -> (Explored, Result<(), (Choice, F)>) {
    debug_assert_eq!(units.steps.len(), point.pending.len());
    let (tree, explored) = (Tree::default(), Explored::default());
    let mut run = Run { units, tree, explored, judged: Vec::new(), left: budget.whole, judge };
    let result = if profile == Profile::Eadr {
        run.in_order(budget, rng)
    } else {
        run.any_order(budget, rng)
    };
    (run.explored, result)
}

type Outcome<F> = Result<(), (Choice, F)>;

impl<F> Run<'_, F> {
    /// Tries one state.
    fn try_one(&mut self, choice: Vec<u16>) -> Outcome<F> {
        if self.left == 0 {
            return Ok(());
        }
        if self.tree.find(&choice) == Place::Known {
            self.explored.states += 1.0;
            self.explored.pruned += 1.0;
            return Ok(());
        }
        let choice = Choice(choice);
        let Judged { result, lines, known } = (self.judge)(&choice);
        if let Err(failure) = result {
            return Err((choice, failure));
        }
        self.explored.states += 1.0;
        if known {
            self.explored.pruned += 1.0;
        } else {
            self.left -= 1;
            self.explored.judged += 1;
        }
        self.tree.add(&choice.0, &self.looked_at(&lines));
        self.judged.push(choice.0);
        Ok(())
    }

    /// The units of these lines, each once.
    fn looked_at(&self, lines: &[u64]) -> Vec<u32> {
        let mut looked_at: Vec<u32> = Vec::new();
        for line in lines {
            let unit = self.units.unit_of(*line).map(|unit| unit as u32);
            let unit = unit.expect("only lines of units are watched");
            if !looked_at.contains(&unit) {
                looked_at.push(unit);
            }
        }
        looked_at
    }

    fn count(&self) -> usize {
        self.units.units.len()
    }

    /// The state after the first `stores` stores.
    fn prefix(&self, stores: usize) -> Vec<u16> {
        let mut choice = vec![0; self.count()];
        for (unit, state) in self.units.steps[..stores].iter().flatten() {
            choice[*unit as usize] = *state;
        }
        choice
    }

    /// Every unit with nothing new in it, or with everything.
    fn uniform(&self, full: bool) -> Vec<u16> {
        self.units.units.iter().map(|unit| if full { unit.all } else { 0 }).collect()
    }

    /// eADR: everything up to some store, and the next one up to some word.
    fn in_order(&mut self, budget: Budget, rng: &mut Rng) -> Outcome<F> {
        let stores = self.units.steps.len();
        let ends = sample(stores + 1, budget.whole, rng);
        for &end in &ends {
            self.try_one(self.prefix(end))?;
        }
        self.explored.exhausted += u64::from(ends.len() == stores + 1);
        self.left = budget.torn;
        for end in sample(stores, budget.torn / 3 + 1, rng) {
            let Some((number, _)) = self.units.steps[end] else { continue };
            let unit = &self.units.units[number as usize];
            let place = unit.stores.iter().position(|&store| store == end).unwrap_or(0);
            let torn: Vec<u16> = (unit.whole..unit.alternatives.len())
                .filter(|&one| {
                    let kept = &unit.alternatives[one].kept;
                    kept[place] != 0 && kept[place] != 0xFF
                })
                .map(|one| one as u16)
                .collect();
            for one in sample(torn.len(), 3, rng) {
                let mut choice = self.prefix(end);
                choice[number as usize] = torn[one];
                self.try_one(choice)?;
            }
        }
        Ok(())
    }

    fn any_order(&mut self, budget: Budget, rng: &mut Rng) -> Outcome<F> {
        let count = self.count();
        self.try_one(self.uniform(false))?;
        self.try_one(self.uniform(true))?;
        let share = budget.whole / 4;
        for unit in sample(count, share, rng) {
            for others in [false, true] {
                let mut choice = self.uniform(others);
                choice[unit] = self.uniform(!others)[unit];
                self.try_one(choice)?;
            }
        }
        for end in sample(self.units.steps.len(), share, rng) {
            self.try_one(self.prefix(end))?;
        }
        if !self.all()? {
            self.pairs_and_random(rng)?;
        }
        self.left = budget.torn;
        self.torn(budget.torn, rng)
    }

    /// Every combination of whole stores that looks different; says whether all were tried.
    fn all(&mut self) -> Result<bool, (Choice, F)> {
        let wholes: Vec<u16> = self.units.units.iter().map(|unit| unit.whole as u16).collect();
        // Units on a path are many where data is looked at: half of the budget for what is left.
        let keep = self.left / 2;
        while self.left > keep {
            let Some(path) = self.tree.unjudged(&wholes) else {
                let all = self.units.whole_images().min(COUNTED_MAX);
                self.explored.states = all.max(self.explored.states);
                self.explored.pruned = self.explored.states - self.explored.judged as f64;
                self.explored.exhausted += 1;
                return Ok(true);
            };
            let mut choice = vec![0; self.count()];
            for (unit, content) in path {
                choice[unit as usize] = content;
            }
            self.try_one(choice)?;
        }
        Ok(false)
    }

    fn pairs_and_random(&mut self, rng: &mut Rng) -> Outcome<F> {
        let count = self.count();
        let mut pairs = Vec::new();
        for one in 0..count.min(40) {
            pairs.extend((0..one).map(|other| (one, other)));
        }
        for pair in sample(pairs.len(), self.left / 2, rng) {
            let (one, other) = pairs[pair];
            let others = rng.below(2) == 0;
            let (mut choice, inverse) = (self.uniform(others), self.uniform(!others));
            (choice[one], choice[other]) = (inverse[one], inverse[other]);
            self.try_one(choice)?;
        }
        for _ in 0..4 * self.left {
            if self.left == 0 {
                break;
            }
            let choice = self.random(rng);
            self.try_one(choice)?;
        }
        Ok(())
    }

    fn random(&self, rng: &mut Rng) -> Vec<u16> {
        let ones = rng.below(4);
        let mut pick = |unit: &super::Unit| match rng.below(4) {
            0 => rng.below(unit.whole as u64) as u16,
            roll if roll <= ones => unit.all,
            _ => 0,
        };
        self.units.units.iter().map(&mut pick).collect()
    }

    fn torn(&mut self, budget: usize, rng: &mut Rng) -> Outcome<F> {
        let mut torn = Vec::new();
        for (number, unit) in self.units.units.iter().enumerate() {
            torn.extend((unit.whole..unit.alternatives.len()).map(|one| (number, one as u16)));
        }
        let share = budget.div_ceil(3);
        for others in [true, false] {
            for one in sample(torn.len(), share, rng) {
                let (unit, content) = torn[one];
                let mut choice = self.uniform(others);
                choice[unit] = content;
                self.try_one(choice)?;
            }
        }
        self.torn_among_others(rng)
    }

    /// Torn stores among whole ones that were told apart; now and then, two torn ones.
    fn torn_among_others(&mut self, rng: &mut Rng) -> Outcome<F> {
        let torn = |unit: &super::Unit| unit.whole < unit.alternatives.len();
        let tearable: Vec<usize> =
            (0..self.count()).filter(|&unit| torn(&self.units.units[unit])).collect();
        let others = self.judged.len();
        if tearable.is_empty() || others == 0 {
            return Ok(());
        }
        for _ in 0..4 * self.left {
            if self.left == 0 {
                break;
            }
            let mut choice = self.judged[rng.below(others as u64) as usize].clone();
            for _ in 0..if rng.once_in(4) { 2 } else { 1 } {
                let unit = tearable[rng.below(tearable.len() as u64) as usize];
                choice[unit] = tear(&self.units.units[unit], rng);
            }
            self.try_one(choice)?;
        }
        Ok(())
    }
}

/// A torn content of a unit: half of the time one that lacks a single word.
fn tear(unit: &super::Unit, rng: &mut Rng) -> u16 {
    let ways = (unit.alternatives.len() - unit.whole) as u64;
    let ways = if rng.below(2) == 0 { ways.min(ONE_MISSING) } else { ways };
    unit.whole as u16 + rng.below(ways) as u16
}

/// At most `most` of the numbers below `count`: all, or the first, the last and random ones.
fn sample(count: usize, most: usize, rng: &mut Rng) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    let mut taken = vec![0, count - 1];
    taken.truncate(most);
    while taken.len() < most {
        let one = rng.below(count as u64) as usize;
        if !taken.contains(&one) {
            taken.push(one);
        }
    }
    taken
}
