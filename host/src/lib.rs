//! The world a pool runs in under std: a server, a command or a test on Linux.
//!
//! [`StdHost`] gives the engine parking_lot's locks, the system's wall clock, the
//! CPU a thread runs on, random bits from the kernel and scoped threads. [`Maintenance`] gives an open pool time
//! for its background work.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod exempt;
mod maintain;
mod spare;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use lode_engine::{ExemptRange, Exemption, Host};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

pub use maintain::Maintenance;
use spare::Asked;
pub use spare::{Answer, without_asking};

/// [`Host`] on std and Linux.
/// Clones share who is asked for memory ([`StdHost::ask`]).
#[derive(Clone, Debug)]
pub struct StdHost {
    cpus: usize,
    asked: Asked,
}

/// Some microseconds of looks.
const SPINS: u32 = 200;

impl StdHost {
    /// A host that uses every CPU this process may run on.
    pub fn new() -> Self {
        Self::with_cpus(thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// A host that claims to have `cpus` CPUs (at least one): bounds lanes in use and
    /// threads of [`Host::parallel`].
    pub fn with_cpus(cpus: usize) -> Self {
        Self { cpus: cpus.max(1), asked: Asked::default() }
    }

    /// From now on `answer` is asked where files are short of pages, as [`Host::spare`] says; nobody is where there is none.
    pub fn ask(&self, answer: Option<Answer>) {
        self.asked.set(answer);
    }
}

/// The part of the machine's main memory that indexes take where nobody says otherwise.
const INDEX_MEMORY_PART: u64 = 8;

/// What the indexes of a pool may take where `asked` says nothing: an eighth of the machine's main
/// memory, as much as a pool of many files can use and a machine can spare. 0 asks for no limit.
pub fn index_memory(asked: Option<u64>) -> Option<u64> {
    let usual = || {
        let info = rustix::system::sysinfo();
        let bytes = info.totalram.saturating_mul(info.mem_unit.max(1).into());
        bytes / INDEX_MEMORY_PART
    };
    Some(asked.unwrap_or_else(usual)).filter(|bytes| *bytes > 0)
}

impl Default for StdHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for StdHost {
    type Mutex = parking_lot::RawMutex;
    type RwLock = parking_lot::RawRwLock;

    fn now_ns(&self) -> i64 {
        now_ns()
    }

    #[inline]
    fn coarse_now_ns(&self) -> i64 {
        ns_of(ClockId::RealtimeCoarse)
    }

    #[inline]
    fn cpu(&self) -> usize {
        lode_pmem::cpu().unwrap_or_else(rustix::thread::sched_getcpu)
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    #[inline]
    fn spins(&self) -> u32 {
        if self.cpus > 1 { SPINS } else { 0 }
    }

    fn spare(&self, pages: u64) -> bool {
        self.asked.ask(pages)
    }

    fn exemption(&self, what: Exemption, of: ExemptRange) {
        exempt::tell(what, of);
    }

    fn random(&self) -> u64 {
        random()
    }

    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        let workers = self.cpus.min(jobs);
        let next = AtomicUsize::new(0);
        let work = || loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= jobs {
                return;
            }
            job(number);
        };
        if workers <= 1 {
            return work();
        }
        thread::scope(|scope| {
            for _ in 1..workers {
                let helper = thread::Builder::new().name("lode-parallel".into());
                // A thread that can't be had is no error: the others do its jobs.
                if helper.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}

/// Wall-clock time in nanoseconds since 1970, UTC; the nearest that 64 bits can hold.
pub fn now_ns() -> i64 {
    ns_of(ClockId::Realtime)
}

fn ns_of(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Random bits, from the kernel.
pub fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    loop {
        // Eight bytes come whole or not at all.
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(got) if got == bytes.len() => return u64::from_le_bytes(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return seeded(now_ns()),
        }
    }
}

/// Random bits where the kernel has no `getrandom`: std's hash keys (which std takes
/// from the best source it finds) over the time.
fn seeded(now: i64) -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_i64(now);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use lode_engine::Host;

    use super::{StdHost, seeded};

    #[test]
    fn the_clock_is_the_systems_wall_clock() {
        let system = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            i64::try_from(since.as_nanos()).unwrap()
        };
        let (before, now, after) = (system(), StdHost::new().now_ns(), system());
        assert!(before <= now && now <= after, "{before} <= {now} <= {after}");
    }

    #[test]
    fn cpu_numbers_make_sense() {
        let host = StdHost::new();
        assert!(host.cpus() >= 1);
        assert!(host.cpu() < 1 << 16);
        assert_eq!(StdHost::with_cpus(0).cpus(), 1);
    }

    #[test]
    fn random_bits_differ() {
        let host = StdHost::new();
        let some: HashSet<u64> = (0..1000).map(|_| host.random()).collect();
        assert_eq!(some.len(), 1000);
        assert_ne!(seeded(1), seeded(1));
    }

    #[test]
    fn every_job_runs_once() {
        for (cpus, jobs) in [(1, 10), (4, 0), (4, 1), (4, 1000), (64, 3)] {
            let seen = Mutex::new(vec![0; jobs]);
            StdHost::with_cpus(cpus).parallel(jobs, &|number| seen.lock().unwrap()[number] += 1);
            assert!(seen.into_inner().unwrap().iter().all(|times| *times == 1));
        }
    }

    #[test]
    fn jobs_run_side_by_side() {
        let host = StdHost::with_cpus(2);
        let meet = std::sync::Barrier::new(2);
        let start = std::time::Instant::now();
        // Each waits for the other: this ends only if both run at once.
        host.parallel(2, &|_| {
            meet.wait();
        });
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn the_locks_exclude() {
        use lode_engine::Host as _;
        type Lock = parking_lot::lock_api::Mutex<<StdHost as Host>::Mutex, u64>;
        let (host, count) = (StdHost::with_cpus(4), Lock::new(0));
        host.parallel(4, &|_| {
            for _ in 0..10_000 {
                *count.lock() += 1;
            }
        });
        assert_eq!(*count.lock(), 40_000);
    }
}
