//! Where the bytes of an open file are.

use std::ffi::c_int;

use libsqlite3_sys as ffi;
use lode::File;
use parking_lot::Mutex;

use crate::error::{Outcome, code};
use crate::frames::{Frames, store};

/// An open file.
pub(crate) enum Body {
    /// In the pool, with or without a name.
    Pool(File),
    /// A database's log there.
    Log(Frames),
    /// A temporary file of a pool that can't be written.
    Memory(Mutex<Vec<u8>>),
    /// A log that a database in a pool that can't be written does not have: empty, and stays so.
    Nothing,
}

impl Body {
    /// Reads from `offset`; what is behind the end is zeros. Returns how much was there.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Outcome<usize> {
        let failed = ffi::SQLITE_IOERR_READ;
        let read = match self {
            Self::Pool(file) => file.read_at(into, offset).map_err(|error| code(&error, failed))?,
            Self::Log(log) => log.read(into, offset)?,
            Self::Memory(bytes) => {
                let bytes = bytes.lock();
                let there = bytes.get(index(offset, failed)?..).unwrap_or_default();
                let count = there.len().min(into.len());
                into.iter_mut().zip(there).for_each(|(to, from)| *to = *from);
                count
            }
            Self::Nothing => 0,
        };
        if let Some(rest) = into.get_mut(read..) {
            rest.fill(0);
        }
        Ok(read)
    }

    /// Writes all of `data` at `offset`, in one durable step; where there is no room for all of it,
    /// a part may be written.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Outcome<()> {
        let failed = ffi::SQLITE_IOERR_WRITE;
        match self {
            Self::Pool(file) => store(file, data, offset, failed),
            Self::Log(log) => log.write(data, offset),
            Self::Memory(bytes) => {
                let mut bytes = bytes.lock();
                let start = index(offset, failed)?;
                let end = start.checked_add(data.len()).ok_or(failed)?;
                if end > bytes.len() {
                    resize(&mut bytes, end)?;
                }
                if let Some(place) = bytes.get_mut(start..end) {
                    place.copy_from_slice(data);
                }
                Ok(())
            }
            Self::Nothing => Err(failed),
        }
    }

    /// Makes the file so long.
    pub(crate) fn truncate(&self, size: u64) -> Outcome<()> {
        let failed = ffi::SQLITE_IOERR_TRUNCATE;
        match self {
            Self::Pool(file) => file.set_len(size).map_err(|error| code(&error, failed)),
            Self::Log(log) => log.file(failed)?.set_len(size).map_err(|error| code(&error, failed)),
            Self::Memory(bytes) => resize(&mut bytes.lock(), index(size, failed)?),
            Self::Nothing if size == 0 => Ok(()),
            Self::Nothing => Err(failed),
        }
    }

    /// How long it is.
    pub(crate) fn size(&self) -> Outcome<u64> {
        let failed = ffi::SQLITE_IOERR_FSTAT;
        match self {
            Self::Pool(file) => file.len().map_err(|error| code(&error, failed)),
            Self::Log(log) => log.file(failed)?.len().map_err(|error| code(&error, failed)),
            Self::Memory(bytes) => Ok(bytes.lock().len() as u64),
            Self::Nothing => Ok(0),
        }
    }

    /// Nothing to do, but to say whether the pool is still all right.
    pub(crate) fn sync(&self) -> Outcome<()> {
        let failed = ffi::SQLITE_IOERR_FSYNC;
        match self {
            Self::Pool(file) => file.sync_all().map_err(|error| code(&error, failed)),
            Self::Log(log) => log.file(failed)?.sync_all().map_err(|error| code(&error, failed)),
            _ => Ok(()),
        }
    }

    /// Makes room for the file to grow to `size`, so that it is full now rather than in the middle.
    pub(crate) fn reserve(&self, size: u64) -> Outcome<()> {
        let file = match self {
            Self::Pool(file) => file,
            Self::Log(log) => log.file(ffi::SQLITE_IOERR_WRITE)?,
            _ => return Ok(()),
        };
        let now = self.size()?;
        if size <= now {
            return Ok(());
        }
        let failed = ffi::SQLITE_IOERR_WRITE;
        file.allocate(now, size - now, true).map_err(|error| code(&error, failed))
    }
}

/// Changes the length of a file in memory.
fn resize(bytes: &mut Vec<u8>, size: usize) -> Outcome<()> {
    let more = size.saturating_sub(bytes.len());
    bytes.try_reserve(more).map_err(|_| ffi::SQLITE_IOERR_NOMEM)?;
    bytes.resize(size, 0);
    Ok(())
}

fn index(offset: u64, failed: c_int) -> Outcome<usize> {
    usize::try_from(offset).map_err(|_| failed)
}
