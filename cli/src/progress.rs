//! Progress on standard error: a bar on a terminal, plain lines with `--progress`, else nothing.
//!
//! Nothing is shown of what takes less than a second, and nothing ever goes to standard output.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::sizes::human;

const SILENT: Duration = Duration::from_millis(600);
const TICK: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(1);

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Pieces of what is done, as the message says.
    Pieces,
    /// Bytes.
    Bytes,
    /// Parts of the whole, which mean nothing by themselves.
    Share,
}

impl Unit {
    /// How far it is, in words.
    fn say(self, done: u64, all: u64) -> String {
        match (self, all) {
            (Self::Bytes, 0) => human(done),
            (Self::Bytes, _) => format!("{} of {}", human(done), human(all)),
            (Self::Share, 1..) => {
                format!("{} %", u128::from(done.min(all)) * 100 / u128::from(all))
            }
            (Self::Share | Self::Pieces, 0) => "...".to_owned(),
            (Self::Pieces, _) => format!("{done} of {all}"),
        }
    }

    /// The same on a terminal.
    fn template(self, all: u64) -> &'static str {
        match (self, all) {
            (Self::Bytes, 0) => "{msg} {spinner} {binary_bytes} {prefix}",
            (_, 0) => "{msg} {spinner} {prefix}",
            (Self::Bytes, _) => {
                "{msg} {spinner} [{bar:30}] {binary_bytes}/{binary_total_bytes} {prefix}"
            }
            (Self::Share, _) => "{msg} {spinner} [{bar:30}] {percent} % {prefix}",
            (Self::Pieces, _) => "{msg} {spinner} [{bar:30}] {human_pos}/{human_len} {prefix}",
        }
    }
}

/// Progress of one task.
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    show: Show,
    started: Instant,
}

enum Show {
    Nothing,
    Bar(Option<ProgressBar>),
    Lines { last: Option<Instant> },
}

impl Progress {
    /// Progress of `what`, in pieces of it; `always` shows it where standard error is no terminal, too.
    pub(crate) fn new(what: &'static str, always: bool) -> Self {
        Self::of(Unit::Pieces, what, always)
    }

    /// The same, in this unit.
    pub(crate) fn of(unit: Unit, what: &'static str, always: bool) -> Self {
        let show = if std::io::stderr().is_terminal() {
            Show::Bar(None)
        } else if always {
            Show::Lines { last: None }
        } else {
            Show::Nothing
        };
        Self { what, unit, show, started: Instant::now() }
    }

    /// `done` of `all` (0 where nobody knows) is done.
    pub(crate) fn set(&mut self, done: u64, all: u64) {
        self.set_with(done, all, String::new());
    }

    /// The same, with what else there is to say.
    pub(crate) fn set_with(&mut self, done: u64, all: u64, more: String) {
        let (what, unit) = (self.what, self.unit);
        match &mut self.show {
            Show::Nothing => {}
            Show::Bar(bar) => {
                if bar.is_none() && self.started.elapsed() < SILENT {
                    return;
                }
                let bar = bar.get_or_insert_with(|| new_bar(what, unit.template(all)));
                if all > 0 {
                    bar.set_length(all);
                }
                bar.set_position(done);
                bar.set_prefix(more);
                bar.tick();
            }
            Show::Lines { last } => {
                if last.is_some_and(|last| last.elapsed() < LINE_EVERY) {
                    return;
                }
                *last = Some(Instant::now());
                let comma = if more.is_empty() { "" } else { ", " };
                eprintln!("{what}: {}{comma}{more}", unit.say(done, all));
            }
        }
    }
}

/// Runs `work`, showing on standard error that something goes on, once that takes long.
pub(crate) fn while_working<T>(what: &'static str, always: bool, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut progress = Progress::new(what, always);
            while is_done.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                if progress.started.elapsed() >= SILENT {
                    progress.set(0, 0);
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Show::Bar(Some(bar)) = &self.show {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &'static str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is_has_a_unit() {
        let said = [
            (Unit::Pieces.say(3, 10), "3 of 10"),
            (Unit::Pieces.say(0, 0), "..."),
            (Unit::Bytes.say(3 << 20, 1 << 30), "3 MiB of 1 GiB"),
            (Unit::Bytes.say(3 << 20, 0), "3 MiB"),
            (Unit::Share.say(999, 1000), "99 %"),
            (Unit::Share.say(u64::MAX, u64::MAX), "100 %"),
            (Unit::Share.say(0, 0), "..."),
        ];
        for (found, wanted) in said {
            assert_eq!(found, wanted);
        }
    }
}
