//! Exports: devices with names, found by them, and how much was asked of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::complaints::Complaints;
use crate::device::{BlockSizes, Device};

/// A device under a name.
#[derive(Clone)]
pub struct Export {
    name: String,
    description: String,
    device: Arc<dyn Device>,
}

impl Export {
    /// `device` as `name`.
    pub fn new(name: impl Into<String>, device: Arc<dyn Device>) -> Self {
        Self { name: name.into(), description: String::new(), device }
    }

    /// With a text for people.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the protocol can name it so: 1 to 4096 bytes without NUL, as with its description.
    pub(crate) fn is_named_well(&self) -> bool {
        let well = |text: &str| text.len() <= 4096 && !text.contains('\0');
        !self.name.is_empty() && well(&self.name) && well(&self.description)
    }
}

/// How much was asked of an export since it is served.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Requests to read.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Requests to flush.
    pub flushes: u64,
    /// Requests to trim.
    pub trims: u64,
    /// Requests to write zeros.
    pub zeroes: u64,
    /// Requests to have a range at hand.
    pub caches: u64,
    /// Requests for block status.
    pub statuses: u64,
    /// Requests that were answered with an error, of these and all others.
    pub errors: u64,
    /// Bytes read from the device; holes that were told as such are not.
    pub read_bytes: u64,
    /// Bytes written to the device, zeros that were asked for as such not among them.
    pub written_bytes: u64,
    /// Clients that use it now.
    pub clients: u64,
}

/// One of the [`Statistics`], as it grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// More of it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn take(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The [`Statistics`] as they grow; each is right by itself.
#[derive(Default)]
pub struct Counters {
    pub reads: Counter,
    pub writes: Counter,
    pub flushes: Counter,
    pub trims: Counter,
    pub zeroes: Counter,
    pub caches: Counter,
    pub statuses: Counter,
    pub errors: Counter,
    pub read_bytes: Counter,
    pub written_bytes: Counter,
    clients: Counter,
}

/// An export that is served.
pub struct Served {
    pub name: String,
    pub description: String,
    pub device: Arc<dyn Device>,
    pub counters: Counters,
    /// About requests that the device fails.
    pub complaints: Complaints,
}

impl Served {
    /// What is served of the device, in bytes: whole blocks.
    pub fn size(&self) -> u64 {
        let size = self.device.size();
        size - size % u64::from(self.block_sizes().min())
    }

    /// How the device wants to be accessed.
    pub fn block_sizes(&self) -> BlockSizes {
        self.device.block_sizes()
    }

    fn statistics(&self) -> Statistics {
        let of = &self.counters;
        Statistics {
            reads: of.reads.get(),
            writes: of.writes.get(),
            flushes: of.flushes.get(),
            trims: of.trims.get(),
            zeroes: of.zeroes.get(),
            caches: of.caches.get(),
            statuses: of.statuses.get(),
            errors: of.errors.get(),
            read_bytes: of.read_bytes.get(),
            written_bytes: of.written_bytes.get(),
            clients: of.clients.get(),
        }
    }
}

/// The use of an export by a client, counted as long as it lasts.
pub struct InUse(Arc<Served>);

impl InUse {
    /// Counts one more.
    pub fn of(served: Arc<Served>) -> Self {
        served.counters.clients.add(1);
        Self(served)
    }
}

impl std::ops::Deref for InUse {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.counters.clients.take(1);
    }
}

/// All exports of a server.
pub struct Exports {
    by_name: BTreeMap<String, Arc<Served>>,
    default: Option<String>,
}

impl Exports {
    /// These, and the one that is meant where no name is given.
    pub fn new(exports: Vec<Export>, default: Option<String>) -> Self {
        let served = exports.into_iter().map(|Export { name, description, device }| {
            let (counters, complaints) = (Counters::default(), Complaints::default());
            (name.clone(), Arc::new(Served { name, description, device, counters, complaints }))
        });
        Self { by_name: served.collect(), default }
    }

    /// The one of this name; of none, the default one.
    pub fn find(&self, name: &str) -> Option<&Arc<Served>> {
        let name = if name.is_empty() { self.default.as_deref()? } else { name };
        self.by_name.get(name)
    }

    /// All of them, by their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.by_name.values()
    }

    /// How much was asked of one.
    pub fn statistics(&self, name: &str) -> Option<Statistics> {
        self.find(name).map(|served| served.statistics())
    }
}
