//! Reading and writing at offsets.

use lode_posix::write::{append_some, write_some};

use super::{File, Open};
use crate::access::Pass;
use crate::error::{Cause, Result};

type Outcome<T> = std::result::Result<T, Cause>;

impl File {
    /// Reads up to `into.len()` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// As `pread(2)`.
    #[inline]
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.read_some_at(into, offset)?)
    }

    /// Reads exactly `into.len()` bytes from `offset`.
    ///
    /// # Errors
    /// As [`File::read_at`]; [`std::io::ErrorKind::UnexpectedEof`] where there are not so many.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        let read = self.read_some_at(into, offset)?;
        if read < into.len() { Err(Cause::Ended.into()) } else { Ok(()) }
    }

    /// Writes `data` at `offset` in one atomic, durable step, whatever its length. Where there is not
    /// room for all of it, its beginning is written so; returns how much. (To a file that was opened to
    /// append, at its end: so does the system.) The times of a file that several threads overwrite again and again
    /// move in ticks of some milliseconds, as other file systems' do.
    ///
    /// # Errors
    /// As `pwrite(2)`: `ENOSPC` where there is room for nothing.
    #[inline]
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        Ok(self.open.write_some(data, offset)?.1)
    }

    /// Writes all of `data` at `offset`: in one atomic step where there is room, else in several.
    ///
    /// # Errors
    /// As [`File::write_at`]; a part may have been written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.open.write_all(data, offset)?)
    }

    /// Writes all of `data` at the end of the file, in one atomic, durable step, or nothing. Returns
    /// the offset it is at. Appends of many threads and handles never overlap.
    ///
    /// # Errors
    /// As `write(2)`.
    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        Ok(self.open.writable()?.append_held(self.open.held()?, data)?)
    }

    /// Nothing to do: what has returned is durable. Says whether the pool is still all right.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn sync_all(&self) -> Result<()> {
        Ok(self.open.enter()?.fsync(self.open.ino)?)
    }

    /// As [`File::sync_all`].
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    #[inline]
    pub(crate) fn read_some_at(&self, into: &mut [u8], offset: u64) -> Outcome<usize> {
        self.open.read_some(into, offset)
    }

    /// Writes all of `data` behind what is there.
    pub(crate) fn write_all_at_end(&self, data: &[u8]) -> Outcome<()> {
        let pass = self.open.writable()?;
        let mut rest = data;
        while !rest.is_empty() {
            let (_, written) = self.open.append_some(&pass, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

impl Open {
    #[inline]
    pub(super) fn read_some(&self, into: &mut [u8], offset: u64) -> Outcome<usize> {
        // (While it is read the file is held, and who has to answer a store may need it.)
        if lode_pmem::stores_may_wait(into) {
            self.read_beside(into, offset)
        } else {
            self.read_straight(into, offset)
        }
    }

    #[inline]
    fn read_straight(&self, into: &mut [u8], offset: u64) -> Outcome<usize> {
        let pass = self.readable()?;
        let read = match self.quiet {
            true => pass.read_held_quietly(self.held()?, offset, into),
            false => pass.read_held(self.held()?, offset, into),
        };
        Ok(read?)
    }

    /// Reads to memory of its own first, as what it is for is a map.
    #[cold]
    fn read_beside(&self, into: &mut [u8], offset: u64) -> Outcome<usize> {
        let mut beside = Vec::new();
        beside.try_reserve_exact(into.len()).map_err(lode_engine::Error::from)?;
        beside.resize(into.len(), 0);
        let read = self.read_straight(&mut beside, offset)?;
        for (to, from) in into.iter_mut().zip(&beside).take(read) {
            *to = *from;
        }
        Ok(read)
    }

    /// Writes what there is room for; returns where, and how much.
    #[inline]
    pub(super) fn write_some(&self, data: &[u8], offset: u64) -> Outcome<(u64, usize)> {
        let pass = self.writable()?;
        if self.append {
            return self.append_some(&pass, data);
        }
        let held = self.held()?;
        Ok((offset, write_some(offset, data, |at, data| pass.write_held(held, at, data))?))
    }

    fn append_some(&self, pass: &Pass<'_>, data: &[u8]) -> Outcome<(u64, usize)> {
        let held = self.held()?;
        let end = || Ok(pass.getattr_held(held)?.size);
        Ok(append_some(data, end, |data| pass.append_held(held, data))?)
    }

    fn write_all(&self, data: &[u8], offset: u64) -> Outcome<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (_, written) = self.write_some(rest, at)?;
            at = at.saturating_add(written as u64);
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}
