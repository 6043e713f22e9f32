//! A host whose time and random bits a test decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use lode_engine::{ExemptRange, Exemption, Host, MEETINGS, NONCES_MAX, Rule};

use crate::rng::mix;

/// Locks of parking_lot, a clock that stands until it is set, numbered random bits.
/// Clones share all of it.
#[derive(Clone, Debug)]
pub struct TestHost {
    inner: Arc<Inner>,
    left_out: Option<Rule>,
    asked: Option<Arc<Asked>>,
    nonces_max: Option<u32>,
    told: Option<Told>,
    spins: u32,
    meetings: Option<u8>,
}

/// What a test does about what a host is asked for. One type of host has the engine compiled once.
pub trait HostHooks: Send + Sync {
    /// The time is asked for, and told when this returns.
    fn asks_time(&self) {}

    /// So many pages are asked for ([`Host::spare`]).
    fn asks_pages(&self, pages: u64) -> bool {
        let _ = pages;
        false
    }

    /// Checksums of a file come or go ([`Host::exemption`]).
    fn exemption(&self, what: Exemption, of: ExemptRange) {
        let _ = (what, of);
    }
}

#[derive(Clone)]
struct Told(Arc<dyn HostHooks>);

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

/// The rules that an engine has asked for.
#[derive(Debug, Default)]
pub struct Asked([AtomicU64; 2]);

impl Asked {
    fn note(&self, rule: Rule) {
        let (word, bit) = (&self.0[rule as usize / 64], 1 << (rule as usize % 64));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Them.
    pub fn rules(&self) -> impl Iterator<Item = Rule> {
        let asked = |rule: &Rule| {
            self.0[*rule as usize / 64].load(Relaxed) >> (*rule as usize % 64) & 1 == 1
        };
        Rule::ALL.iter().copied().filter(asked)
    }
}

const _: () = assert!(Rule::ALL.len() <= 128);

#[derive(Debug)]
struct Inner {
    now: AtomicI64,
    random: AtomicU64,
    /// Jobs run one after the other.
    in_order: bool,
    cpus: AtomicUsize,
    threads: AtomicUsize,
    /// The CPU that all threads run on; `usize::MAX` for each its own.
    cpu: AtomicUsize,
}

std::thread_local! {
    static CPU: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

impl TestHost {
    /// A host of one CPU whose random bits follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::with_cpus(seed, 1)
    }

    /// A host of `cpus` CPUs: each new thread gets the next one for its life.
    pub fn with_cpus(seed: u64, cpus: usize) -> Self {
        Self::build(seed, cpus, false)
    }

    /// As [`TestHost::with_cpus`], and jobs run in their order, by the thread that has them: a
    /// run is the same every time.
    pub fn in_order(seed: u64, cpus: usize) -> Self {
        Self::build(seed, cpus, true)
    }

    fn build(seed: u64, cpus: usize, in_order: bool) -> Self {
        let inner = Inner {
            now: AtomicI64::new(1_000_000_000),
            random: AtomicU64::new(seed),
            in_order,
            cpus: AtomicUsize::new(cpus),
            threads: AtomicUsize::new(0),
            cpu: AtomicUsize::new(usize::MAX),
        };
        let inner = Arc::new(inner);
        Self {
            inner,
            left_out: None,
            asked: None,
            nonces_max: None,
            told: None,
            spins: 0,
            meetings: None,
        }
    }

    /// The same host, but the engine is to break this rule.
    pub fn leaving_out(self, left_out: Option<Rule>) -> Self {
        Self { left_out, ..self }
    }

    /// The same host, but it notes which rules it is asked for.
    pub fn noting(self, asked: Arc<Asked>) -> Self {
        Self { asked: Some(asked), ..self }
    }

    /// The same host, but sessions end after so many nonces.
    pub fn with_nonces(self, nonces_max: Option<u32>) -> Self {
        Self { nonces_max, ..self }
    }

    /// The same host, but who waits for a writer looks so often before it sleeps.
    pub fn spinning(self, spins: u32) -> Self {
        Self { spins, ..self }
    }

    /// The same host, but writers of a file go side by side once they have met so often.
    pub fn with_meetings(self, meetings: Option<u8>) -> Self {
        Self { meetings, ..self }
    }

    /// The same host, but it tells `hooks` of what it is asked for.
    pub fn telling(self, hooks: Arc<dyn HostHooks>) -> Self {
        Self { told: Some(Told(hooks)), ..self }
    }

    /// Moves all threads to one CPU.
    pub fn set_cpu(&self, cpu: usize) {
        self.inner.cpu.store(cpu % self.cpus(), Relaxed);
    }

    /// Changes how many CPUs there are. No pool may be open: it asked when it was opened.
    pub fn set_cpus(&self, cpus: usize) {
        assert!(cpus > 0, "a host without a CPU");
        self.inner.cpus.store(cpus, Relaxed);
        let cpu = self.inner.cpu.load(Relaxed);
        if cpu != usize::MAX {
            self.set_cpu(cpu);
        }
    }

    /// Sets the clock.
    pub fn set_now(&self, now_ns: i64) {
        self.inner.now.store(now_ns, Relaxed);
    }
}

impl Host for TestHost {
    type Mutex = parking_lot::RawMutex;
    type RwLock = parking_lot::RawRwLock;

    fn now_ns(&self) -> i64 {
        if let Some(Told(hooks)) = &self.told {
            hooks.asks_time();
        }
        self.inner.now.load(Relaxed)
    }

    fn cpu(&self) -> usize {
        if self.cpus() == 1 {
            return 0;
        }
        let cpu = self.inner.cpu.load(Relaxed);
        if cpu != usize::MAX {
            return cpu;
        }
        CPU.with(|cpu| match cpu.get() {
            Some(number) => number,
            None => {
                let number = self.inner.threads.fetch_add(1, Relaxed) % self.cpus();
                cpu.set(Some(number));
                number
            }
        })
    }

    fn cpus(&self) -> usize {
        self.inner.cpus.load(Relaxed)
    }

    fn spins(&self) -> u32 {
        self.spins
    }

    fn meetings(&self) -> u8 {
        self.meetings.unwrap_or(MEETINGS)
    }

    fn nonces_max(&self) -> u32 {
        self.nonces_max.unwrap_or(NONCES_MAX)
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        if let Some(asked) = &self.asked {
            asked.note(rule);
        }
        self.left_out == Some(rule)
    }

    fn random(&self) -> u64 {
        mix(self.inner.random.fetch_add(1, Relaxed))
    }

    fn spare(&self, pages: u64) -> bool {
        self.told.as_ref().is_some_and(|Told(hooks)| hooks.asks_pages(pages))
    }

    fn exemption(&self, what: Exemption, of: ExemptRange) {
        if let Some(Told(hooks)) = &self.told {
            hooks.exemption(what, of);
        }
    }

    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= jobs {
                    return;
                }
                job(number);
            }
        };
        if jobs < 2 || self.inner.in_order {
            return work();
        }
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
    }
}
