//! Each store of a second copy is needed: without it, a crash and the loss of the first copies lose something. (With it
//! they lose nothing.)

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::{Arc, Mutex};

use lode_engine::{AccessTimes, Finding, FormatOptions, OpenOptions, Pool, Protection};
use lode_pmem::{Line, MediaError, Medium};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::format::{PAGE, SLOT, Survey};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::harm::scrubbed;
use lode_testkit::op::Op;
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const BYTES: u64 = 8 << 20;
/// Operations of a past, and pasts that are tried until one shows what was left out.
const OPERATIONS: usize = 400;
const SEEDS: u64 = 200;
/// Places of the code that store second copies, at least, at each level.
const SITES: usize = 9;
/// Where a copy is stored that nothing depends on any more, so that both are the same: a recovery mends watermarks, and then
/// raises the session, behind which they say nothing.
const TIDY: &[&str] = &["engine/src/store/round.rs"];
/// Operations between two snapshots, and two crashes.
const SNAPSHOT_EVERY: usize = 40;
const CRASH_EVERY: usize = 10;
/// Stores that the last operation in front of a crash makes, at most.
const STORES_MAX: u64 = 8;

/// A place in the code.
type Site = (&'static str, u32);

/// A memory that leaves out the stores of second copies that are made at one place.
#[derive(Clone, Debug)]
struct OneCopy {
    memory: Memory,
    /// Bytes between copies; 0 before there are any.
    apart: u64,
    left_out: Option<Site>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The last store: where, and made at which place.
    last: Option<(u64, Site)>,
    /// Places that store second copies.
    sites: BTreeSet<Site>,
    /// Stores until the power fails: none is made behind them.
    left: Option<u64>,
}

impl OneCopy {
    /// The power fails behind so many stores; or else it is back.
    fn fails_behind(&self, stores: Option<u64>) {
        self.seen.lock().unwrap().left = stores;
    }

    /// Whether this store is to be made.
    #[track_caller]
    fn is_made(&self, at: u64) -> bool {
        let site = (Location::caller().file(), Location::caller().line());
        let mut seen = self.seen.lock().unwrap();
        match &mut seen.left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        let is_second = self.apart != 0 && seen.last == Some((at ^ self.apart, site));
        seen.last = (!is_second).then_some((at, site));
        if is_second {
            seen.sites.insert(site);
        }
        !(is_second && self.left_out == Some(site))
    }
}

impl Medium for OneCopy {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        self.memory.load_word(at)
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.memory.load(at, into)
    }

    #[track_caller]
    fn store_word(&self, window: &mut (), at: u64, value: u64) {
        if self.is_made(at) {
            self.memory.store_word(window, at, value);
        }
    }

    #[track_caller]
    fn store_bytes(&self, window: &mut (), at: u64, bytes: &[u8]) {
        if self.seen.lock().unwrap().left != Some(0) {
            self.memory.store_bytes(window, at, bytes);
        }
    }

    #[track_caller]
    fn store_line(&self, window: &mut (), at: u64, line: &Line) {
        if self.is_made(at) {
            self.memory.store_line(window, at, line);
        }
    }

    #[track_caller]
    fn stream_word(&self, window: &mut (), at: u64, value: u64) {
        if self.is_made(at) {
            self.memory.stream_word(window, at, value);
        }
    }

    fn write_back(&self, window: &mut (), at: u64) {
        self.memory.write_back(window, at);
    }

    fn fence(&self) -> Result<(), MediaError> {
        self.memory.fence()
    }

    fn fence_can_fail(&self) -> bool {
        false
    }
}

fn options() -> OpenOptions {
    OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() }
}

/// What a pool was, and what is left of it after a crash.
struct Past {
    image: Vec<u8>,
    wanted: Snapshot,
    /// By a scrub, when it was the last time.
    found: Vec<Finding>,
    sites: BTreeSet<Site>,
}

/// What comes between the operations of a past, by its seed.
struct Between {
    /// Snapshots are made, and deleted.
    snapshots: bool,
    /// The pool crashes, and is opened again.
    crashes: bool,
    log_lines: u8,
    /// Metadata has copies alone, or beside checksums of data.
    protection: Protection,
}

impl Between {
    fn of(seed: u64) -> Self {
        let log_lines = [9, 20][seed as usize % 2];
        let protection = [Protection::Metadata, Protection::Full][seed as usize / 8 % 2];
        Self { snapshots: seed / 2 % 2 == 1, crashes: seed / 4 % 2 == 1, log_lines, protection }
    }
}

/// A snapshot more, and behind some an older one less.
fn take(pool: &Pool<OneCopy, TestHost>, number: usize) {
    // (Without room there is none.)
    let _ = pool.create_snapshot(number.to_string().as_bytes());
    if let Some(old) = number
        .checked_sub(2 * SNAPSHOT_EVERY)
        .filter(|old| !(old / SNAPSHOT_EVERY).is_multiple_of(3))
    {
        let _ = pool.delete_snapshot(old.to_string().as_bytes());
    }
}

/// Random operations, in a memory that leaves something out.
fn past(seed: u64, left_out: Option<Site>) -> Result<Past, String> {
    let memory = Memory::new(BYTES);
    let Between { snapshots, crashes, log_lines, protection } = Between::of(seed);
    let format = FormatOptions { lanes: 2, log_lines, protection, ..FormatOptions::default() };
    let format = FormatOptions { dead_zone: 60_000, ..format };
    Pool::format(memory.clone(), TestHost::new(seed), &format).unwrap();
    let apart = (PAGE as u64) << memory.image()[92];
    let medium = OneCopy { memory: memory.clone(), apart, left_out, seen: Arc::default() };
    let open = || {
        let opened = Pool::open(medium.clone(), TestHost::new(seed), &options());
        opened.map_err(|error| format!("opened after a crash: {error}"))
    };
    let mut pool = open()?;
    let shape = Shape { maintain_every: 40, ..Shape::default() };
    let (mut handles, mut random) = (Handles::new(), Rng::new(seed));
    for (number, op) in Generator::new(seed, shape).take(OPERATIONS).into_iter().enumerate() {
        if snapshots && number.is_multiple_of(SNAPSHOT_EVERY) {
            take(&pool, number);
        }
        let is_last = crashes && (number + 1).is_multiple_of(CRASH_EVERY);
        medium.fails_behind(is_last.then_some(random.below(STORES_MAX + 1)));
        if !matches!(op, Op::Remount | Op::Crash) {
            let _ = execute(&pool, &mut handles, &op);
        }
        if is_last {
            drop(pool);
            medium.fails_behind(None);
            (pool, handles) = (open()?, Handles::new());
        }
    }
    let wanted = snapshot(&pool, Times::ALL, None)?;
    let sites = medium.seen.lock().unwrap().sites.clone();
    let image = memory.image();
    let found = scrubbed(&pool).map_err(|error| error.to_string())?;
    Ok(Past { image, wanted, found, sites })
}

/// The first copies of all metadata: the lane table, inode tables, logs.
fn first_copies(image: &[u8]) -> Vec<(u64, u64)> {
    let survey = Survey::of(image);
    let superblock = &survey.superblock;
    let mut all = vec![(superblock.lane_table as u64, superblock.lanes as u64 * 256)];
    all.extend(survey.pieces.iter().map(|at| (*at as u64, 64)));
    for log in survey.logs.iter().filter(|log| !log.dead) {
        all.push((log.ino * SLOT as u64, SLOT as u64));
        let anchors = log.runs.iter().map(|run| run.anchor).filter(|anchor| anchor % PAGE == 0);
        all.extend(anchors.map(|anchor| (anchor as u64, PAGE as u64)));
    }
    all
}

/// What is wrong with the pool when it has crashed, and its first copies can't be loaded.
fn wrong(past: &Past) -> Option<String> {
    let memory = Poisoned::new(Memory::from_image(&past.image), Healing::ByLines);
    first_copies(&past.image).into_iter().for_each(|(at, bytes)| memory.poison(at, bytes));
    let pool = match Pool::open(memory.clone(), TestHost::new(9), &options()) {
        Ok(pool) => pool,
        Err(error) => return Some(error.to_string()),
    };
    match snapshot(&pool, Times::ALL, Some(&past.wanted)) {
        Ok(found) => difference(&past.wanted, &found),
        Err(what) => Some(what),
    }
}

/// What a scrub found at its end: copies that differ.
fn differs(past: &Past) -> Option<String> {
    past.found.first().map(|one| format!("{one:?}"))
}

#[test]
fn a_crash_and_the_loss_of_first_copies_lose_what_has_no_second_one() {
    // (A seed's past, once it has been looked at, is made anew: all of them together are large.)
    let mut reached: BTreeMap<(Protection, Site), Vec<u64>> = BTreeMap::new();
    for seed in 0..SEEDS {
        let past = past(seed, None).unwrap();
        assert_eq!((wrong(&past), differs(&past)), (None, None), "seed {seed}");
        let level = Between::of(seed).protection;
        past.sites
            .into_iter()
            .for_each(|site| reached.entry((level, site)).or_default().push(seed));
    }
    assert!(reached.len() >= 2 * SITES, "{reached:?}");
    let first_of = |site: Site, seeds: &[u64], look: fn(&Past) -> Option<String>| {
        seeds.iter().find_map(|seed| match past(*seed, Some(site)) {
            Ok(past) => look(&past),
            Err(what) => Some(what),
        })
    };
    for ((level, site), seeds) in reached {
        let mut noticed = first_of(site, &seeds, wrong);
        if noticed.is_none() && TIDY.contains(&site.0) {
            noticed = first_of(site, &seeds, differs);
        }
        println!("{}, {}:{}: {noticed:?}", level.name(), site.0, site.1);
        assert!(
            noticed.is_some(),
            "{level:?}: nothing is wrong without the second copies of {site:?}"
        );
    }
}
