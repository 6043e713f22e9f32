//! Stores that wait because a snapshot sees what they go to: a thread answers them.
//!
//! It has the pages moved, as the thread that stores can't: that is in a signal handler. It takes locks of the engine, so nobody
//! stores to memory of a program's with one of them held (`crate::file`: what is read goes another way to such memory).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use lode_engine::Error;
use lode_pmem::{StoreFault, StoreFaults};
use parking_lot::Mutex;

use super::shows::{Shows, unit};
use crate::access::{Core, Pass};
use crate::error::Cause;

/// Who answers the stores to the maps of a pool.
pub(crate) struct Stores {
    asked: Arc<Asked>,
    thread: Option<JoinHandle<()>>,
}

/// What that thread is asked, and of which maps.
pub(crate) struct Asked {
    pub(super) faults: StoreFaults,
    maps: Mutex<Vec<Weak<Shows>>>,
}

impl Asked {
    /// Adds a map.
    pub(super) fn add(&self, shows: &Arc<Shows>) {
        let mut maps = self.maps.lock();
        maps.retain(|map| map.strong_count() > 0);
        maps.push(Arc::downgrade(shows));
    }

    /// The map that an address is in, and where in it that is.
    fn find(&self, address: usize) -> Option<(Arc<Shows>, u64)> {
        let maps = self.maps.lock();
        maps.iter().filter_map(Weak::upgrade).find_map(|shows| {
            let at = address.checked_sub(shows.view.as_ptr() as usize)? as u64;
            (at < shows.view.bytes()).then_some((shows, at))
        })
    }
}

impl Stores {
    /// Begins to answer.
    pub(crate) fn start(core: Arc<Core>) -> Result<Self, Cause> {
        let system = |source| Cause::System { what: "start what answers stores to maps", source };
        let faults = StoreFaults::new().map_err(system)?;
        let asked = Arc::new(Asked { faults, maps: Mutex::default() });
        let of_thread = Arc::clone(&asked);
        let builder = thread::Builder::new().name("lode-stores".into());
        let answer = move || {
            while let Some(fault) = of_thread.faults.next() {
                answer(&core, &of_thread, fault);
            }
        };
        let thread = Some(builder.spawn(answer).map_err(system)?);
        Ok(Self { asked, thread })
    }

    /// What is asked.
    pub(crate) fn asked(&self) -> &Arc<Asked> {
        &self.asked
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.asked.faults.end();
        if let Some(thread) = self.thread.take() {
            // (A panic in it was told already.)
            let _ = thread.join();
        }
    }
}

fn answer(core: &Core, asked: &Asked, fault: StoreFault) {
    let Some((shows, at)) = asked.find(fault.address()) else { return };
    let allowed = catch_unwind(AssertUnwindSafe(|| allow(&core.enter()?, &shows, at)));
    match allowed {
        Ok(Ok(())) => fault.allow(),
        Ok(Err(cause)) => {
            let error = crate::Error::from(cause);
            tracing::error!(%error, "a page that a snapshot sees could not be moved: who stores to it in a map can't");
        }
        Err(_) => {}
    }
}

/// Lets the store to `at` in a map be done, and others around it.
fn allow(pass: &Pass<'_>, shows: &Shows, at: u64) -> Result<(), Cause> {
    let all = (shows.offset, shows.view.bytes());
    let around = |unit: u64| {
        let from = (shows.offset + at) / unit * unit;
        (from, unit)
    };
    let wanted = unit().filter(|_| pass.has_snapshots()).map_or(all, around);
    let (offset, len) = wanted;
    match pass.allow_stores(shows.ino, offset, len) {
        Err(Error::NoSpace | Error::NoMemory) if len > super::PAGE => {
            let (offset, len) = around(super::PAGE);
            Ok(pass.allow_stores(shows.ino, offset, len)?)
        }
        result => Ok(result?),
    }
}
