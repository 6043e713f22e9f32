//! As `instructions`, of block devices: a program of its own, so that what is counted there is made the same
//! part of its callers as without these.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use lode_block::{NewVolume, Protection, RawDevice, RawSettings, Sector, Settings, Volume};
use lode_engine::{FormatOptions, OpenOptions, Pool};
use lode_pmem::{Mapped, ProtectIo, RegionOptions, WindowMode};
use lode_testkit::TestHost;
use lode_testkit::rng::Rng;

const POOL_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Pages of a device.
const PAGES: u64 = 1024;

/// What is done to a page of a device that is there.
type Turn = Box<dyn Fn(u64)>;

/// By name, how a device is made, and what is done to it.
const OPERATIONS: [(&str, fn() -> Turn); 4] = [
    ("raw-read-4k", || {
        let device = raw();
        Box::new(move |at| device.read(at, &mut [0; PAGE as usize]).unwrap())
    }),
    ("raw-write-4k", || {
        let device = raw();
        Box::new(move |at| device.write(at, &[7; PAGE as usize]).unwrap())
    }),
    ("volume-read-4k", || {
        let device = volume();
        Box::new(move |at| device.read(at, &mut [0; PAGE as usize]).unwrap())
    }),
    ("volume-write-4k", || {
        let device = volume();
        Box::new(move |at| device.write(at, &[7; PAGE as usize]).unwrap())
    }),
];

fn region() -> RegionOptions {
    let mut options = RegionOptions::new();
    options = options.windows(WindowMode::None);
    options.flush("sse2+clflush".parse().unwrap())
}

/// A region that nothing guards, all of it written. (valgrind's processor streams by instructions that every one has.)
fn raw() -> RawDevice {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("region");
    std::fs::write(&path, vec![1; (PAGES * PAGE) as usize]).unwrap();
    let protection = Some(Protection::Each(ProtectIo::None));
    RawDevice::open(&path, &RawSettings { protection, ..RawSettings::default() }).unwrap()
}

/// A volume in large pages of a pool of its own, all of it written.
fn volume() -> Volume<Mapped, TestHost> {
    let region = Mapped::anonymous(POOL_BYTES, &region()).unwrap();
    Pool::format(&region, TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = Pool::open(region, TestHost::new(2), &OpenOptions::default()).unwrap();
    let pool = Arc::new(pool);
    let settings = Settings { sector: Sector::Large, is_thin: false };
    let new = NewVolume { bytes: PAGES * PAGE, settings, owner: (0, 0) };
    lode_block::create(&pool, b"volume", &new).unwrap();
    let volume = Volume::open(pool, b"volume").unwrap();
    (0..PAGES).for_each(|page| volume.write(page * PAGE, &[7; PAGE as usize]).unwrap());
    volume
}

/// All that is counted.
#[inline(never)]
fn measured_work(turn: &Turn, pages: &[u64]) {
    pages.iter().for_each(|page| turn(page * PAGE));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(wanted) = words.first() else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let turns: usize = words.get(1).expect("how often").parse().expect("a number");
    let (_, make) = OPERATIONS.iter().find(|(name, ..)| name == wanted).expect("a name");
    let mut bits = Rng::new(3);
    let pages: Vec<u64> = (0..turns).map(|_| bits.below(PAGES)).collect();
    measured_work(&make(), &pages);
}
