//! A whole region as one block device.
//!
//! Guarantees: a read gives what was written last; [`RawDevice::flush`] returns when all writes that ended before it are
//! durable. A sector that is written when the power fails may be torn: volumes of a pool are for those who can't bear that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lode_pmem::{
    ProtectIo, RawError, RawMapping, RawMemory, RawPlace, RawRegion, RawRule, RegionError,
};

use super::batch::Batch;
use super::gate::Gate;
use super::settings::{PAGE, Protection, RawSettings};
use super::store::Store;
use crate::Sector;

/// A region that is written in place, sector by sector.
// (In this order, in one line of the cache: what each access looks at.)
#[repr(C, align(64))]
pub struct RawDevice<M = RawMapping> {
    // First: its threads end before the region goes.
    batch: Option<Box<Batch<M>>>,
    store: Arc<Store<M>>,
    sector: Sector,
    gate: Gate,
    protection: Protection,
    path: PathBuf,
    /// Whether somebody was told that the file was made shorter, and that it has no space.
    pub(super) cut_told: AtomicBool,
    pub(super) full_told: AtomicBool,
}

/// Zeros that are written into buffers at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl RawDevice {
    /// Opens a file or DAX device, all of it.
    ///
    /// # Errors
    /// Those of [`RawRegion::open`]; threads can't be started.
    pub fn open(path: impl AsRef<Path>, settings: &RawSettings) -> Result<Self, RegionError> {
        let path = path.as_ref();
        let region = RawRegion::open(path, &settings.options())?;
        let each = region.protect();
        Self::over(region, each, path, settings)
    }
}

impl<M: RawMemory + 'static> RawDevice<M> {
    /// A device of a region that is open already, which `each` keeps strays out of where nothing is deferred.
    ///
    /// # Errors
    /// Threads can't be started.
    pub fn over(
        region: RawRegion<M>,
        each: ProtectIo,
        path: &Path,
        settings: &RawSettings,
    ) -> Result<Self, RegionError> {
        let store = Arc::new(Store::new(region));
        let (batch, protection) = match settings.protection {
            Some(Protection::Batch(batching)) if !settings.read_only => {
                let started = Batch::start(Arc::clone(&store), batching);
                let doing = "starting the syncers of";
                let path = path.to_owned();
                let started = started.map_err(|source| RegionError::Io { doing, path, source })?;
                (Some(Box::new(started)), Protection::Batch(batching))
            }
            _ => (None, Protection::Each(each)),
        };
        let (gate, sector) = (Gate::default(), settings.sector);
        let path = path.to_owned();
        let (cut_told, full_told) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { batch, store, gate, sector, protection, path, cut_told, full_told })
    }

    /// The file or device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The region that it is of.
    pub fn region(&self) -> &RawRegion<M> {
        self.store.region()
    }

    /// What keeps strays out.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Its blocks.
    pub fn sector(&self) -> Sector {
        self.sector
    }

    /// Bytes in it, whole sectors and pages.
    pub fn bytes(&self) -> u64 {
        let bytes = self.region().bytes();
        bytes - bytes % PAGE
    }

    /// Whether what was written is durable when the call returns: or else at the next [`RawDevice::flush`].
    pub fn is_durable_when_written(&self) -> bool {
        self.batch.is_none() && self.region().is_durable_when_written()
    }

    fn check(&self, at: u64, len: u64) -> Result<(), RawError> {
        let is_whole = self.sector.divides(at | len);
        match at.checked_add(len) {
            Some(end) if is_whole && end <= self.bytes() => Ok(()),
            _ => Err(RawError::Outside { at, len }),
        }
    }

    fn check_write(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.check(at, len)?;
        match self.region().is_read_only() {
            true => Err(RawError::ReadOnly),
            false => Ok(()),
        }
    }

    /// Reads sectors.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::Media`], [`RawError::Cut`], [`RawError::Mapping`].
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        self.region().prefetch(at, into.len() as u64);
        self.check(at, into.len() as u64)?;
        match &self.batch {
            Some(batch) => batch.read(at, into),
            None => self.region().read(at, into),
        }
    }

    /// Writes sectors.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::ReadOnly`], [`RawError::Cut`], [`RawError::NoSpace`], [`RawError::Mapping`], [`RawError::Unwritten`]; [`RawError::Media`] where what else is in
    /// a page that waits in a buffer can't be loaded.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RawError> {
        self.check_write(at, bytes.len() as u64)?;
        let memory = self.region().memory();
        if let Some(batch) = &self.batch {
            let _pass = self.gate.enter();
            let written = batch.write(at, bytes);
            memory.reached(RawPlace::WriteEnds);
            return written;
        }
        // (To open the region is work that need not wait for what this thread has stored before, and to enter waits for that.)
        while self.write_if_open(at, bytes)?.is_none() {
            self.gate.wait();
        }
        Ok(())
    }

    /// Writes, unless a barrier is under way.
    #[inline]
    fn write_if_open(&self, at: u64, bytes: &[u8]) -> Result<Option<()>, RawError> {
        let pass = self.store.write_if(at, bytes, || self.gate.try_enter())?;
        Ok(pass.map(|_pass| self.region().memory().reached(RawPlace::WriteEnds)))
    }

    /// Makes sectors zeros.
    ///
    /// # Errors
    /// As of [`RawDevice::write`].
    pub fn zero(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.check_write(at, len)?;
        let _pass = self.gate.enter();
        let Some(batch) = &self.batch else { return self.store.zero(at, len) };
        for done in (0..len).step_by(ZEROS.len()) {
            let part = ZEROS.get(..(len - done) as usize).unwrap_or(&ZEROS);
            batch.write(at + done, part)?;
        }
        Ok(())
    }

    /// The barrier: waits for what is in flight, holds what comes, and makes all durable that was written before.
    ///
    /// # Errors
    /// [`RawError::Unwritten`], [`RawError::Cut`], [`RawError::Mapping`].
    pub fn flush(&self) -> Result<(), RawError> {
        let memory = self.region().memory();
        let _closed = match self.store.keeps(RawRule::BarrierWaits) {
            true => Some(self.gate.close(|| memory.reached(RawPlace::BarrierWaits))),
            false => None,
        };
        if let Some(batch) = &self.batch
            && self.store.keeps(RawRule::BarrierDrains)
        {
            batch.drain()?;
        }
        self.store.sync()
    }

    /// Writes sectors that are durable when this returns.
    ///
    /// # Errors
    /// As of [`RawDevice::write`] and [`RawDevice::flush`].
    pub fn write_durably(&self, at: u64, bytes: &[u8]) -> Result<(), RawError> {
        self.write(at, bytes)?;
        self.settle()
    }

    /// A flush, where what was written needs one.
    pub(super) fn settle(&self) -> Result<(), RawError> {
        let is_settled =
            self.is_durable_when_written() || !self.store.keeps(RawRule::DurableSettled);
        if is_settled { Ok(()) } else { self.flush() }
    }

    /// All durable, and nobody uses it any more.
    ///
    /// # Errors
    /// As of [`RawDevice::flush`].
    pub fn close(self) -> Result<(), RawError> {
        if self.region().is_read_only() { Ok(()) } else { self.flush() }
    }
}
