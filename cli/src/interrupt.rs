//! Work that a signal ends early: what was found by then is told all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Relaxed};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Kind, Result};

/// The exit status of what a signal ended.
const INTERRUPTED: u8 = 130;

/// Whether somebody wants no more.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT and SIGTERM ask for it; the second one ends the process.
    ///
    /// # Errors
    /// Where signals can't be waited for.
    pub(crate) fn by_signals() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(|error| {
                    Failure::new(Kind::Failed, format!("waiting for signals failed: {error}"))
                })?;
        }
        Ok(Self(asked))
    }

    /// Whether one came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// The exit status where nothing is wrong with what was found.
    pub(crate) fn status(&self) -> u8 {
        if self.came() { INTERRUPTED } else { 0 }
    }
}

/// Whether somebody wants files to be read again.
pub(crate) struct Hangup(Arc<AtomicBool>);

impl Hangup {
    /// From now on SIGHUP asks for it, and ends nothing.
    ///
    /// # Errors
    /// Where signals can't be waited for.
    pub(crate) fn by_signal() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&asked)).map_err(|error| {
            Failure::new(Kind::Failed, format!("waiting for signals failed: {error}"))
        })?;
        Ok(Self(asked))
    }

    /// Whether one came since this was asked last.
    pub(crate) fn came(&self) -> bool {
        self.0.fetch_and(false, AcqRel)
    }
}
