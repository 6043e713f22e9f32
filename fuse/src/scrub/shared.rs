//! The scrub of a mount. A pool has one at a time: who asks for one on the control socket goes first, the server's own gives way.
//!
//! It goes on by steps. Who asks takes a step with each question, and so decides how fast it goes; nothing goes on when nobody asks any more.

use std::time::{Duration, Instant};

use lode_engine::{ExemptRange, Finding, Host, Outcome, Pool, Scrub};
use lode_pmem::Medium;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::damage::Damage;
use crate::stats;

/// The most bytes of a step.
const STEP_MAX: u64 = 16 << 20;
/// The most findings in an answer, which is a line of bounded length.
const FINDINGS_MAX: usize = 4000;
/// The most pages in bad memory that an answer names.
const KEPT_MAX: usize = 1000;
/// Who asks for no further step for so long has gone.
const PATIENCE: Duration = Duration::from_secs(600);

/// What was found, by what became of it.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Made good.
    pub repaired: u64,
    /// Bad in one copy, which stays so.
    pub left: u64,
    /// Lost.
    pub lost: u64,
}

impl Counts {
    /// Takes in what a step has found.
    pub(super) fn add(&mut self, findings: &[Finding]) {
        for found in findings {
            match found.outcome {
                Outcome::Repaired => self.repaired += 1,
                Outcome::Left => self.left += 1,
                Outcome::Lost => self.lost += 1,
            }
        }
    }

    /// How many there are.
    pub(super) fn all(&self) -> u64 {
        self.repaired + self.left + self.lost
    }
}

/// How it is with scrubs, for those who watch.
#[derive(Clone, Copy, Default)]
pub struct Facts {
    /// How many have begun.
    begun: u64,
    /// One goes on.
    pub running: bool,
    /// Bytes that the last one has looked at, which may go on.
    pub done: u64,
    /// Bytes that there are for it.
    pub all: u64,
    /// How many have come to their end.
    pub ended: u64,
    /// When the last of these did, in nanoseconds since 1970.
    pub ended_ns: i64,
    /// What that one had found.
    pub found: Counts,
}

/// A scrub that goes on.
struct Going {
    scrub: Scrub,
    /// Its number: those of others are told that theirs is over.
    id: u64,
    /// Somebody has asked for it.
    asked: bool,
    /// When it began, and when its last step was taken.
    began: Instant,
    stepped: Instant,
    found: Counts,
}

/// The scrub that goes on, if one does.
#[derive(Default)]
pub struct Scrubs {
    going_on: Mutex<Option<Going>>,
    facts: Mutex<Facts>,
}

/// What a step has come to.
pub struct Step {
    /// The scrub's number.
    id: u64,
    /// Bytes looked at so far.
    pub done: u64,
    all: u64,
    /// It was the last one.
    pub over: bool,
    /// Findings that were too many, so far.
    pub forgotten: u64,
    /// Pages that were passed over, so far: programs have them mapped to store into.
    pub exempt_pages: u64,
    /// Which these are that the step has met, as far as they are named.
    pub exempt: Vec<ExemptRange>,
    /// What the step has found.
    pub findings: Vec<Finding>,
}

impl Scrubs {
    /// How it is with them.
    pub fn facts(&self) -> Facts {
        *self.facts.lock()
    }

    /// Begins the server's own scrub, and says which number it has; none if somebody who has asked for one is at it.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn begin_own<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
    ) -> lode_engine::Result<Option<u64>> {
        let mut going_on = self.going_on.lock();
        if going_on.as_ref().is_some_and(|it| it.asked && it.stepped.elapsed() < PATIENCE) {
            return Ok(None);
        }
        self.begin(pool, &mut going_on, false).map(Some)
    }

    /// Takes the server's own scrub on by about `bytes` bytes; none if it had to give way.
    ///
    /// # Errors
    /// Those of the engine; the scrub is given up then.
    pub(super) fn step_own<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        damage: &Damage,
        (id, bytes): (u64, u64),
    ) -> lode_engine::Result<Option<Step>> {
        let mut going_on = self.going_on.lock();
        if going_on.as_ref().is_none_or(|it| it.id != id) {
            return Ok(None);
        }
        let step = self.take_on(pool, damage, &mut going_on, bytes);
        step.inspect_err(|_| self.give_up(&mut going_on))
    }

    /// Gives the server's own scrub up, if it goes on.
    pub(super) fn end_own(&self, id: u64) {
        let mut going_on = self.going_on.lock();
        if going_on.as_ref().is_some_and(|it| it.id == id) {
            self.give_up(&mut going_on);
        }
    }

    /// Gives up whichever goes on: the pool becomes another one. Who has asked for it is told that it is over.
    pub fn cut_off(&self) {
        self.give_up(&mut self.going_on.lock());
    }

    fn give_up(&self, going_on: &mut Option<Going>) {
        *going_on = None;
        self.facts.lock().running = false;
    }

    /// Does what somebody asks for: a step of about `bytes` bytes of a scrub, of a new one with `start`.
    ///
    /// # Errors
    /// A sentence for who has asked.
    pub fn answer<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        damage: &Damage,
        request: &Value,
    ) -> Result<Value, String> {
        const ANOTHER: &str = "another scrub has begun, or none has";
        let failed = |error: lode_engine::Error| error.to_string();
        let bytes = request.get("bytes").and_then(Value::as_u64).unwrap_or(STEP_MAX);
        let mut going_on = self.going_on.lock();
        if request.get("start").and_then(Value::as_bool) == Some(true) {
            self.begin(pool, &mut going_on, true).map_err(failed)?;
        } else {
            let id = request.get("scrub").and_then(Value::as_u64);
            going_on.as_ref().filter(|it| Some(it.id) == id).ok_or(ANOTHER)?;
        }
        let step = self.take_on(pool, damage, &mut going_on, bytes.min(STEP_MAX));
        let step = step.map_err(failed)?;
        step.ok_or(ANOTHER)?.answer(pool).map_err(failed)
    }

    fn begin<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        going_on: &mut Option<Going>,
        asked: bool,
    ) -> lode_engine::Result<u64> {
        let scrub = pool.begin_scrub()?;
        let (done, all, found) = (scrub.done(), scrub.all(), Counts::default());
        let mut facts = self.facts.lock();
        let id = facts.begun + 1;
        *facts = Facts { begun: id, running: true, done, all, ..*facts };
        let began = Instant::now();
        *going_on = Some(Going { scrub, id, asked, began, stepped: began, found });
        Ok(id)
    }

    fn take_on<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        damage: &Damage,
        going_on: &mut Option<Going>,
        bytes: u64,
    ) -> lode_engine::Result<Option<Step>> {
        let Some(going) = going_on.as_mut() else { return Ok(None) };
        pool.scrub(&mut going.scrub, bytes)?;
        let (findings, exempt) = (going.scrub.take_findings(), going.scrub.take_exempt());
        going.found.add(&findings);
        damage.found(&findings);
        going.stepped = Instant::now();
        let scrub = &going.scrub;
        let (done, all, over) = (scrub.done(), scrub.all(), scrub.is_over());
        let (id, forgotten, exempt_pages) = (going.id, scrub.forgotten(), scrub.exempt_pages());
        let step = Step { id, done, all, over, forgotten, exempt_pages, exempt, findings };
        let mut facts = self.facts.lock();
        *facts = Facts { running: !over, done, all, ..*facts };
        if over {
            if forgotten + exempt_pages == 0 {
                damage.lost.scrubbed(going.began);
            }
            let (ended, ended_ns) = (facts.ended + 1, lode_host::now_ns());
            *facts = Facts { ended, ended_ns, found: going.found, ..*facts };
            *going_on = None;
        }
        Ok(Some(step))
    }
}

impl Step {
    fn answer<M: Medium, H: Host>(&self, pool: &Pool<M, H>) -> lode_engine::Result<Value> {
        let listed = self.findings.iter().take(FINDINGS_MAX);
        let more = self.findings.len().saturating_sub(FINDINGS_MAX) as u64;
        let bad = if self.over { pool.bad_memory()? } else { Vec::new() };
        let bad_memory = stats::bad_memory(&bad);
        let kept = bad.iter().filter(|bad| !bad.in_use).take(KEPT_MAX);
        Ok(json!({
            "scrub": self.id,
            "done": self.done,
            "all": self.all,
            "over": self.over,
            "forgotten": self.forgotten + more,
            "exempt_pages": self.exempt_pages,
            "exempt": self.exempt.iter().map(exempt).collect::<Vec<_>>(),
            "findings": listed.map(finding).collect::<Vec<_>>(),
            "bad_memory": bad_memory,
            "kept": kept.map(|bad| (bad.page, bad.lines)).collect::<Vec<_>>(),
        }))
    }
}

fn exempt(range: &ExemptRange) -> Value {
    json!({ "ino": range.ino, "offset": range.offset, "bytes": range.bytes })
}

fn finding(found: &Finding) -> Value {
    json!({
        "what": found.what.name(),
        "outcome": found.outcome.name(),
        "ino": found.ino,
        "at": found.at,
        "offset": found.offset,
        "bytes": found.bytes,
    })
}
