//! Loads of file data: what they give is compared with its checksums.
//!
//! The bytes that the caller gets are compared, not others that were loaded a second time. A strip of which
//! only a part is wanted is loaded around that part, a little at a time.

use lode_pmem::{MediaError, Medium, crc32c};

use super::crcs::{Crc, kept};
use crate::layout::{CRC_BYTES, CrcTable, LINE, STRIP_LOG2_LEAST};
use crate::store::Store;
use crate::{Error, Host, Ino, PAGE_BYTES, Result, Rule};

/// Bytes loaded at a time of strips that nobody asked for.
const CHUNK: usize = 256;

/// Lines that are asked for before anything else is done.
const LINES_AHEAD: u64 = 8;

/// Bytes of the strips of which a part is loaded with the rest at once: the smallest, so that little of the stack is used.
const PART_WHOLE: u64 = 1 << STRIP_LOG2_LEAST;

/// Whose data is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    pub(crate) ino: Ino,
    /// Where in the pool the file ends, if it ends in this run of its pages: what is behind that in its page is
    /// nothing yet, and mostly zero.
    pub(crate) end: u64,
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Loads bytes of somebody's file data from offset `at` of the pool on.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] where they are not those that were stored, at level `full`; [`crate::Error::Media`].
    #[inline]
    pub(crate) fn load_data(&self, of: Whose, at: u64, into: &mut [u8]) -> Result<()> {
        if self.geometry.strips.are_kept() {
            return self.load_kept(Some(of), at, into);
        }
        let loaded = self.door.load(at, into);
        if loaded.is_ok() && !self.bad.any() {
            return Ok(());
        }
        self.judge_loaded(Some(of), at, into, loaded)
    }

    /// Loads bytes that may be changed meanwhile, or be nobody's data any more; says whether they are good, as far as anything tells. Nothing is
    /// done about those that are not.
    #[inline]
    pub(crate) fn load_quietly(&self, at: u64, into: &mut [u8]) -> bool {
        match self.geometry.strips.are_kept() {
            true => self.load_kept(None, at, into).is_ok(),
            false => self.door.load(at, into).is_ok(),
        }
    }

    /// Asks for the beginning of `len` bytes that are loaded next, and for what they are compared with. Where they follow those that
    /// were loaded last they are there, and the beginning of the next ones is asked for: processors themselves begin anew with each page.
    #[inline]
    pub(crate) fn prefetch_data(&self, at: u64, len: u64, follows: bool) {
        let are_kept = self.geometry.strips.are_kept();
        if follows && len <= PAGE_BYTES && !are_kept {
            return self.door.prefetch_lines(at + len, len / LINE / 2);
        }
        self.door.prefetch_lines(at, len.div_ceil(LINE).min(LINES_AHEAD));
        if are_kept {
            self.door.prefetch(self.crcs_at(at, CrcTable::First));
        }
    }

    /// What has been loaded, or not, of bytes that nothing is compared with, in a pool with bad memory; and what could not
    /// be loaded of others.
    #[cold]
    #[inline(never)]
    fn judge_loaded(
        &self,
        of: Option<Whose>,
        at: u64,
        into: &mut [u8],
        loaded: core::result::Result<(), MediaError>,
    ) -> Result<()> {
        let Some(of) = of else { return Ok(loaded?) };
        if let Err(MediaError::Poisoned { at }) = loaded {
            // (What is not known for want of memory is met again.)
            let _ = self.met_bad(at);
        }
        if !self.geometry.strips.are_kept() || self.host.leaves_out(Rule::StripsVerified) {
            loaded?;
            let lost = self.bad.first(at, into.len() as u64);
            return lost.map_or(Ok(()), |at| Err(Error::Media { at }));
        }
        match loaded {
            Err(MediaError::Poisoned { .. }) => self.load_strips(of, at, into),
            loaded => Ok(loaded?),
        }
    }

    /// Loads bytes that have checksums. Of nobody, what is not good is an error at once.
    #[inline]
    fn load_kept(&self, of: Option<Whose>, at: u64, into: &mut [u8]) -> Result<()> {
        if self.host.leaves_out(Rule::StripsVerified) {
            let loaded = self.door.load(at, into);
            return self.judge_loaded(of, at, into, loaded);
        }
        let len = into.len() as u64;
        // (What is asked for most: whole strips of one page.)
        let is_whole = (at | len) & (self.geometry.strips.bytes() - 1) == 0;
        if is_whole && at % PAGE_BYTES + len <= PAGE_BYTES {
            self.load_whole(of, at, into, 0)
        } else {
            self.load_pieces(of, at, into)
        }
    }

    /// The same of any: what is no whole strip by itself, whole ones as far as their checksums lie side by side.
    #[inline(never)]
    fn load_pieces(&self, of: Option<Whose>, at: u64, into: &mut [u8]) -> Result<()> {
        let strips = self.geometry.strips;
        let strip = strips.bytes();
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let skip = at % strip;
            let whole = rest.len() as u64 / strip * strip;
            let (len, is_whole) = match (skip, whole) {
                (0, 1..) => {
                    let together = strips.together(at / PAGE_BYTES) * PAGE_BYTES - at % PAGE_BYTES;
                    (whole.min(together), true)
                }
                _ => ((strip - skip).min(rest.len() as u64), false),
            };
            let (part, more) = rest.split_at_mut(len as usize);
            if is_whole {
                self.load_whole(of, at, part, more.len() as u64)?;
            } else if !self.load_part(at, part) {
                match self.door.load(at, part) {
                    Ok(()) => self.verify_part(of, at, part)?,
                    loaded => self.judge_loaded(of, at, part, loaded)?,
                }
            }
            (at, rest) = (at + len, more);
        }
        Ok(())
    }

    /// Loads a part of a small strip by loading all of it; says whether that is good, and the bytes are there.
    #[inline(never)]
    fn load_part(&self, at: u64, part: &mut [u8]) -> bool {
        let strip = self.geometry.strips.bytes();
        if strip != PART_WHOLE {
            return false;
        }
        let (start, skip) = (at - at % strip, (at % strip) as usize);
        let crcs = self.crcs_at(start, CrcTable::First);
        // (What the bytes are compared with is asked for before they are.)
        self.door.prefetch(crcs);
        let mut whole = [0; PART_WHOLE as usize];
        let is_good =
            self.door.load_compared(start, &mut whole, strip as usize, crcs, 0) == Ok(true);
        let bytes = whole.get(skip..skip + part.len()).filter(|_| is_good);
        bytes.map(|bytes| part.copy_from_slice(bytes)).is_some()
    }

    /// Loads strip by strip, where some can't be loaded.
    #[cold]
    #[inline(never)]
    fn load_strips(&self, of: Whose, at: u64, into: &mut [u8]) -> Result<()> {
        let strip = self.geometry.strips.bytes();
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let len = (strip - at % strip).min(rest.len() as u64);
            let (part, more) = rest.split_at_mut(len as usize);
            match self.door.load(at, part) {
                Ok(()) => self.verify_part(Some(of), at, part)?,
                Err(_) => self.doubt(of, at, part, None)?,
            }
            (at, rest) = (at + len, more);
        }
        Ok(())
    }

    /// Loads whole strips whose checksums lie side by side. The `ahead` bytes behind them are loaded next.
    #[inline]
    fn load_whole(&self, of: Option<Whose>, at: u64, bytes: &mut [u8], ahead: u64) -> Result<()> {
        // What the bytes are compared with is asked for before they are, and is there when they are: a load that waited for it would
        // keep the processor from looking ahead.
        let crcs = self.crcs_at(at, CrcTable::First);
        self.door.prefetch(crcs);
        let strip = self.geometry.strips.bytes() as usize;
        match self.door.load_compared(at, bytes, strip, crcs, ahead) {
            Ok(true) => Ok(()),
            Ok(false) => self.doubt_some(of, at, bytes),
            Err(error) => self.judge_loaded(of, at, bytes, Err(error)),
        }
    }

    /// Whole strips, not all of which are as the first table says, as far as it could be loaded; or there is one whose checksum is not
    /// kept as it is.
    #[cold]
    #[inline(never)]
    fn doubt_some(&self, of: Option<Whose>, at: u64, bytes: &mut [u8]) -> Result<()> {
        let strip = self.geometry.strips.bytes();
        for (index, strip_bytes) in bytes.chunks_exact_mut(strip as usize).enumerate() {
            let (at, found) = (at + index as u64 * strip, kept(crc32c(0, strip_bytes)));
            let mut wanted = [Crc::default()];
            let told = self.load_crcs(at, CrcTable::First, &mut wanted).is_ok();
            if !told || wanted != [found] {
                self.doubt(of.ok_or(Error::Media { at })?, at, strip_bytes, Some(found))?;
            }
        }
        Ok(())
    }

    /// A part of a strip: the rest of it is loaded, too.
    fn verify_part(&self, of: Option<Whose>, at: u64, bytes: &mut [u8]) -> Result<()> {
        let strip = self.geometry.strips.bytes();
        let (start, end) = (at - at % strip, at + bytes.len() as u64);
        let before = self.crc_on(0, start, at);
        let crc = before.and_then(|crc| self.crc_on(crc32c(crc, bytes), end, start + strip));
        let found = crc.ok().map(kept);
        let mut wanted = [Crc::default()];
        match self.load_crcs(start, CrcTable::First, &mut wanted) {
            Ok(()) if found.is_some_and(|found| wanted == [found]) => Ok(()),
            _ => self.doubt(of.ok_or(Error::Media { at })?, at, bytes, found),
        }
    }

    /// Continues a checksum over what is loaded from `from .. to`.
    pub(super) fn crc_on(
        &self,
        crc: u32,
        from: u64,
        to: u64,
    ) -> core::result::Result<u32, MediaError> {
        let (mut crc, mut at) = (crc, from);
        let mut chunk = [0; CHUNK];
        while at < to {
            let len = (to - at).min(CHUNK as u64);
            let bytes = chunk.get_mut(..len as usize).unwrap_or_default();
            self.door.load(at, bytes)?;
            crc = crc32c(crc, bytes);
            at += len;
        }
        Ok(crc)
    }

    /// Loads the checksums of the strips from `at` on, which lie side by side.
    pub(super) fn load_crcs(
        &self,
        at: u64,
        table: CrcTable,
        into: &mut [Crc],
    ) -> core::result::Result<(), MediaError> {
        self.door.load(self.crcs_at(at, table), into.as_flattened_mut())
    }

    /// Offset of the checksum of the strip at `at`.
    pub(super) fn crcs_at(&self, at: u64, table: CrcTable) -> u64 {
        let strips = self.geometry.strips;
        let skip = at % PAGE_BYTES / strips.bytes() * CRC_BYTES;
        strips.crcs_at(at / PAGE_BYTES, table) + skip
    }
}
