//! Progress on standard error: a bar on a terminal, plain lines with `--progress`, else nothing.
//!
//! Nothing is shown of what takes less than a second, and nothing ever goes to standard output.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const SILENT: Duration = Duration::from_millis(600);
const TICK: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Progress of one task.
pub(crate) struct Progress {
    what: &'static str,
    show: Show,
    started: Instant,
}

enum Show {
    Nothing,
    Bar(Option<ProgressBar>),
    Lines { last: Option<Instant> },
}

impl Progress {
    /// Progress of `what`; `always` shows it where standard error is no terminal, too.
    pub(crate) fn new(what: &'static str, always: bool) -> Self {
        let show = if std::io::stderr().is_terminal() {
            Show::Bar(None)
        } else if always {
            Show::Lines { last: None }
        } else {
            Show::Nothing
        };
        Self { what, show, started: Instant::now() }
    }

    /// `done` of `all` (0 where nobody knows) is done.
    pub(crate) fn set(&mut self, done: u64, all: u64) {
        self.set_with(done, all, String::new());
    }

    /// The same, with what else there is to say.
    pub(crate) fn set_with(&mut self, done: u64, all: u64, more: String) {
        let what = self.what;
        match &mut self.show {
            Show::Nothing => {}
            Show::Bar(bar) => {
                if bar.is_none() && self.started.elapsed() < SILENT {
                    return;
                }
                let bar = bar.get_or_insert_with(|| new_bar(what));
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
                if all > 0 {
                    let comma = if more.is_empty() { "" } else { ", " };
                    eprintln!("{what}: {done} of {all}{comma}{more}");
                } else {
                    eprintln!("{what} ...");
                }
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

fn new_bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{msg} {spinner} [{bar:30}] {human_pos}/{human_len} {prefix}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(what);
    bar
}
