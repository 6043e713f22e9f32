//! Block devices that are measured: regions in every way, volumes, and what physics asks for.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_block::{
    Batching, NewVolume, Protection, RawDevice, RawSettings, Sector, Settings, Volume,
};
use lode_engine::{FormatOptions, OpenOptions, Pool};
use lode_host::StdHost;
use lode_pmem::{
    Counters, Door, LINE_BYTES, Line, Mapped, ProtectIo, RegionOptions, WindowMode, WriteScheme,
};

use super::pages::Pages;
use crate::subject::mapped::failed;

/// What a device does.
pub trait Blocks: Send + Sync {
    /// Reads.
    ///
    /// # Errors
    /// Those of the device.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes.
    ///
    /// # Errors
    /// Those of the device.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all durable that was written.
    ///
    /// # Errors
    /// Those of the device.
    fn flush(&self) -> io::Result<()>;

    /// Where in the region file its bytes are, one part behind the other: offsets and lengths. None where they move.
    fn places(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

/// What a subject is.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// A copy, and a fence: nothing else.
    Limit,
    /// What the journal of sectors does for a write, and nothing else: a copy to the journal and a fence, a line and a fence, a copy home and a fence.
    VolumeLimit,
    /// A copy, a fence, a line that tells of it, a fence: what a write would take that needed no journal.
    VolumeOnce,
    /// A whole region.
    Raw(Protection, WriteScheme),
    /// A volume of a pool, in pages of 2 MiB, which are written home from a journal.
    Volume(Sector),
    /// A volume in pages of 4 KiB, which are written beside the old ones.
    Redirected,
}

/// A subject.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name.
    pub id: &'static str,
    made: Made,
}

const fn raw(id: &'static str, protect: ProtectIo) -> Subject {
    Subject { id, made: Made::Raw(Protection::Each(protect), WriteScheme::Nt) }
}

const fn scheme(id: &'static str, scheme: WriteScheme) -> Subject {
    Subject { id, made: Made::Raw(Protection::Each(ProtectIo::None), scheme) }
}

const fn made(id: &'static str, made: Made) -> Subject {
    Subject { id, made }
}

/// All of them.
pub fn every() -> Vec<Subject> {
    let batch = |id, batching| made(id, Made::Raw(Protection::Batch(batching), WriteScheme::Nt));
    let mut all = vec![
        made("limit", Made::Limit),
        raw("none", ProtectIo::None),
        raw("key", ProtectIo::Key),
        raw("key-rw", ProtectIo::KeyRw),
        raw("mprotect", ProtectIo::Mprotect),
        batch("mprotect-buffer", Batching::DEFAULT.without_merging()),
        batch("mprotect-batch", Batching::DEFAULT),
    ];
    // As much memory as one buffer has.
    all.extend(Batching::new(16, 1 << 20, 50, 16).ok().map(|it| batch("mprotect-batch-16", it)));
    all.extend([
        raw("private-map", ProtectIo::PrivateMap),
        scheme("cached", WriteScheme::Cached),
        scheme("clwb", WriteScheme::Clwb),
        scheme("clflush", WriteScheme::Clflush),
        made("volume-limit", Made::VolumeLimit),
        made("volume-once", Made::VolumeOnce),
        made("volume-512", Made::Volume(Sector::Small)),
        made("volume-4096", Made::Volume(Sector::Large)),
        made("volume-redirected", Made::Redirected),
    ]);
    all
}

/// A region file of zeros, all of it there.
pub(super) fn region_file(path: &Path, bytes: u64) -> io::Result<()> {
    region_files(&[(path.to_owned(), bytes)])
}

/// Region files of zeros, all of them there, whose pages are made in turns: what memory a file is in makes reads of it up to a
/// tenth slower or faster than another one's, and those that are compared are to be in memory alike.
pub(super) fn region_files(files: &[(PathBuf, u64)]) -> io::Result<()> {
    /// As large as the system's large pages.
    const PIECE: u64 = 2 << 20;
    let zeros = vec![0; PIECE as usize];
    let made = files.iter().map(|(path, bytes)| Ok((File::create_new(path)?, *bytes)));
    let mut made = made.collect::<io::Result<Vec<(File, u64)>>>()?;
    // (They are made now, not while they are measured.)
    while made.iter().any(|(_, left)| *left > 0) {
        for (file, left) in &mut made {
            let piece = PIECE.min(*left);
            io::Write::write_all(file, zeros.get(..piece as usize).unwrap_or_default())?;
            *left -= piece;
        }
    }
    Ok(())
}

impl Subject {
    /// Whether its sectors are whole beside who stores to them.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.made, Made::Volume(_))
    }

    /// Bytes of the region file that a device of so many bytes needs.
    pub(super) fn region_bytes(&self, bytes: u64) -> u64 {
        let lines = LINES * LINE_BYTES as u64;
        match self.made {
            Made::Limit | Made::VolumeOnce => bytes + lines,
            Made::VolumeLimit => bytes + lines + LANES * 2 * PLACE,
            Made::Raw(..) => bytes,
            Made::Volume(_) | Made::Redirected => bytes + bytes / 2,
        }
    }

    /// A device of so many bytes in the region file at `path`, which is as large as it needs.
    ///
    /// # Errors
    /// What it needs is not to be had here.
    pub fn start(&self, path: &Path, bytes: u64) -> io::Result<Box<dyn Blocks>> {
        Ok(match self.made {
            Made::Limit => Box::new(Bare::new(path, bytes, Budget::Copy)?),
            Made::VolumeLimit => Box::new(Bare::new(path, bytes, Budget::Journal)?),
            Made::VolumeOnce => Box::new(Bare::new(path, bytes, Budget::CopyAndLine)?),
            Made::Raw(protection, scheme) => {
                let protection = Some(protection);
                let settings = RawSettings { protection, scheme, ..RawSettings::default() };
                Box::new(RawDevice::open(path, &settings).map_err(io::Error::other)?)
            }
            Made::Volume(sector) => Box::new(volume(path, bytes, (sector, bytes))?),
            // (So small a file begins with small pages, and keeps to them.)
            Made::Redirected => Box::new(volume(path, bytes, (Sector::Large, 1 << 20))?),
        })
    }
}

impl Blocks for RawDevice {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        RawDevice::read(self, at, into).map_err(io::Error::other)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        RawDevice::write(self, at, bytes).map_err(io::Error::other)
    }

    fn flush(&self) -> io::Result<()> {
        RawDevice::flush(self).map_err(io::Error::other)
    }

    fn places(&self) -> Vec<(u64, u64)> {
        vec![(0, self.bytes())]
    }
}

/// A volume, and where its pages are.
struct InPool {
    volume: Volume<Mapped, StdHost>,
    places: Vec<(u64, u64)>,
}

/// A volume that fills most of a pool of its own; all of it is written once.
fn volume(path: &Path, bytes: u64, (sector, begins_with): (Sector, u64)) -> io::Result<InPool> {
    let options = RegionOptions::new().windows(WindowMode::None);
    let region = Mapped::open(path, &options).map_err(io::Error::other)?;
    Pool::format(&region, StdHost::new(), &FormatOptions::default()).map_err(io::Error::other)?;
    let pool = Pool::open(region, StdHost::new(), &OpenOptions::default());
    let pool = Arc::new(pool.map_err(io::Error::other)?);
    let settings = Settings { sector, is_thin: begins_with < bytes };
    let new = NewVolume { bytes: begins_with, settings, owner: (0, 0) };
    lode_block::create(&pool, b"volume", &new).map_err(io::Error::other)?;
    if begins_with < bytes {
        let begin = Volume::open(Arc::clone(&pool), b"volume").map_err(io::Error::other)?;
        begin.write(0, &vec![0; begins_with as usize]).map_err(io::Error::other)?;
        lode_block::resize(&pool, b"volume", bytes, false, |_| false).map_err(io::Error::other)?;
    }
    let volume = Volume::open(Arc::clone(&pool), b"volume").map_err(io::Error::other)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..bytes).step_by(zeros.len()) {
        volume.write(at, &zeros).map_err(io::Error::other)?;
    }
    // (What is in small pages is written beside the old ones, and moves.)
    let places = if begins_with < bytes { Vec::new() } else { places(&pool, bytes)? };
    Ok(InPool { volume, places })
}

/// Where the pages of the volume are.
fn places(pool: &Pool<Mapped, StdHost>, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
    let ino = lode_block::info(pool, b"volume").map_err(io::Error::other)?.ino;
    let file = pool.hold(ino).map_err(io::Error::other)?;
    let extents = pool.extents(&file, 0, bytes).map_err(io::Error::other)?;
    Ok(extents.iter().map(|extent| (extent.pool_offset, extent.bytes)).collect())
}

impl Blocks for InPool {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.volume.read(at, into).map_err(io::Error::other)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.volume.write(at, bytes).map_err(io::Error::other)
    }

    fn flush(&self) -> io::Result<()> {
        self.volume.flush().map_err(io::Error::other)
    }

    fn places(&self) -> Vec<(u64, u64)> {
        self.places.clone()
    }
}

/// What a bare write does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Budget {
    /// A copy, a fence.
    Copy,
    /// The same, and a line, a fence.
    CopyAndLine,
    /// A copy to a journal, a fence, and with the pages locked a line, a fence, a copy home, a fence; 64 KiB at a time, in the two places of
    /// a lane in turn.
    Journal,
}

/// Copies and fences.
struct Bare {
    door: Door<Mapped>,
    /// Behind what is written, a line for each thread's accesses; behind these, the lanes of a journal.
    lines_at: u64,
    budget: Budget,
    pages: Pages,
}

/// Lines that tell of writes.
const LINES: u64 = 1 << 14;
/// Lanes of a journal: threads have them in turn.
const LANES: u64 = 64;
/// Bytes of one of the two places of a lane.
const PLACE: u64 = 64 << 10;

impl Bare {
    fn new(path: &Path, bytes: u64, budget: Budget) -> io::Result<Self> {
        let options = RegionOptions::new().windows(WindowMode::None);
        let region = Mapped::open(path, &options).map_err(io::Error::other)?;
        Ok(Self { door: Door::new(region), lines_at: bytes, budget, pages: Pages::new() })
    }

    fn copy(&self, at: u64, bytes: &[u8], counters: &Counters) -> io::Result<()> {
        self.door.window(bytes.len() as u64, counters).copy_nt(at, bytes);
        self.door.fence(counters).map_err(failed)
    }

    fn line(&self, number: u64, counters: &Counters) -> io::Result<()> {
        let line = self.lines_at + number % LINES * LINE_BYTES as u64;
        self.door.window(LINE_BYTES as u64, counters).store_line(line, &Line([0x11; LINE_BYTES]));
        self.door.fence(counters).map_err(failed)
    }

    /// In the lane of this thread.
    fn journalled(&self, at: u64, bytes: &[u8], counters: &Counters) -> io::Result<()> {
        let (lane, mut turn) = LANE.get();
        let journal = self.lines_at + LINES * LINE_BYTES as u64;
        for (part, at) in bytes.chunks(PLACE as usize).zip((at..).step_by(PLACE as usize)) {
            self.copy(journal + (2 * lane + turn) * PLACE, part, counters)?;
            self.pages.alone((at, part.len() as u64), || {
                self.line(lane, counters)?;
                self.copy(at, part, counters)
            })?;
            turn = 1 - turn;
        }
        LANE.set((lane, turn));
        Ok(())
    }
}

/// The next thread's lane.
static NEXT_LANE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTERS: Counters = const { Counters::new() };
    /// The lane of a thread, and which of its places is next.
    static LANE: Cell<(u64, u64)> = Cell::new((NEXT_LANE.fetch_add(1, Relaxed) % LANES, 0));
}

impl Blocks for Bare {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.door.load(at, into).map_err(failed)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        COUNTERS.with(|counters| match self.budget {
            Budget::Copy => self.copy(at, bytes, counters),
            Budget::CopyAndLine => {
                self.copy(at, bytes, counters)?;
                self.line(at / 4096, counters)
            }
            Budget::Journal => self.journalled(at, bytes, counters),
        })
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_holds_what_is_written() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for subject in every() {
            let path = dir.path().join(subject.id);
            region_file(&path, subject.region_bytes(4 << 20)).unwrap();
            let device = match subject.start(&path, 4 << 20) {
                Ok(device) => device,
                // (Keys, and some instructions, are not everywhere.)
                Err(error) => {
                    eprintln!("skipped: {}: {error}", subject.id);
                    continue;
                }
            };
            let mut read = vec![0; 8192];
            device.write(4096, &[7; 8192]).unwrap();
            device.flush().unwrap();
            device.read(4096, &mut read).unwrap();
            assert_eq!(read, [7; 8192], "{}", subject.id);
        }
    }
}
