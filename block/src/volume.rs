//! A volume, read and written by sectors.
//!
//! Guarantees: a sector has what was written to it last, wholly, also after a crash in the middle of a write: none is ever torn, and
//! what a call has returned of is durable. A write goes through the pool's journal of sectors where that is to be had; a long one is cut into several at bounds of
//! sectors, as nobody was promised more.

use std::sync::Arc;

use lode_engine::{Error as EngineError, Fallocate, Handle, Host, Pool};
use lode_pmem::Medium;

use crate::list::info;
use crate::space;
use crate::{Error, Result, Settings};

/// A part of a volume that is all of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// It has pages, or else it reads as zeros.
    pub has_pages: bool,
}

/// A volume that is open.
pub struct Volume<M: Medium, H: Host> {
    pool: Arc<Pool<M, H>>,
    file: Option<Handle<H>>,
    settings: Settings,
}

impl<M: Medium, H: Host> Volume<M, H> {
    /// Opens a volume of a pool by its name.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAVolume`], [`Error::Pool`].
    pub fn open(pool: Arc<Pool<M, H>>, name: &[u8]) -> Result<Self> {
        let found = info(&pool, name)?;
        let file = pool.hold(found.ino)?;
        Ok(Self { pool, file: Some(file), settings: found.settings })
    }

    fn file(&self) -> Result<&Handle<H>> {
        self.file.as_ref().ok_or(Error::Pool(EngineError::Stale))
    }

    /// What it is told to be.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.pool.is_read_only()
    }

    /// Its size in bytes: it may have another one since it was opened.
    ///
    /// # Errors
    /// [`Error::Pool`].
    pub fn bytes(&self) -> Result<u64> {
        let size = self.pool.size_held(self.file()?)?;
        Ok(size - size % self.settings.sector.bytes())
    }

    /// Whether these are whole sectors that it has.
    fn check(&self, at: u64, len: u64) -> Result<()> {
        let end = self.check_whole(at, len)?;
        if end <= self.bytes()? { Ok(()) } else { Err(Error::Outside { at, len }) }
    }

    /// Whether these are whole sectors of a volume that is large enough; where they end.
    fn check_whole(&self, at: u64, len: u64) -> Result<u64> {
        let is_whole = self.settings.sector.divides(at | len);
        at.checked_add(len).filter(|_| is_whole).ok_or(Error::Outside { at, len })
    }

    /// Reads sectors.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Pool`].
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        // (Where it ends the reading tells: what is behind its last whole sector is never all of one.)
        self.check_whole(at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        let read = self.pool.read_held_quietly(self.file()?, at, into)?;
        if read == into.len() { Ok(()) } else { self.read_rest(at, into, read) }
    }

    /// Reads what is left, where `read` bytes were read the last time.
    #[cold]
    fn read_rest(&self, at: u64, into: &mut [u8], mut read: usize) -> Result<()> {
        let mut done = 0;
        loop {
            if read == 0 {
                // It has become smaller meanwhile.
                return Err(Error::Outside { at, len: into.len() as u64 });
            }
            done += read;
            let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) else {
                return Ok(());
            };
            read = self.pool.read_held_quietly(self.file()?, at + done as u64, rest)?;
        }
    }

    /// Writes sectors: each of them wholly, durable when this returns.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Pool`]: then sectors from some on are not written.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        if len == 0 {
            return self.check(at, len);
        }
        // (Whether it has all of them the writing tells, which looks at the file anyway.)
        let end = self.check_whole(at, len)?;
        let (file, sector) = (self.file()?, self.settings.sector.bytes());
        let mut is_inside = true;
        space::in_parts((at, end), sector, |part, len| {
            let bytes = space::part_of(bytes, part - at, len);
            is_inside = is_inside && self.pool.write_sectors_within(file, part, bytes, end)?;
            Ok(())
        })?;
        if is_inside { Ok(()) } else { Err(Error::Outside { at, len }) }
    }

    /// Waits until all that was written is durable: it is.
    ///
    /// # Errors
    /// [`Error::Pool`]: `Unwritten` where the memory has failed.
    pub fn flush(&self) -> Result<()> {
        Ok(self.pool.fsync(self.file()?.ino())?)
    }

    /// Says that nobody wants these sectors any more. A thin volume gives their pages back, and they read as zeros; of another one
    /// nothing changes.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Pool`].
    pub fn discard(&self, at: u64, len: u64) -> Result<()> {
        self.check(at, len)?;
        if self.settings.is_thin { self.punch(at, len) } else { Ok(()) }
    }

    /// Makes sectors read as zeros; a thin volume gives their pages back, unless they are to stay.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Pool`].
    pub fn zero(&self, at: u64, len: u64, keeps_pages: bool) -> Result<()> {
        self.check(at, len)?;
        match self.settings.is_thin && !keeps_pages {
            true => self.punch(at, len),
            false => {
                Ok(space::zero(&self.pool, self.file()?.ino(), (at, at + len), self.settings)?)
            }
        }
    }

    fn punch(&self, at: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        Ok(self.pool.fallocate(self.file()?.ino(), Fallocate::Punch, at, len)?)
    }

    /// Tells of which kinds the bytes from `at` on are, until `each` wants no more or all `len` are told.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Pool`].
    pub fn extents(&self, at: u64, len: u64, each: &mut dyn FnMut(Extent) -> bool) -> Result<()> {
        self.check(at, len)?;
        let (mut at, end) = (at, at + len);
        while at < end {
            let data = self.seek(at, true, end)?;
            let (next, has_pages) =
                if data > at { (data, false) } else { (self.seek(at, false, end)?, true) };
            // (What changes meanwhile must not keep this from its end.)
            let next = next.max(at + self.settings.sector.bytes()).min(end);
            if !each(Extent { len: next - at, has_pages }) {
                return Ok(());
            }
            at = next;
        }
        Ok(())
    }

    fn seek(&self, at: u64, data: bool, end: u64) -> Result<u64> {
        match self.pool.seek(self.file()?.ino(), at, data) {
            // Nothing more of it.
            Err(EngineError::NotFound) => Ok(end),
            found => Ok(found?.min(end)),
        }
    }
}

impl<M: Medium, H: Host> Drop for Volume<M, H> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.pool.let_go(file);
        }
    }
}
