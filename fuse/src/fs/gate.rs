//! The gate every request passes: so that a server can stop between requests.
//!
//! Requests hold the gate open side by side. Closing it waits until all of them
//! have been answered; later ones are turned away. A request that panics leaves
//! the gate failed: the engine's state in memory can't be trusted any more, so
//! nothing else may be done with it (the pool itself is as after a crash).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};

/// Lets requests through until it is closed or one of them has panicked.
#[derive(Debug, Default)]
pub struct Gate {
    closed: RwLock<bool>,
    failed: AtomicBool,
}

/// The right to work on one request.
pub struct Pass<'a> {
    gate: &'a Gate,
    _open: RwLockReadGuard<'a, bool>,
}

impl Gate {
    /// Lets a request in, or says which error number to answer.
    #[inline]
    pub fn enter(&self) -> Result<Pass<'_>, i32> {
        // Recursive: a request waiting to get in must not wait for a gate that
        // waits for it to close while it holds it already.
        let open = self.closed.read_recursive();
        if self.failed() {
            return Err(libc::EIO);
        }
        if *open {
            return Err(libc::ENOTCONN);
        }
        Ok(Pass { gate: self, _open: open })
    }

    /// Waits for the requests inside and lets no more in.
    pub fn close(&self) {
        *self.closed.write() = true;
    }

    /// A request has panicked.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.gate.failed.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    use super::Gate;

    #[test]
    fn closing_waits_for_those_inside() {
        let gate = Gate::default();
        let left = AtomicBool::new(false);
        let pass = gate.enter().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.close();
                assert!(left.load(SeqCst), "closed while a request was inside");
            });
            std::thread::sleep(Duration::from_millis(50));
            left.store(true, SeqCst);
            drop(pass);
        });
        assert_eq!(gate.enter().err(), Some(libc::ENOTCONN));
    }

    #[test]
    fn a_panic_inside_fails_the_gate() {
        let gate = Gate::default();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _pass = gate.enter().unwrap();
            panic!("in a request");
        }));
        assert!(caught.is_err() && gate.failed());
        assert_eq!(gate.enter().err(), Some(libc::EIO));
    }
}
