//! What memory has lost of a state by itself, before the power failed: a line of which the pool's level has a copy, or
//! parity. Nothing is lost by that: all that is asked of a state is asked of these, and that a scrub makes them good.

use lode_engine::{Finding, Opening, Outcome};
use lode_testkit::harm::scrubbed;

use super::inspect::{Allowed, Look};
use crate::explore::SimulatedPool;

/// What memory has lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Health {
    /// Nothing.
    #[default]
    Sound,
    /// Nothing that is not good again: a scrub has come to its end.
    Scrubbed,
    /// Something that can be restored.
    Hurt,
}

/// What memory may have lost of a state that may be any of these.
pub(crate) fn health_of(allowed: &[Allowed<'_>]) -> Health {
    allowed.iter().map(|allowed| allowed.expected.health).max().unwrap_or_default()
}

impl Look<'_> {
    /// A scrub finds what can be restored, and restores it; what has been scrubbed before has nothing to be found.
    pub(super) fn scrubbed(&self, pool: &SimulatedPool) -> Result<(), String> {
        if self.health == Health::Sound {
            return Ok(());
        }
        let scrub = || scrubbed(pool).map_err(|error| format!("scrub: {error} ({error:?})"));
        let found = scrub()?;
        let may = |one: &&Finding| self.health == Health::Hurt && one.outcome == Outcome::Repaired;
        if let Some(one) = found.iter().find(|one| !may(one)) {
            return Err(format!("scrub, where memory is {:?}: {one:?}", self.health));
        }
        match scrub()?.first() {
            None => Ok(()),
            Some(one) => Err(format!("scrubbed, and a second scrub finds {one:?}")),
        }
    }

    /// No crash damages anything, nor leaves what looks so.
    pub(super) fn undamaged(&self, opening: &Opening, what: &str) -> Result<(), String> {
        let repaired = opening.chain_damage.first().or(opening.checkpoint_damage.as_ref());
        match opening.damage.first().or(repaired.filter(|_| !self.mends)) {
            None => Ok(()),
            Some(damage) => Err(format!("{what}: {damage}: {opening:?}")),
        }
    }
}
