//! Programs on slower memory (PMBD, Figure 15): one that mostly reads and computes, one that mostly writes and waits for it.
//!
//! The paper has TPC-H and TPC-C on PostgreSQL, with a file system and its page cache between. These are shapes of such programs
//! in this process, with none between: so slower memory shows more.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use lode_block::{Protection, RawDevice, RawSettings};
use lode_pmem::{ProtectIo, Slowdown, crc32c};

use super::subject::region_file;
use crate::random::Random;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// 256 KiB are read in order and looked at, byte by byte; of ten such one is written back.
    Analysis,
    /// Pages of 8 KiB: two are read and computed with, four written, and a barrier; 64 % of what moves is written, as in the paper's Table II.
    Transactions,
}

impl Shape {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Analysis, Self::Transactions];

    /// What rows call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Analysis => "analysis",
            Self::Transactions => "transactions",
        }
    }
}

/// How much slower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slower {
    /// To read.
    pub read: u16,
    /// To write.
    pub write: u16,
}

/// The paper's: 1 to 10 times for reads, 1 to 50 for writes.
pub const FACTORS: [Slower; 7] = [
    Slower { read: 1, write: 1 },
    Slower { read: 2, write: 1 },
    Slower { read: 5, write: 1 },
    Slower { read: 10, write: 1 },
    Slower { read: 1, write: 10 },
    Slower { read: 1, write: 50 },
    Slower { read: 10, write: 50 },
];

impl Slower {
    /// What rows call it.
    pub fn name(self) -> String {
        format!("read x{}, write x{}", self.read, self.write)
    }
}

/// The device of a program.
pub struct Slowed {
    device: RawDevice,
    buffer: Vec<u8>,
    random: Random,
    next: u64,
}

impl Slowed {
    /// On a new region of so many bytes.
    ///
    /// # Errors
    /// No region can be made.
    pub fn new(path: &Path, bytes: u64, slower: Slower) -> io::Result<Self> {
        region_file(path, bytes)?;
        let factor = |times| Slowdown::new(times).map_err(io::Error::other);
        let settings = RawSettings {
            protection: Some(Protection::Each(ProtectIo::None)),
            slow_read: factor(slower.read)?,
            slow_write: factor(slower.write)?,
            ..RawSettings::default()
        };
        let device = RawDevice::open(path, &settings).map_err(io::Error::other)?;
        Ok(Self { device, buffer: vec![0; 256 << 10], random: Random::new(7), next: 0 })
    }

    /// Nanoseconds of one unit of a program's work.
    ///
    /// # Errors
    /// Those of the device.
    pub fn round(&mut self, shape: Shape, time: Duration) -> io::Result<f64> {
        let begin = Instant::now();
        let mut units = 0u32;
        while begin.elapsed() < time {
            match shape {
                Shape::Analysis => self.analyse()?,
                Shape::Transactions => self.transact()?,
            }
            units += 1;
        }
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(units.max(1)))
    }

    fn analyse(&mut self) -> io::Result<()> {
        let len = self.buffer.len() as u64;
        let places = self.device.bytes() / len;
        self.next = (self.next + 1) % places;
        let at = self.next * len;
        self.device.read(at, &mut self.buffer).map_err(io::Error::other)?;
        std::hint::black_box(looked_at(&self.buffer));
        if self.next.is_multiple_of(10) {
            self.device.write(at, &self.buffer).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn transact(&mut self) -> io::Result<()> {
        const PAGE: u64 = 8 << 10;
        let places = self.device.bytes() / PAGE;
        for number in 0..6 {
            let at = self.random.below(places) * PAGE;
            let Some(page) = self.buffer.get_mut(..PAGE as usize) else { return Ok(()) };
            if number < 2 {
                self.device.read(at, page).map_err(io::Error::other)?;
                std::hint::black_box(looked_at(page));
            } else {
                self.device.write(at, page).map_err(io::Error::other)?;
            }
        }
        self.device.flush().map_err(io::Error::other)
    }
}

/// What a program computes of what it has read: each word is looked at.
fn looked_at(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let sum = words.fold(0u64, |sum, word| sum.rotate_left(7) ^ word.wrapping_mul(31));
    sum ^ u64::from(crc32c(0, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_memory_makes_programs_slower() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let time = Duration::from_millis(20);
        for (shape, slow) in [
            (Shape::Analysis, Slower { read: 1000, write: 1 }),
            (Shape::Transactions, Slower { read: 1, write: 1000 }),
        ] {
            let of = |slower: Slower| {
                let path = dir.path().join(format!("{shape:?} {}", slower.name()));
                Slowed::new(&path, 8 << 20, slower).unwrap()
            };
            // (By turns, and the best of each: beside other programs a turn may be mostly theirs.)
            let mut both = [of(FACTORS[0]), of(slow)];
            let mut best = [f64::INFINITY; 2];
            for _ in 0..7 {
                for (one, best) in both.iter_mut().zip(&mut best) {
                    *best = best.min(one.round(shape, time).unwrap());
                }
            }
            let [plain, slowed] = best;
            assert!(slowed > plain * 5.0, "{shape:?}: {plain} {slowed}");
        }
    }
}
