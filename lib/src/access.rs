//! The engine's pool, and the way in.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lode_host::StdHost;
use lode_pmem::Mapped;

use crate::error::Cause;
use crate::ways::Ways;

/// The engine's pool as this library has it.
pub(crate) type Engine = lode_engine::Pool<Mapped, StdHost>;

/// The pool, and whether it can be trusted.
pub(crate) struct Core {
    engine: Engine,
    failed: AtomicBool,
    ways: Ways,
}

/// The right to work on the pool, for one call.
///
/// If the call panics the engine's state in memory can't be trusted any more: nothing else is
/// done with it, and the pool itself is as after a crash.
pub(crate) struct Pass<'a> {
    core: &'a Core,
    /// A panic of someone else's is on its way already.
    panicking: bool,
}

impl Core {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, failed: AtomicBool::new(false), ways: Ways::new() }
    }

    /// Lets a call in.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Cause> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Cause::Failed);
        }
        Ok(Pass { core: self, panicking: thread::panicking() })
    }
}

impl<'a> Pass<'a> {
    /// Where paths led lately.
    #[inline]
    pub(crate) fn ways(&self) -> &'a Ways {
        &self.core.ways
    }
}

impl Deref for Pass<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.core.engine
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.panicking && thread::panicking() {
            self.core.failed.store(true, Ordering::Release);
        }
    }
}
