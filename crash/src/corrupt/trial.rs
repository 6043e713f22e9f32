//! One injection: a pool is damaged, opened, looked at, used, scrubbed, closed, and salvaged where need be.

use lode_engine::{Corruption, Error, Finding, Outcome, Pool, Protection, Rule, What};
use lode_model::Model;
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::op::Op;
use lode_testkit::rng::Rng;
use lode_testkit::run::{same, show};

use super::base::{Base, LATER_NS, Left, options};
use super::damage::{Damage, Phase};
use super::hurt::{Hurt, Opened, opened};
use super::look::{Look, is_damage};
use super::medium::Struck;
use super::more::{one_more, rarer};
use super::salvaged::{Salvaged, Told};
use super::tally::Verdict;
use super::told::{Refused, tells};
use super::tree::{Numbers, Tree};

type StruckPool = Pool<Struck, TestHost>;

/// Bytes that a scrub looks at in one step.
const SCRUB_STEP: u64 = 1 << 20;
/// Operations in a pool that was damaged in use, at most; and of rarer kinds behind them.
const OPERATIONS_MAX: u64 = 6;
const RARER_MAX: u64 = 3;

/// What is wrong.
pub(super) struct Wrong {
    pub(super) what: String,
    /// It is known, and docs/crash-model.md names it.
    pub(super) is_open: bool,
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self { what, is_open: false }
    }
}

/// What was seen over the whole of a trial.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    refused: usize,
    unprotected: usize,
    lost: usize,
}

/// A trial under way.
pub(super) struct Trial<'a> {
    base: &'a Base,
    damage: &'a Damage,
    trees: Vec<Tree>,
    numbers: Numbers,
    hurt: Hurt,
    was_used: bool,
    counts: Counts,
    /// What the engine leaves out.
    left_out: Option<Rule>,
    rng: Rng,
}

/// Tries one; says what became of it.
///
/// # Errors
/// What is wrong.
pub(super) fn try_one(
    base: &Base,
    damage: &Damage,
    left_out: Option<Rule>,
    rng: Rng,
) -> Result<Verdict, Wrong> {
    let hurt = Hurt::of(base, damage, opened(base.left));

    let (trees, numbers) = (base.trees.clone(), base.numbers.clone());
    let (was_used, counts) = (false, Counts::default());
    let mut trial = Trial { base, damage, trees, numbers, hurt, was_used, counts, left_out, rng };
    match damage.phase {
        Phase::Running => trial.running()?,
        Phase::Recovery if base.left != Left::Recovering => trial.during_recovery()?,
        _ => {
            let medium = Struck::new(base.pages.clone(), damage.healing);
            medium.strike(damage);
            trial.at_rest(&medium)?;
        }
    }
    let Counts { refused, unprotected, lost } = trial.counts;
    Ok(match (lost, refused, unprotected) {
        (0, 0, 0) => Verdict::Whole,
        (0, 0, _) => Verdict::Unprotected,
        (0, ..) => Verdict::Refused,
        _ => Verdict::Lost,
    })
}

impl Trial<'_> {
    fn host(&mut self) -> TestHost {
        let host = TestHost::new(self.rng.bits()).leaving_out(self.left_out);
        host.set_now(LATER_NS);
        host
    }

    fn open(&mut self, medium: &Struck, read_only: bool) -> Result<StruckPool, Error> {
        let forgetful = self.rng.once_in(2);
        let host = self.host();
        Pool::open(medium.clone(), host, &options(read_only, forgetful))
    }

    /// A pool that nobody has open, damaged.
    fn at_rest(&mut self, medium: &Struck) -> Result<(), Wrong> {
        if self.rng.once_in(3) {
            self.read_only(&medium.again(self.damage.healing))?;
        }
        let pool = self.open(medium, false);
        self.opened(medium, pool)
    }

    /// The damage comes while the pool is being recovered.
    fn during_recovery(&mut self) -> Result<(), Wrong> {
        let quiet = Struck::new(self.base.pages.clone(), self.damage.healing);
        let pool = self.open(&quiet, false);
        pool.map_err(|error| format!("undamaged: {error}"))?;
        let medium = Struck::new(self.base.pages.clone(), self.damage.healing);
        medium.strike_at(self.rng.below(quiet.loads()), self.damage);
        let pool = self.open(&medium, false);
        medium.strike_late();
        self.opened(&medium, pool)
    }

    /// An opening for reading alone: it writes nothing, and shows what can be shown.
    fn read_only(&mut self, medium: &Struck) -> Result<(), String> {
        match self.open(medium, true) {
            Ok(pool) => {
                self.look_and_scrub(&pool, "read-only")?;
            }
            Err(error) => self.refusal("read-only opening", error)?,
        }
        match medium.stores() {
            0 => Ok(()),
            _ => Err("a read-only opening wrote".to_owned()),
        }
    }

    /// A whole opening or the like that was refused.
    fn refusal(&mut self, what: &str, error: Error) -> Result<(), String> {
        let spoilt = self.was_used && self.hurt.spoils_metadata();
        let may = self.hurt.superblocks || self.hurt.metadata || spoilt;
        if may && (is_damage(error) || matches!(error, Error::NotAPool(_))) {
            self.counts.refused += 1;
            return Ok(());
        }
        Err(format!("{what}: {error} ({error:?})"))
    }

    /// Looks at all that it shows, and scrubs it: that has to tell of what was refused. Says what it found.
    fn look_and_scrub(&mut self, pool: &StruckPool, when: &str) -> Result<Vec<Finding>, String> {
        let refused = self.look(pool).map_err(|what| format!("{when}: {what}"))?;
        let found = self.scrub(pool).map_err(|what| format!("{when}, scrub: {what}"))?;
        let told = tells((self.base, &self.hurt), self.was_used, &refused, &found);
        told.map_err(|what| format!("{when}, told by a scrub: {what}"))?;
        Ok(found)
    }

    /// Says what was refused.
    fn look(&mut self, pool: &StruckPool) -> Result<Vec<Refused>, String> {
        let mut look = Look::new(self.base, &self.hurt, self.was_used);
        look.any(pool, &self.trees, &self.numbers)?;
        self.counts.refused += look.seen.refused;
        self.counts.unprotected += look.seen.unprotected;
        Ok(look.refused)
    }

    /// What came of opening it for writing: all is looked at, scrubbed, checked, closed and looked at again.
    fn opened(&mut self, medium: &Struck, pool: Result<StruckPool, Error>) -> Result<(), Wrong> {
        let pool = match pool {
            Ok(pool) => pool,
            Err(error) => {
                self.refusal("opening", error)?;
                return Ok(self.salvage(medium)?);
            }
        };
        self.look_and_scrub(&pool, "opened")?;
        let is_sound = self.check(&pool, "check")?;
        let closed = pool.close();
        drop(pool);
        if let Err(error) = closed {
            self.refusal("close", error)?;
            return Ok(self.salvage(medium)?);
        }
        self.machine_checks(medium)?;
        let again = medium.again(self.damage.healing);
        match self.open(&again, true) {
            Ok(pool) => {
                let found = self.look_and_scrub(&pool, "opened again")?;
                self.nothing_left(&found)?;
                self.check(&pool, "second check")?;
            }
            Err(error) => self.refusal("second opening", error)?,
        }
        if is_sound { Ok(()) } else { Ok(self.salvage(&again)?) }
    }

    /// Stores of less than a line to memory that can't be loaded kill a program on real hardware.
    fn machine_checks(&mut self, medium: &Struck) -> Result<(), Wrong> {
        match medium.machine_checks() {
            0 => Ok(()),
            // (Stated of level `none`.)
            _ if self.base.level == Protection::None => {
                self.counts.unprotected += 1;
                Ok(())
            }
            many => {
                let what = format!("{many} parts of bad lines were stored to");
                Err(Wrong { what, is_open: true })
            }
        }
    }

    fn scrub(&self, pool: &StruckPool) -> Result<Vec<Finding>, String> {
        let fail = |error: Error| format!("{error} ({error:?})");
        let mut scrub = pool.begin_scrub().map_err(fail)?;
        let mut found = Vec::new();
        while !scrub.is_over() {
            pool.scrub(&mut scrub, SCRUB_STEP).map_err(fail)?;
            found.extend(scrub.take_findings());
        }
        Ok(found)
    }

    /// Nothing is left for a second scrub to find where all could be mended.
    fn nothing_left(&self, found: &[Finding]) -> Result<(), String> {
        let spoilt = self.was_used && self.hurt.spoils_data();
        let may = !self.hurt.is_mendable || self.hurt.data || self.hurt.stays_bad || spoilt;
        // (A copy in bad memory is left, where the other one is good.)
        let is_left = |one: &&Finding| one.outcome == Outcome::Left && self.hurt.spoils_data();
        // (What is kept of their strips is hit apart from them, and no place of its own.)
        let is_target = |one: &&Finding| {
            let is_lost = (one.what, one.outcome) == (What::Data, Outcome::Lost);
            is_lost && self.hurt.hits_target(self.base, one.ino)
        };
        match found.iter().find(|one| !is_left(one) && !is_target(one)) {
            Some(one) if !may => Err(format!("scrubbed, and then: {one:?}")),
            _ => Ok(()),
        }
    }

    /// The full check finds nothing but what the damage may have done; says whether it found nothing.
    fn check(&mut self, pool: &StruckPool, what: &str) -> Result<bool, String> {
        let report = match pool.check(&mut |_, _| ()) {
            Ok(report) => report,
            Err(error) => {
                self.refusal(what, error)?;
                return Ok(false);
            }
        };
        if let Some(damage) = report.damage.first() {
            let spoilt = self.hurt.stays_bad || self.was_used && self.hurt.spoils_metadata();
            if !self.hurt.metadata && !self.hurt.data && !spoilt {
                return Err(format!("{what}: {damage}"));
            }
            return Ok(false);
        }
        if let Some(damage) = report.differing.first()
            && !self.hurt.stays_bad
            && !self.hurt.metadata
        {
            return Err(format!("{what}: {damage}"));
        }
        Ok(true)
    }

    /// The damage comes while the pool is in use.
    fn running(&mut self) -> Result<(), Wrong> {
        let medium = Struck::new(self.base.pages.clone(), self.damage.healing);
        let host = self.host();
        let forgetful = self.rng.once_in(2);
        let pool = Pool::open(medium.clone(), host.clone(), &options(false, forgetful));
        let pool = pool.map_err(|error| format!("undamaged: {error}"))?;
        if self.rng.once_in(2) {
            // So that it is all in memory.
            self.trees[0].numbers(&pool)?;
        }
        medium.strike(self.damage);
        self.hurt = Hurt::of(self.base, self.damage, Opened::Closed);
        self.hurt.later = true;
        self.was_used = true;
        let model = self.base.model.clone();
        let at = |step: u64| {
            let now_ns = LATER_NS + step as i64 * 1000;
            host.set_now(now_ns);
            model.set_now(now_ns);
        };
        for step in 0..self.rng.below(OPERATIONS_MAX + 1) {
            at(step);
            let op = one_more(&self.trees[0], &mut self.rng);
            self.operation(&pool, &model, &op)?;
        }
        // (Drawn apart, so that names of injections still mean what they did.)
        let mut apart = self.rng.clone();
        for step in 0..if apart.once_in(3) { 1 + apart.below(RARER_MAX) } else { 0 } {
            at(OPERATIONS_MAX + step);
            let op = rarer(&self.trees[0], &mut apart);
            self.operation(&pool, &model, &op)?;
        }
        self.trees = vec![Tree::of(&model)?];
        self.look_and_scrub(&pool, "in use")?;
        let mut after = Opened::Crashed;
        if !self.rng.once_in(3) {
            match pool.close() {
                Ok(()) => after = Opened::Closed,
                Err(error) => self.refusal("close", error)?,
            }
        }
        drop(pool);
        self.machine_checks(&medium)?;
        self.hurt = Hurt::of(self.base, self.damage, after);
        self.hurt.later = true;
        let damaged = self.hurt.metadata || self.hurt.spoils_metadata();
        self.hurt.undoes_late = after == Opened::Crashed && damaged;
        self.at_rest(&medium.again(self.damage.healing))
    }

    /// One operation, on the pool and the model: it gives the same on both, or an error and no change.
    fn operation(&mut self, pool: &StruckPool, model: &Model, op: &Op) -> Result<(), Wrong> {
        let found = execute(pool, &mut Handles::new(), op);
        match found {
            Err(Error::NoSpace) => Ok(()),
            Err(error) if is_damage(error) || error == Error::ReadOnly => {
                let may = self.hurt.metadata || self.hurt.data || self.hurt.stays_bad;
                self.counts.refused += usize::from(may);
                let what = format!("{op}: {error} ({error:?})");
                // (Fresh pages lie in bad memory that nobody has met yet.)
                let is_open = matches!(error, Error::Media { .. });
                if may { Ok(()) } else { Err(Wrong { what, is_open }) }
            }
            found => {
                let wanted = execute(model, &mut Handles::new(), op);
                if same(&wanted, &found) {
                    return Ok(());
                }
                Err(format!("{op}: {} expected, {} found", show(&wanted), show(&found)).into())
            }
        }
    }

    /// What can't be opened, or isn't sound, is made sound.
    fn salvage(&mut self, medium: &Struck) -> Result<(), String> {
        let medium = medium.again(self.damage.healing);
        let (mut told, host) = (Told::default(), self.host());
        let salvaged = Pool::salvage(medium.clone(), host, &mut |event| told.hear(&event));
        match salvaged {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                self.counts.refused += 1;
                return Ok(());
            }
            Err(error) => return self.refusal("salvage", error),
        }
        let medium = medium.again(self.damage.healing);
        let pool = match self.open(&medium, false) {
            Ok(pool) => pool,
            Err(error) => return Err(format!("salvaged, and then: {error} ({error:?})")),
        };
        let report = pool.check(&mut |_, _| ());
        let report = report.map_err(|error| format!("check after a salvage: {error}"))?;
        // (What snapshots have lost nobody can mend: it is told as long as they are there.)
        let is_of_now = |damage: &&Corruption| !StruckPool::is_in_snapshot(damage.ino);
        if let Some(damage) = report.damage.iter().find(is_of_now)
            && !self.hurt.spoils_metadata()
        {
            return Err(format!("check after a salvage: {damage}"));
        }
        let (base, hurt, was_used) = (self.base, &self.hurt, self.was_used);
        let salvaged = Salvaged { base, hurt, told: &told, pool: &pool, was_used };
        self.counts.lost += salvaged.judge(&self.trees, &self.numbers)?;
        Ok(())
    }
}
