//! A server that runs, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::linger::Waits;
use super::shared::Shared;
use crate::export::Statistics;

/// A server. When this goes, it ends at once.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(super) fn new(shared: Arc<Shared>, addresses: Vec<SocketAddr>) -> Self {
        Self { shared, addresses, threads: Vec::new() }
    }

    pub(super) fn add(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    /// Where it listens by TCP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many clients are connected.
    pub fn clients(&self) -> usize {
        self.shared.clients()
    }

    /// How much was asked of an export; `None` if there is none of this name.
    pub fn statistics(&self, export: &str) -> Option<Statistics> {
        self.shared.exports.statistics(export)
    }

    /// How its threads have waited, after they had done what was asked.
    pub fn waits(&self) -> Waits {
        self.shared.waits()
    }

    /// Ends it: nobody is let in any more, requests under way are finished and answered, later ones are refused, and
    /// then connections are closed; all within `limit`, and the time of one call of a device.
    pub fn shutdown(mut self, limit: Duration) {
        self.end(limit);
    }

    fn end(&mut self, limit: Duration) {
        self.shared.close(limit);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server has panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
