//! A host whose threads are scheduled.

use std::ops::Deref;

use lode_engine::{Host, Rule};
use lode_testkit::TestHost;

use super::{SchedMutex, SchedRwLock, current};

/// A [`TestHost`], which it derefs to for its setters, with locks that are switch points. A
/// scheduled thread runs on the CPU of its number, others on CPU 0 until that is set.
/// Clones share all of it.
#[derive(Clone, Debug)]
pub struct SchedHost {
    host: TestHost,
}

impl SchedHost {
    /// A host of one CPU whose random bits follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::with_cpus(seed, 1)
    }

    /// A host of `cpus` CPUs.
    pub fn with_cpus(seed: u64, cpus: usize) -> Self {
        Self::from(TestHost::with_cpus(seed, cpus))
    }
}

impl From<TestHost> for SchedHost {
    fn from(host: TestHost) -> Self {
        host.set_cpu(0);
        Self { host }
    }
}

impl Deref for SchedHost {
    type Target = TestHost;

    fn deref(&self) -> &TestHost {
        &self.host
    }
}

impl Host for SchedHost {
    type Mutex = SchedMutex;
    type RwLock = SchedRwLock;

    fn now_ns(&self) -> i64 {
        self.host.now_ns()
    }

    fn cpu(&self) -> usize {
        current().map_or_else(|| self.host.cpu(), |number| number % self.host.cpus())
    }

    fn cpus(&self) -> usize {
        self.host.cpus()
    }

    fn random(&self) -> u64 {
        self.host.random()
    }

    fn meetings(&self) -> u8 {
        self.host.meetings()
    }

    fn nonces_max(&self) -> u32 {
        self.host.nonces_max()
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.host.leaves_out(rule)
    }

    /// Runs the jobs in order, in this thread.
    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..jobs).for_each(job);
    }
}
