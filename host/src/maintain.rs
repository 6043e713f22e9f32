//! Background work: a thread that has time for it once a second.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lode_engine::{Error, Result};

/// How often a pool gets time for its background work.
const PERIOD: Duration = Duration::from_secs(1);

/// The thread, until this is dropped.
pub struct Maintenance {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Maintenance {
    /// Starts a thread that does `work` once a second, until that says that it is over. An error is told once, not each
    /// second. Work that panics is asked again: it knows whether there is more to be done.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(
        work: impl FnMut() -> ControlFlow<(), Result<()>> + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_each(PERIOD, work)
    }

    fn start_each(
        period: Duration,
        mut work: impl FnMut() -> ControlFlow<(), Result<()>> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let builder = thread::Builder::new().name("lode-maintain".into());
        let thread = builder.spawn(move || {
            let mut told = None;
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let outcome = match catch_unwind(AssertUnwindSafe(&mut work)) {
                    Ok(ControlFlow::Continue(outcome)) => outcome,
                    Ok(ControlFlow::Break(())) => return,
                    Err(_) => continue,
                };
                if let Some(error) = news(&mut told, outcome) {
                    tracing::error!(%error, "background work failed");
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// The error of an outcome, unless it is the one that was told last.
fn news(told: &mut Option<Error>, outcome: Result<()>) -> Option<Error> {
    let before = std::mem::replace(told, outcome.err());
    told.filter(|error| before != Some(*error))
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Panics of the work do not get here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::Instant;

    use super::*;

    /// A thread that counts what it did, in what it is given.
    fn counting(
        count: &Arc<AtomicU32>,
        turn: impl Fn(u32) -> ControlFlow<(), Result<()>> + Send + 'static,
    ) -> Maintenance {
        let count = Arc::clone(count);
        let work = move || turn(count.fetch_add(1, SeqCst));
        Maintenance::start_each(Duration::from_millis(1), work).unwrap()
    }

    fn wait_for(count: &AtomicU32, wanted: u32) {
        let late = Instant::now() + Duration::from_secs(60);
        while count.load(SeqCst) < wanted {
            assert!(Instant::now() < late, "it was asked {} times only", count.load(SeqCst));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn work_is_done_until_it_is_dropped() {
        let count = Arc::new(AtomicU32::new(0));
        let outcomes = [Ok(()), Err(Error::NoSpace)];
        let running =
            counting(&count, move |turn| ControlFlow::Continue(outcomes[turn as usize % 2]));
        wait_for(&count, 10);
        drop(running);
        let then = count.load(SeqCst);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(count.load(SeqCst), then);
        assert_eq!(Arc::strong_count(&count), 1, "the thread has ended");
    }

    #[test]
    fn work_that_is_over_is_not_asked_again() {
        let count = Arc::new(AtomicU32::new(0));
        let over =
            |turn| if turn < 3 { ControlFlow::Continue(Ok(())) } else { ControlFlow::Break(()) };
        let _running = counting(&count, over);
        wait_for(&count, 4);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(count.load(SeqCst), 4);
    }

    #[test]
    fn work_that_panics_is_asked_again() {
        let count = Arc::new(AtomicU32::new(0));
        let _running = counting(&count, |turn| match turn {
            0 => panic!("on purpose"),
            _ => ControlFlow::Continue(Ok(())),
        });
        wait_for(&count, 2);
    }

    #[test]
    fn an_error_is_told_once_and_again_when_it_is_back() {
        let (full, gone) = (Err(Error::NoSpace), Err(Error::Stale));
        let outcomes = [Ok(()), full, full, gone, full, Ok(()), full, full];
        let mut told = None;
        let said = outcomes.map(|outcome| news(&mut told, outcome).is_some());
        assert_eq!(said, [false, true, false, true, true, false, true, false]);
    }
}
