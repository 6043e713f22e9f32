//! Each store of a second copy is needed: without it, a crash and the loss of the first copies lose something. (With it
//! they lose nothing.)

use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use lode_engine::{AccessTimes, FormatOptions, OpenOptions, Pool, Protection};
use lode_pmem::{Line, MediaError, Medium};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::format::{PAGE, SLOT, Survey};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const BYTES: u64 = 8 << 20;
/// Operations of a past, and pasts that are tried until one shows what was left out.
const OPERATIONS: usize = 400;
const SEEDS: u64 = 12;

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
}

impl OneCopy {
    /// Whether this store is to be made.
    #[track_caller]
    fn is_made(&self, at: u64) -> bool {
        let site = (Location::caller().file(), Location::caller().line());
        let mut seen = self.seen.lock().unwrap();
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
        self.memory.store_bytes(window, at, bytes);
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
    sites: BTreeSet<Site>,
}

/// Random operations, in a memory that leaves something out.
fn past(seed: u64, left_out: Option<Site>) -> Past {
    let memory = Memory::new(BYTES);
    let (protection, log_lines) = (Protection::Metadata, [9, 20][seed as usize % 2]);
    let format = FormatOptions { lanes: 2, log_lines, protection, ..FormatOptions::default() };
    let format = FormatOptions { dead_zone: 60_000, ..format };
    Pool::format(memory.clone(), TestHost::new(seed), &format).unwrap();
    let apart = (PAGE as u64) << memory.image()[92];
    let medium = OneCopy { memory: memory.clone(), apart, left_out, seen: Arc::default() };
    let pool = Pool::open(medium.clone(), TestHost::new(seed), &options()).unwrap();
    let shape = Shape { maintain_every: 40, ..Shape::default() };
    let mut handles = Handles::new();
    for op in Generator::new(seed, shape).take(OPERATIONS) {
        if !matches!(op, Op::Remount | Op::Crash) {
            let _ = execute(&pool, &mut handles, &op);
        }
    }
    let wanted = snapshot(&pool, Times::ALL, None).unwrap();
    let sites = medium.seen.lock().unwrap().sites.clone();
    Past { image: memory.image(), wanted, sites }
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

#[test]
fn a_crash_and_the_loss_of_first_copies_lose_what_has_no_second_one() {
    let sound: Vec<Past> = (0..SEEDS).map(|seed| past(seed, None)).collect();
    for (seed, past) in sound.iter().enumerate() {
        assert_eq!(wrong(past), None, "seed {seed}");
    }
    let sites: BTreeSet<Site> = sound.iter().flat_map(|past| past.sites.iter().copied()).collect();
    assert!(sites.len() >= 4, "{sites:?}");
    for site in sites {
        let mut seeds = (0..SEEDS).filter(|seed| sound[*seed as usize].sites.contains(&site));
        let noticed = seeds.find_map(|seed| wrong(&past(seed, Some(site))));
        println!("{}:{}: {noticed:?}", site.0, site.1);
        assert!(noticed.is_some(), "nothing is wrong without the second copies of {site:?}");
    }
}
