//! A region as one block device: it holds what was written, in every way to protect and to store.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lode_block::{Batching, Protection, RawDevice, RawSettings, Sector};
use lode_nbd::{Device, Errno, WriteZeroes};
use lode_pmem::{ProtectIo, RawError, RegionError, WriteScheme};
use proptest::prelude::*;
use tempfile::TempDir;

const BYTES: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn shm() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// A device of zeros, or `None` and a line that says why there is none.
fn device(path: &Path, settings: RawSettings) -> Option<RawDevice> {
    fs::write(path, vec![0; BYTES as usize]).unwrap();
    match RawDevice::open(path, &settings) {
        Ok(device) => Some(device),
        Err(RegionError::NoWindows { why, .. }) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(RegionError::NoSuchInstruction { missing, .. }) => {
            eprintln!("skipped: this CPU has no {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Buffers so small that they are full at once, and large ones.
fn protections() -> Vec<Protection> {
    let batches = [
        Batching::new(1, 64 << 10, 100, 1).unwrap(),
        Batching::new(16, 64 << 10, 1, 3).unwrap(),
        Batching::new(3, 64 << 10, 50, 2).unwrap().without_merging(),
        Batching::DEFAULT,
    ];
    let each = ProtectIo::ALL.map(Protection::Each).into_iter();
    each.chain(batches.map(Protection::Batch)).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Write { sector: u64, sectors: u64, fill: u8, durably: bool },
    Zero { sector: u64, sectors: u64 },
    Read { sector: u64, sectors: u64 },
    Flush,
}

const SECTORS: u64 = BYTES / 512;

fn op() -> impl Strategy<Value = Op> {
    let range = || {
        (0..SECTORS, prop_oneof![1..9u64, 1..300u64])
            .prop_map(|(sector, sectors)| (sector, sectors.min(SECTORS - sector)))
    };
    prop_oneof![
        6 => (range(), any::<u8>(), proptest::bool::weighted(0.1)).prop_map(
            |((sector, sectors), fill, durably)| Op::Write { sector, sectors, fill, durably }
        ),
        1 => range().prop_map(|(sector, sectors)| Op::Zero { sector, sectors }),
        3 => range().prop_map(|(sector, sectors)| Op::Read { sector, sectors }),
        1 => Just(Op::Flush),
    ]
}

fn held(path: &Path, settings: RawSettings, ops: &[Op]) {
    let Some(device) = device(path, settings) else { return };
    let mut model = vec![0u8; BYTES as usize];
    let is_in_file = |model: &[u8]| fs::read(path).unwrap() == model;
    for op in ops {
        match *op {
            Op::Write { sector, sectors, fill, durably } => {
                let (at, len) = (sector * 512, (sectors * 512) as usize);
                let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 512) as u8)).collect();
                match durably {
                    true => device.write_durably(at, &bytes).unwrap(),
                    false => device.write(at, &bytes).unwrap(),
                }
                model[at as usize..at as usize + len].copy_from_slice(&bytes);
            }
            Op::Zero { sector, sectors } => {
                let (at, len) = ((sector * 512) as usize, (sectors * 512) as usize);
                device.zero(at as u64, len as u64).unwrap();
                model[at..at + len].fill(0);
            }
            Op::Read { sector, sectors } => {
                let (at, len) = ((sector * 512) as usize, (sectors * 512) as usize);
                let mut read = vec![0; len];
                device.read(at as u64, &mut read).unwrap();
                assert!(read == model[at..at + len], "{sector} {sectors}");
            }
            Op::Flush => {
                device.flush().unwrap();
                assert!(is_in_file(&model), "a flush left something in a buffer");
            }
        }
    }
    device.close().unwrap();
    assert!(is_in_file(&model));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn it_holds_what_was_written(ops in proptest::collection::vec(op(), 1..60)) {
        let dir = shm();
        for protection in protections() {
            for scheme in WriteScheme::ALL {
                let protection = Some(protection);
                let settings = RawSettings { protection, scheme, ..RawSettings::default() };
                held(&dir.path().join("region"), settings, &ops);
            }
        }
    }
}

/// Each thread has sectors of its own, in pages that it shares with others.
#[test]
fn threads_side_by_side_lose_nothing() {
    const THREADS: u64 = 4;
    let dir = shm();
    for protection in protections() {
        let path = dir.path().join("region");
        let settings = RawSettings { protection: Some(protection), ..RawSettings::default() };
        let Some(device) = device(&path, settings) else { continue };
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (device, ends) = (&device, &ends);
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        for round in 1..=6u8 {
                            for sector in (thread..SECTORS).step_by(THREADS as usize) {
                                device.write(sector * 512, &[round; 512]).unwrap();
                                let mut read = [0; 512];
                                device.read(sector * 512, &mut read).unwrap();
                                assert_eq!(read, [round; 512], "{protection} {sector}");
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !ends.load(SeqCst) {
                    device.flush().unwrap();
                    std::thread::yield_now();
                }
            });
            let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            ends.store(true, SeqCst);
            assert!(outcomes.iter().all(Result::is_ok));
        });
        device.close().unwrap();
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 6), "{protection}");
    }
}

#[test]
fn batched_writes_wait_for_a_barrier() {
    let dir = shm();
    let path = dir.path().join("region");
    let protection = Some(Protection::Batch(Batching::DEFAULT));
    let device = device(&path, RawSettings { protection, ..RawSettings::default() }).unwrap();
    assert!(!device.is_durable_when_written());
    device.write(0, &[7; 512]).unwrap();
    assert!(fs::read(&path).unwrap()[0] == 0, "it was written at once");
    device.write_durably(PAGE, &[8; 512]).unwrap();
    let file = fs::read(&path).unwrap();
    assert_eq!((file[0], file[PAGE as usize]), (7, 8));
}

#[test]
fn what_is_no_whole_sector_is_refused() {
    let dir = shm();
    let path = dir.path().join("region");
    for sector in Sector::ALL {
        let protection = Some(Protection::Each(ProtectIo::None));
        let settings = RawSettings { sector, protection, ..RawSettings::default() };
        let device = device(&path, settings).unwrap();
        let half = sector.bytes() / 2;
        let bytes = vec![1; sector.bytes() as usize];
        for at in [half, BYTES, BYTES - half, u64::MAX - sector.bytes() + 1] {
            assert!(matches!(device.write(at, &bytes), Err(RawError::Outside { .. })), "{at}");
            assert!(matches!(device.zero(at, sector.bytes()), Err(RawError::Outside { .. })));
            let read = device.read(at, &mut bytes.clone());
            assert!(matches!(read, Err(RawError::Outside { .. })), "{at}");
        }
        assert!(matches!(device.write(0, &bytes[..half as usize]), Err(RawError::Outside { .. })));
    }
}

#[test]
fn a_device_for_reading_says_so() {
    let dir = shm();
    let path = dir.path().join("region");
    for protection in protections() {
        let settings =
            RawSettings { read_only: true, protection: Some(protection), ..RawSettings::default() };
        let Some(device) = device(&path, settings) else { continue };
        assert!(Device::read_only(&device));
        assert_eq!(Device::write(&device, 0, &[1; 512], true), Err(Errno::EPERM));
        assert_eq!(device.write_zeroes(0, 512, WriteZeroes::default()), Err(Errno::EPERM));
        Device::flush(&device).unwrap();
        device.close().unwrap();
    }
}

/// As an NBD client asks: with and without FUA.
#[test]
fn what_a_client_was_promised_is_in_the_region() {
    let dir = shm();
    let path = dir.path().join("region");
    for protection in protections() {
        let settings = RawSettings { protection: Some(protection), ..RawSettings::default() };
        let Some(device) = device(&path, settings) else { continue };
        Device::write(&device, 0, &[1; 512], true).unwrap();
        Device::write(&device, PAGE, &[2; 1024], false).unwrap();
        assert_eq!(fs::read(&path).unwrap()[..512], [1; 512]);
        Device::flush(&device).unwrap();
        assert_eq!(fs::read(&path).unwrap()[PAGE as usize..PAGE as usize + 1024], [2; 1024]);
        let fast = WriteZeroes { fast_zero: true, ..WriteZeroes::default() };
        assert_eq!(device.write_zeroes(PAGE, 512, fast), Err(Errno::ENOTSUP));
        device
            .write_zeroes(PAGE, 512, WriteZeroes { fua: true, ..WriteZeroes::default() })
            .unwrap();
        assert_eq!(fs::read(&path).unwrap()[PAGE as usize..PAGE as usize + 512], [0; 512]);
    }
}
