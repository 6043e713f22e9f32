//! Background work: a thread that gives the pool time for it once a second.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::access::Core;
use crate::error::Cause;

/// How often the pool gets time for its background work.
const PERIOD: Duration = Duration::from_secs(1);

/// The thread, until this is dropped.
pub(crate) struct Maintenance {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Maintenance {
    pub(crate) fn start(core: Arc<Core>) -> Result<Self, Cause> {
        let (stop, stopped) = mpsc::channel::<()>();
        let builder = thread::Builder::new().name("lode-maintain".into());
        let thread = builder.spawn(move || {
            let mut said = None;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let Ok(pass) = core.enter() else { return };
                maintain(&pass, &mut said);
            }
        });
        let thread =
            thread.map_err(|source| Cause::System { what: "start the maintenance", source })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// Does background work; an error is told once, not each second.
fn maintain(engine: &crate::access::Engine, said: &mut Option<lode_engine::Error>) {
    match engine.maintain() {
        Ok(()) => *said = None,
        Err(error) => {
            if said.replace(error) != Some(error) {
                tracing::error!(%error, "background work failed");
            }
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has panicked, at most: the pool knows.
            let _ = thread.join();
        }
    }
}
