//! What is done to a raw device, and what its sectors may hold.

use std::collections::BTreeMap;
use std::path::Path;

use lode_block::{Batching, Protection, RawDevice, RawSettings, Sector};
use lode_crash::region::{Pages, Point, Profile, Rules, Simulated};
use lode_nbd::{Device, WriteZeroes};
use lode_pmem::{ProtectIo, RawOptions, RawRegion, RawRule, WriteScheme};
use lode_testkit::rng::mix;

use super::memory::{Memory, SYNCER, WRITER};

pub(super) const SECTOR: u64 = 512;
const REGION: u64 = 64 << 10;

/// A request of a client, or two at once. Sectors by their numbers: the first one, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Write(u64, u64),
    /// Durable when it returns.
    WriteFua(u64, u64),
    Zero(u64, u64),
    ZeroFua(u64, u64),
    /// All durable that had returned.
    Flush,
    /// A write, and a flush while it is about to return.
    FlushBeside(u64, u64),
    /// A write that is on its way out of its buffer when a flush comes.
    FlushWhileWritten(u64, u64),
    /// Past the buffers, as it is measured.
    Watched(u64, u64),
}

/// Requests whose every crash is explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: &'static [Step],
}

/// Requests that any device takes.
pub(super) const CASES: &[Case] = {
    use Step::{Flush, FlushBeside, Write, WriteFua, Zero, ZeroFua};
    &[
        Case {
            name: "writes and flushes",
            steps: &[
                Write(0, 1),
                Write(1, 2),
                Flush,
                Write(0, 1),
                Write(0, 2),
                Zero(2, 1),
                Flush,
                Write(2, 1),
                Flush,
            ],
        },
        Case {
            name: "durable writes beside others",
            steps: &[
                Write(3, 1),
                WriteFua(0, 1),
                Write(1, 1),
                WriteFua(1, 1),
                ZeroFua(0, 1),
                Write(0, 1),
                WriteFua(4, 1),
                Flush,
            ],
        },
        Case {
            name: "writes across pages",
            steps: &[
                Write(6, 4),
                Flush,
                Write(7, 1),
                Write(8, 9),
                Zero(15, 2),
                Flush,
                WriteFua(6, 11),
                ZeroFua(7, 2),
            ],
        },
        Case {
            name: "a write that ends beside a flush",
            steps: &[Write(0, 1), FlushBeside(1, 1), Flush, FlushBeside(0, 1), WriteFua(9, 1)],
        },
    ]
};

/// Where a buffer is written as soon as there is something in it.
pub(super) const WRITTEN_AT_ONCE: Case =
    Case { name: "a flush while a buffer is written", steps: &[Step::FlushWhileWritten(0, 8)] };

/// Where no flush makes up for what a write has left undone.
pub(super) const WATCHED: Case = Case {
    name: "writes as they are measured",
    steps: &[Step::Watched(0, 2), Step::Watched(1, 1)],
};

/// How a device is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub(super) scheme: WriteScheme,
    /// Writes are deferred, and the buffer is written from so many percent of it on.
    pub(super) deferred: Option<u8>,
}

/// What a sector may hold: what it has for certain, or something later. 0 is zeros.
pub(super) type Known = BTreeMap<u64, Vec<u64>>;

/// The bytes of a version: the version, a checksum, and what has no pattern.
pub(super) fn stamped(sector: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; SECTOR as usize];
    }
    let rest: Vec<u64> =
        (2..SECTOR / 8).map(|word| mix(mix(sector << 32 | version) + word)).collect();
    let sum = rest.iter().fold(version, |sum, word| mix(sum ^ word));
    [version, sum].into_iter().chain(rest).flat_map(u64::to_le_bytes).collect()
}

pub(super) type OverMemory = RawDevice<Memory>;

pub(super) fn open(memory: Memory, way: Way) -> OverMemory {
    let batching = way.deferred.map(|percent| Batching::new(1, 64 << 10, percent, 1).unwrap());
    let settings = RawSettings {
        sector: Sector::Small,
        protection: batching.map(Protection::Batch),
        scheme: way.scheme,
        ..RawSettings::default()
    };
    let options = RawOptions { scheme: way.scheme, ..RawOptions::default() };
    let region = RawRegion::over(memory, &options);
    RawDevice::over(region, ProtectIo::None, Path::new("simulated"), &settings).unwrap()
}

/// A device on which steps run.
pub(super) struct Run {
    device: OverMemory,
    pub(super) memory: Memory,
    pub(super) known: Known,
    writes_through: bool,
    version: u64,
}

impl Run {
    pub(super) fn new(way: Way, rules: Rules, left_out: Option<RawRule>) -> Self {
        let medium = Simulated::new(Pages::new(REGION), rules);
        let memory = Memory::new(medium, rules.profile, left_out);
        // (As the guide has it, not as the device says.)
        let is_cached = way.scheme == WriteScheme::Cached;
        let writes_through = !is_cached && way.deferred.is_none() && rules.profile != Profile::File;
        let device = open(memory.clone(), way);
        Self { device, memory, known: Known::new(), writes_through, version: 0 }
    }

    /// What sectors may hold while a step runs.
    pub(super) fn during(&mut self, step: Step) {
        let (at, count) = match step {
            Step::Flush => return,
            Step::Zero(at, count) | Step::ZeroFua(at, count) => return self.may_hold(at, count, 0),
            Step::Write(at, count)
            | Step::WriteFua(at, count)
            | Step::FlushBeside(at, count)
            | Step::FlushWhileWritten(at, count)
            | Step::Watched(at, count) => (at, count),
        };
        self.version += 1;
        self.may_hold(at, count, self.version);
    }

    fn may_hold(&mut self, at: u64, count: u64, version: u64) {
        for sector in at..at + count {
            self.known.entry(sector).or_insert_with(|| vec![0]).push(version);
        }
    }

    /// What they must hold when it has returned.
    pub(super) fn after(&mut self, step: Step) {
        let keeps = |versions: &mut Vec<u64>, left: usize| {
            versions.drain(..versions.len().saturating_sub(left));
        };
        let through = self.writes_through;
        let parts = match step {
            Step::Flush | Step::FlushWhileWritten(..) => 0..u64::MAX,
            // (Of what is written beside, nothing was promised.)
            Step::FlushBeside(at, count) => {
                for (sector, versions) in &mut self.known {
                    let beside = (at..at + count).contains(sector) && !through;
                    keeps(versions, if beside { 2 } else { 1 });
                }
                return;
            }
            Step::WriteFua(at, count) | Step::ZeroFua(at, count) | Step::Watched(at, count) => {
                at..at + count
            }
            Step::Write(at, count) | Step::Zero(at, count) if through => at..at + count,
            Step::Write(..) | Step::Zero(..) => return,
        };
        self.known.range_mut(parts).for_each(|(_, versions)| keeps(versions, 1));
    }

    fn bytes(&self, at: u64, count: u64) -> Vec<u8> {
        (at..at + count).flat_map(|sector| stamped(sector, self.version)).collect()
    }

    /// Does a step, whose versions are known already; gives the point at which it has returned.
    pub(super) fn step(&self, step: Step) -> Result<Point, String> {
        let said = |errno| format!("{step:?}: {errno:?}");
        let device: &dyn Device = &self.device;
        match step {
            Step::Write(at, count) => {
                device.write(at * SECTOR, &self.bytes(at, count), false).map_err(said)?;
            }
            Step::WriteFua(at, count) => {
                device.write(at * SECTOR, &self.bytes(at, count), true).map_err(said)?;
            }
            Step::Zero(at, count) | Step::ZeroFua(at, count) => {
                let fua = matches!(step, Step::ZeroFua(..));
                let how = WriteZeroes { fua, ..WriteZeroes::default() };
                device.write_zeroes(at * SECTOR, count * SECTOR, how).map_err(said)?;
            }
            Step::Flush => device.flush().map_err(said)?,
            Step::FlushBeside(at, count) => self.beside(at, &self.bytes(at, count))?,
            Step::FlushWhileWritten(at, count) => {
                let meeting = &self.memory.meeting;
                meeting.hold(SYNCER);
                let written = device.write(at * SECTOR, &self.bytes(at, count), false);
                if written.is_ok() {
                    meeting.wait();
                }
                let flushed = written.and_then(|()| device.flush());
                let point = self.memory.medium.point();
                meeting.release();
                return flushed.map(|()| point).map_err(said);
            }
            Step::Watched(at, count) => {
                let bytes = self.bytes(at, count);
                let done = self.device.region().write_watched(at * SECTOR, &bytes);
                done.map_err(|error| format!("{step:?}: {error}"))?;
            }
        }
        Ok(self.memory.medium.point())
    }

    fn beside(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let meeting = &self.memory.meeting;
        meeting.hold(WRITER);
        std::thread::scope(|scope| {
            let writer = std::thread::Builder::new().name(WRITER.to_owned());
            let write = || self.device.write(at * SECTOR, bytes);
            let written = writer.spawn_scoped(scope, write).map_err(|error| error.to_string())?;
            meeting.wait();
            let flushed = self.device.flush();
            meeting.release();
            let written = written.join().map_err(|_| "the writer panicked".to_owned())?;
            written.and(flushed).map_err(|error| error.to_string())
        })
    }
}
