//! What the threads of a server have together: what is served, who takes the next client, and when it ends.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::IntoBytes;

use super::limits::Limits;
use super::linger::{Counts, Waits};
use super::places::{Origin, Place, Places};
use super::stream::Stream;
use crate::complaints::Complaints;
use crate::export::Exports;

/// How long clients that do nothing are listened to when the server ends: what they have sent by then is answered.
const LINGER: Duration = Duration::from_millis(250);

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// When a server that ends is to have ended.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// Who has nothing under way is left from here on.
    pub linger: Instant,
    /// All are.
    pub end: Instant,
}

/// What the threads have together.
pub struct Shared {
    pub exports: Arc<Exports>,
    pub limits: Limits,
    pub mailboxes: Vec<Mailbox>,
    places: Arc<Places>,
    refusals: Complaints,
    closing: OnceLock<Closing>,
}

/// Where a thread finds new clients.
pub struct Mailbox {
    fresh: Mutex<Vec<(Stream, Place)>>,
    pub bell: OwnedFd,
    /// Clients of the thread, those in the box among them.
    clients: AtomicUsize,
    /// How the thread has waited.
    pub waits: Arc<Counts>,
}

impl Mailbox {
    fn new() -> rustix::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (fresh, clients, waits) = (Mutex::default(), AtomicUsize::new(0), Arc::default());
        Ok(Self { fresh, bell, clients, waits })
    }

    /// Wakes the thread.
    pub fn ring(&self) {
        // A bell that can't be rung any louder has been rung.
        let _ = rustix::io::write(&self.bell, 1_u64.as_bytes());
    }

    /// Clients that have come; the bell is quiet again.
    pub fn take(&self) -> Vec<(Stream, Place)> {
        let mut rung = 0_u64;
        let _ = rustix::io::read(&self.bell, rung.as_mut_bytes());
        std::mem::take(&mut *self.fresh.lock())
    }

    /// A client of the thread is gone.
    pub fn left(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Before there are any clients; whether some will come by a socket that only its owner can connect to.
    pub fn new(exports: Exports, limits: Limits, has_unix: bool) -> rustix::io::Result<Self> {
        let mailboxes = (0..limits.workers).map(|_| Mailbox::new()).collect::<Result<_, _>>()?;
        let places = Places::new(limits.max_clients, has_unix);
        let (refusals, closing) = (Complaints::default(), OnceLock::new());
        Ok(Self { exports: Arc::new(exports), limits, mailboxes, places, refusals, closing })
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.mailboxes.iter().map(|mailbox| mailbox.clients.load(Ordering::Relaxed)).sum()
    }

    /// How the threads have waited.
    pub fn waits(&self) -> Waits {
        let of = self.mailboxes.iter().map(|mailbox| mailbox.waits.get());
        of.fold(Waits::default(), Waits::and)
    }

    /// Gives a new client to the thread that has the fewest, or to none if there are too many. Only one thread calls
    /// this.
    pub fn give(&self, stream: Stream, origin: Origin) {
        let Some(place) = self.places.take(origin) else {
            if let Some(count) = self.refusals.due() {
                let max = self.limits.max_clients;
                tracing::warn!(max, ?origin, count, "too many clients: some are refused");
            }
            return;
        };
        let fewest = self.mailboxes.iter().min_by_key(|one| one.clients.load(Ordering::Relaxed));
        if let Some(mailbox) = fewest {
            mailbox.clients.fetch_add(1, Ordering::Relaxed);
            mailbox.fresh.lock().push((stream, place));
            mailbox.ring();
        }
    }

    /// Ends it, within `limit`.
    pub fn close(&self, limit: Duration) {
        let now = Instant::now();
        // Longer than anybody waits, and a time that there is.
        let limit = limit.min(FOREVER);
        let after = |time| now.checked_add(time).unwrap_or(now);
        let closing = Closing { linger: after(LINGER.min(limit / 2)), end: after(limit) };
        // The first who says so does.
        let _ = self.closing.set(closing);
        self.mailboxes.iter().for_each(Mailbox::ring);
    }

    /// Whether it ends, and when.
    pub fn closing(&self) -> Option<Closing> {
        self.closing.get().copied()
    }
}
