//! The region of a raw device, with what of it is still in the caches.

use lode_pmem::{RawError, RawMapping, RawMemory, RawRegion, RawRule, WriteScheme};

use super::dirty::Dirty;

/// The region.
#[repr(C)]
pub(super) struct Store<M = RawMapping> {
    region: RawRegion<M>,
    /// Where stores wait in the caches for a barrier.
    dirty: Option<Dirty>,
}

impl<M: RawMemory> Store<M> {
    pub(super) fn new(region: RawRegion<M>) -> Self {
        let waits = region.scheme() == WriteScheme::Cached && !region.is_read_only();
        let dirty = waits.then(|| Dirty::new(region.bytes()));
        Self { region, dirty }
    }

    pub(super) fn region(&self) -> &RawRegion<M> {
        &self.region
    }

    /// Whether a rule is kept: it is, but where that is to be noticed.
    #[inline(always)]
    pub(super) fn keeps(&self, rule: RawRule) -> bool {
        self.region.memory().keeps(rule)
    }

    /// Writes, if `begin` lets it, which is asked when the region is open: gives what that gave.
    #[inline]
    pub(super) fn write_if<P>(
        &self,
        at: u64,
        bytes: &[u8],
        begin: impl FnOnce() -> Option<P>,
    ) -> Result<Option<P>, RawError> {
        let pass = self.region.write_if(at, bytes, begin)?;
        if pass.is_some() {
            self.stored(at, bytes.len() as u64);
        }
        Ok(pass)
    }

    /// Parts one behind the other, `len` bytes together.
    pub(super) fn write_run<'b>(
        &self,
        at: u64,
        len: u64,
        parts: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), RawError> {
        let written = self.region.write_run(at, len, parts);
        // (Some of it may have been.)
        self.stored(at, len);
        written
    }

    pub(super) fn zero(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.region.zero(at, len)?;
        self.stored(at, len);
        Ok(())
    }

    #[inline]
    fn stored(&self, at: u64, len: u64) {
        if let Some(dirty) = &self.dirty
            && self.keeps(RawRule::StoresNoted)
        {
            dirty.mark(at, len);
        }
    }

    /// Makes all durable that was written before; nobody writes meanwhile.
    ///
    /// # Errors
    /// [`RawError::Cut`], once, where some of it was cut off: all else is durable. [`RawError::Unwritten`], [`RawError::Mapping`].
    pub(super) fn sync(&self) -> Result<(), RawError> {
        let mut lost = Ok(());
        if let Some(dirty) = &self.dirty {
            let bytes = self.region.bytes();
            dirty.take(|at, len| match self.region.write_back(at, len.min(bytes - at)) {
                Err(cut @ RawError::Cut { .. }) => {
                    lost = Err(cut);
                    Ok(())
                }
                other => other,
            })?;
        }
        self.region.sync()?;
        lost
    }
}
