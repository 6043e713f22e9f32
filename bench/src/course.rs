//! How a run goes on: what it has to tell by now, how far it is, and when it is over.

use std::fmt::Display;
use std::time::Instant;

use crate::report::{LeftOut, Report};
use crate::run::Watch;

/// Why what a quick run did not come to is left out.
pub(crate) const LATE: &str = "90 seconds were over";

/// A run on its way.
pub(crate) struct Course<'a> {
    watch: &'a dyn Watch,
    pub(crate) report: Report,
    done: u64,
    all: u64,
    /// Nothing is begun after this.
    last: Option<Instant>,
}

impl<'a> Course<'a> {
    /// At its beginning, with so many steps before it.
    pub(crate) fn new(
        watch: &'a dyn Watch,
        report: Report,
        all: u64,
        last: Option<Instant>,
    ) -> Self {
        Self { watch, report, done: 0, all, last }
    }

    /// Tells that something is not in the report.
    pub(crate) fn leave_out(&mut self, what: impl Into<String>, why: &dyn Display) {
        self.report.left_out.push(LeftOut { what: what.into(), why: why.to_string() });
    }

    /// Whether no more is wanted.
    pub(crate) fn is_ended(&self) -> bool {
        self.watch.is_over()
    }

    /// Whether no more is wanted, or there is no more time: then that is told.
    pub(crate) fn is_over(&mut self, what: &str) -> bool {
        let is_late = self.last.is_some_and(|last| Instant::now() > last);
        if is_late {
            self.leave_out(what, &LATE);
        }
        is_late || self.is_ended()
    }

    /// A step begins.
    pub(crate) fn step(&mut self, what: &str) {
        self.watch.progress(self.done, self.all, what);
        self.done += 1;
    }
}
