//! The threads that serve queues. They have their rings before the kernel is asked for any request:
//! once it has agreed to rings, requests wait for all of them.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use super::command::Ring;
use super::cpus::{Cpus, stay_on};
use super::entry::Entry;

/// What says, by `Y`, whether the kernel lets requests come so.
pub const ALLOWED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Requests of a queue that may be in memory at once; a thread works on one of them.
const ENTRIES: usize = 2;

/// What a queue's thread does with its ring.
pub type Job = Box<dyn FnOnce(Ring) + Send>;

/// Threads that have rings, and wait for what to do. They end when this is dropped.
pub struct Queues(Vec<Sender<Job>>);

impl Queues {
    /// A thread with a ring for each CPU that this process may use, and queues for all there are, with
    /// room for `data_bytes` of data in a request.
    ///
    /// # Errors
    /// Where the kernel or this process's limits do not allow that.
    pub fn start(connection: &Arc<OwnedFd>, data_bytes: usize) -> io::Result<Self> {
        if fs::read_to_string(ALLOWED)?.trim() != "Y" {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (tell, made) = mpsc::channel();
        let mut threads = Vec::new();
        for (cpu, queues) in Cpus::of_this_process()?.threads() {
            let (go, jobs) = mpsc::channel::<Job>();
            let (tell, connection) = (tell.clone(), Arc::clone(connection));
            let builder = thread::Builder::new().name(format!("lode-queue-{cpu}"));
            builder.spawn(move || {
                stay_on(cpu);
                let ring = entries(cpu, &queues, data_bytes)
                    .and_then(|entries| Ring::new(connection, entries));
                let (ring, told) = match ring {
                    Ok(ring) => (Some(ring), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let _ = tell.send(told);
                drop(tell);
                if let (Some(ring), Ok(job)) = (ring, jobs.recv()) {
                    job(ring);
                }
            })?;
            threads.push(go);
        }
        drop(tell);
        for told in made {
            told?;
        }
        Ok(Self(threads))
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.0.len()
    }

    /// Gives each thread a job.
    pub fn run(self, mut job: impl FnMut() -> Job) {
        for go in self.0 {
            let _ = go.send(job());
        }
    }
}

/// The entries of a thread: for a CPU that is not there one is enough.
fn entries(cpu: u16, queues: &[u16], data_bytes: usize) -> io::Result<Vec<Entry>> {
    let count = |queue: u16| if queue == cpu { ENTRIES } else { 1 };
    let each = |queue: &u16| std::iter::repeat_n(*queue, count(*queue));
    queues.iter().flat_map(each).map(|queue| Entry::new(queue, data_bytes)).collect()
}
