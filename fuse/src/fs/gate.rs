//! The gate every request passes to what it works on: so that a server can stop between requests, and put
//! something else behind it.
//!
//! Requests hold the gate open side by side. Closing it waits until all of them
//! have been answered; later ones are turned away. Exchanging what is behind it waits for them,
//! too, and later ones wait for the exchange. A request that panics leaves
//! the gate failed: the engine's state in memory can't be trusted any more, so
//! nothing else may be done with it (the pool itself is as after a crash).
//!
//! Nobody enters who is inside: who waits for the gate would wait for itself.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};

/// Lets requests through to a `T` until it is closed or one of them has panicked.
#[derive(Debug)]
pub struct Gate<T> {
    inside: RwLock<Inside<T>>,
    failed: AtomicBool,
}

#[derive(Debug)]
struct Inside<T> {
    closed: bool,
    /// Always something but for a failed gate, and one of which it was taken.
    what: Option<T>,
}

/// The right to work on one request, and what to work on.
pub struct Pass<'a, T> {
    failed: &'a AtomicBool,
    inside: MappedRwLockReadGuard<'a, T>,
}

impl<T> Gate<T> {
    /// An open one, to this.
    pub fn new(what: T) -> Self {
        let inside = RwLock::new(Inside { closed: false, what: Some(what) });
        Self { inside, failed: AtomicBool::new(false) }
    }

    /// Lets a request in, or says which error number to answer.
    #[inline]
    pub fn enter(&self) -> Result<Pass<'_, T>, i32> {
        let open = self.inside.read();
        if self.failed() {
            return Err(libc::EIO);
        }
        let inside = RwLockReadGuard::try_map(open, |inside| {
            inside.what.as_ref().filter(|_| !inside.closed)
        });
        Ok(Pass { failed: &self.failed, inside: inside.map_err(|_| libc::ENOTCONN)? })
    }

    /// Waits for the requests inside and lets no more in.
    pub fn close(&self) {
        self.inside.write().closed = true;
    }

    /// The same, and takes what is behind it; nothing where somebody has, or where it has failed.
    pub fn take(&self) -> Option<T> {
        let mut inside = self.inside.write();
        inside.closed = true;
        inside.what.take().filter(|_| !self.failed())
    }

    /// Puts something else behind the gate, made of what is there, with no request inside and while later ones
    /// wait. Where `begin` fails all stays as it is; where `finish` does, or panics, the gate has failed.
    ///
    /// # Errors
    /// Theirs; `None` where no requests are served any more.
    pub fn exchange<B, E>(
        &self,
        begin: impl FnOnce(&T) -> Result<B, E>,
        finish: impl FnOnce(T, B) -> Result<T, E>,
    ) -> Result<(), Option<E>> {
        let mut inside = self.inside.write();
        if self.failed() || inside.closed {
            return Err(None);
        }
        let fails = Fails(&self.failed);
        let begun = inside.what.as_ref().map(begin).ok_or(None).and_then(|it| it.map_err(Some));
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                fails.not();
                return Err(error);
            }
        };
        let what = inside.what.take().ok_or(None)?;
        inside.what = Some(finish(what, begun).map_err(Some)?);
        fails.not();
        Ok(())
    }

    /// A request has panicked.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl<T> Deref for Pass<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inside
    }
}

impl<T> Drop for Pass<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// Makes a gate a failed one, unless it is told not to.
struct Fails<'a>(&'a AtomicBool);

impl Fails<'_> {
    fn not(self) {
        std::mem::forget(self);
    }
}

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::time::Duration;

    use super::Gate;

    #[test]
    fn closing_waits_for_those_inside() {
        let gate = Gate::new(7);
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
        assert_eq!((gate.take(), gate.take()), (Some(7), None));
    }

    #[test]
    fn a_panic_inside_fails_the_gate() {
        let gate = Gate::new(7);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _pass = gate.enter().unwrap();
            panic!("in a request");
        }));
        assert!(caught.is_err() && gate.failed());
        assert_eq!(gate.enter().err(), Some(libc::EIO));
        assert_eq!(gate.take(), None);
    }

    /// Of many that come and go, one behind the other, and never all at once: whoever exchanges gets its turn.
    #[test]
    fn an_exchange_waits_for_those_inside_and_later_ones_for_it() {
        let gate = Gate::new(0);
        let (inside, over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        let pass = gate.enter().unwrap();
                        inside.fetch_add(1, SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        inside.fetch_sub(1, SeqCst);
                        assert_ne!(*pass % 2, 1, "what was only begun is seen");
                    }
                });
            }
            for number in 0..20 {
                let begin = |is: &i32| {
                    assert_eq!((inside.load(SeqCst), *is), (0, 2 * number));
                    std::thread::sleep(Duration::from_millis(1));
                    assert_eq!(inside.load(SeqCst), 0);
                    Ok::<_, ()>(())
                };
                gate.exchange(begin, |is, ()| Ok(is + 2)).unwrap();
            }
            over.store(true, SeqCst);
        });
        assert_eq!(gate.take(), Some(40));
    }

    #[test]
    fn what_can_not_begin_changes_nothing_and_what_does_not_end_fails_the_gate() {
        let gate = Gate::new(1);
        let begun = gate.exchange(|_| Err::<(), _>("no"), |is, ()| Ok(is));
        assert_eq!((begun, *gate.enter().unwrap()), (Err(Some("no")), 1));
        let ended = gate.exchange(|_| Ok(()), |_, ()| Err("broken"));
        assert_eq!((ended, gate.failed()), (Err(Some("broken")), true));
        assert_eq!(gate.enter().err(), Some(libc::EIO));
        assert_eq!(gate.exchange(|_| Ok::<_, ()>(()), |is, ()| Ok(is)), Err(None));
        let gate = Gate::new(1);
        let panics = || gate.exchange(|_| Ok::<_, ()>(()), |_, ()| panic!("in the middle"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err() && gate.failed());
        let gate = Gate::new(1);
        gate.close();
        assert_eq!(gate.exchange(|_| Ok::<_, ()>(()), |is, ()| Ok(is)), Err(None));
    }
}
