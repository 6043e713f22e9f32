//! A device in memory that knows what was never written, and fails where it is told to.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use lode_nbd::{BlockSizes, Device, Errno, Extent, WriteZeroes};

const PAGE: u64 = 4096;

/// A call that was made of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Read(u64, u64),
    Write(u64, u64, bool),
    Flush,
    Trim(u64, u64, bool),
    Zero(u64, u64, WriteZeroes),
    Cache(u64, u64),
    Status(u64, u64),
}

/// Bytes by pages; what no page is there for is zeros.
#[derive(Default)]
pub struct Memory {
    pub size: RwLock<u64>,
    pub sizes: BlockSizes,
    pub read_only: bool,
    /// Zeros are not written fast.
    pub slow_zeroes: bool,
    /// How long a write takes.
    pub write_time: Duration,
    /// What can't be read or written.
    pub bad: RwLock<Range<u64>>,
    /// Each call, if they are to be known.
    pub calls: Option<Mutex<Vec<Call>>>,
    pub pages: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl Memory {
    pub fn new(size: u64) -> Self {
        Self { size: RwLock::new(size), ..Self::default() }
    }

    pub fn recording(size: u64) -> Self {
        Self { calls: Some(Mutex::default()), ..Self::new(size) }
    }

    /// What was called since this was last asked.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.as_ref().unwrap().lock().unwrap())
    }

    fn note(&self, call: Call) {
        if let Some(calls) = &self.calls {
            calls.lock().unwrap().push(call);
        }
    }

    fn check(&self, at: u64, len: u64) -> Result<(), Errno> {
        let bad = self.bad.read().unwrap();
        let end = at.checked_add(len).filter(|end| *end <= *self.size.read().unwrap());
        let end = end.ok_or(Errno::EINVAL)?;
        if at < bad.end && bad.start < end { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The parts of a range in pages: which page, where in it, and where in the range.
    fn parts(at: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let within = (at + done) % PAGE;
            let bytes = (PAGE - within).min(len - done);
            let part = (
                (at + done) / PAGE,
                within as usize..(within + bytes) as usize,
                done as usize..(done + bytes) as usize,
            );
            done += bytes;
            (bytes > 0).then_some(part)
        })
    }

    fn clear(&self, at: u64, len: u64, keep: bool) -> Result<(), Errno> {
        self.check(at, len)?;
        let mut pages = self.pages.write().unwrap();
        for (page, within, _) in Self::parts(at, len) {
            if within.len() as u64 == PAGE && !keep {
                pages.remove(&page);
            } else if keep {
                let page = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
                page[within].fill(0);
            } else if let Some(page) = pages.get_mut(&page) {
                page[within].fill(0);
            }
        }
        Ok(())
    }
}

impl Device for Memory {
    fn size(&self) -> u64 {
        *self.size.read().unwrap()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.sizes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.note(Call::Read(at, into.len() as u64));
        self.check(at, into.len() as u64)?;
        let pages = self.pages.read().unwrap();
        for (page, within, range) in Self::parts(at, into.len() as u64) {
            match pages.get(&page) {
                Some(page) => into[range].copy_from_slice(&page[within]),
                None => into[range].fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8], fua: bool) -> Result<(), Errno> {
        self.note(Call::Write(at, from.len() as u64, fua));
        self.check(at, from.len() as u64)?;
        std::thread::sleep(self.write_time);
        let mut pages = self.pages.write().unwrap();
        for (page, within, range) in Self::parts(at, from.len() as u64) {
            let page = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            page[within].copy_from_slice(&from[range]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        self.note(Call::Flush);
        Ok(())
    }

    fn trim(&self, at: u64, len: u64, fua: bool) -> Result<(), Errno> {
        self.note(Call::Trim(at, len, fua));
        self.clear(at, len, false)
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno> {
        self.note(Call::Zero(at, len, how));
        if how.fast_zero && self.slow_zeroes {
            return Err(Errno::ENOTSUP);
        }
        self.clear(at, len, how.no_hole)
    }

    fn cache(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.note(Call::Cache(at, len));
        self.check(at, len)
    }

    fn status(
        &self,
        at: u64,
        len: u64,
        found: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        self.note(Call::Status(at, len));
        let pages = self.pages.read().unwrap();
        for (page, within, _) in Self::parts(at, len) {
            let hole = !pages.contains_key(&page);
            if found(Extent { len: within.len() as u64, hole, zero: hole }).is_break() {
                break;
            }
        }
        Ok(())
    }
}
