//! Size, space and holes; copying inside the pool.

use lode_engine::{Error as EngineError, Fallocate, SetAttr};
use lode_posix::write::write_some;

use super::File;
use crate::error::{Cause, Result};

/// Bytes that a copy moves at a time.
const PIECE: u64 = 1 << 20;

type Outcome<T> = std::result::Result<T, Cause>;

impl File {
    /// Cuts the file, or lets it grow by a hole.
    ///
    /// # Errors
    /// As `ftruncate(2)`: `EINVAL` for a file that is not open for writing.
    pub fn set_len(&self, size: u64) -> Result<()> {
        if i64::try_from(size).is_err() || !self.open.write {
            return Err(Cause::Number(libc::EINVAL).into());
        }
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.open.enter()?.setattr(self.open.ino, &changes)?;
        Ok(())
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// `EIO` after a panic, or for damage.
    #[allow(clippy::len_without_is_empty)] // A question that can fail.
    pub fn len(&self) -> Result<u64> {
        Ok(self.len_or_cause()?)
    }

    pub(crate) fn len_or_cause(&self) -> Outcome<u64> {
        Ok(self.open.enter()?.getattr(self.open.ino)?.size)
    }

    /// Backs bytes with pages, so that writing them later needs no space; the file grows unless it
    /// is to keep its size.
    ///
    /// # Errors
    /// As `fallocate(2)`.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.fallocate(Fallocate::Allocate { keep_size }, offset, len)
    }

    /// Makes bytes a hole, whose pages become free; the size stays.
    ///
    /// # Errors
    /// As `fallocate(2)`.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Fallocate::Punch, offset, len)
    }

    /// Makes bytes zeros; the file grows unless it is to keep its size.
    ///
    /// # Errors
    /// As `fallocate(2)`.
    pub fn zero_range(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.fallocate(Fallocate::Zero { keep_size }, offset, len)
    }

    fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 || i64::try_from(offset).is_err() || i64::try_from(len).is_err() {
            return Err(Cause::Number(libc::EINVAL).into());
        }
        Ok(self.open.writable()?.fallocate(self.open.ino, how, offset, len)?)
    }

    /// The first offset at or behind `offset` that has data.
    ///
    /// # Errors
    /// As `lseek(2)`: `ENXIO` where there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        Ok(self.next(offset, true)?)
    }

    /// The first offset at or behind `offset` that is in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// As `lseek(2)`: `ENXIO` behind the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        Ok(self.next(offset, false)?)
    }

    fn next(&self, offset: u64, data: bool) -> Outcome<u64> {
        match self.open.enter()?.seek(self.open.ino, offset, data) {
            Err(EngineError::NotFound) => Err(Cause::Number(libc::ENXIO)),
            found => Ok(found?),
        }
    }

    /// Copies up to `len` bytes at `offset` to `to_offset` of another file of this pool, or of this
    /// one; each piece of 1 MiB is one atomic write. Returns how much: fewer at the end of the
    /// file, or where there is no more room.
    ///
    /// # Errors
    /// As `copy_file_range(2)`: `EINVAL` where the ranges overlap in one file, `EXDEV` for a file of
    /// another pool.
    pub fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        Ok(self.copy_some(offset, to, to_offset, len)?)
    }

    fn copy_some(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Outcome<u64> {
        let (source, target) = (self.open.readable()?, to.open.writable()?);
        if to.open.append {
            return Err(Cause::Number(libc::EBADF));
        }
        if !std::sync::Arc::ptr_eq(&self.open.inner, &to.open.inner) {
            return Err(Cause::Number(libc::EXDEV));
        }
        let ends = (offset.checked_add(len), to_offset.checked_add(len));
        let (Some(end), Some(to_end)) = ends else { return Err(EngineError::FileTooLarge.into()) };
        if self.is_same(to) && offset < to_end && to_offset < end {
            return Err(EngineError::Invalid.into());
        }
        let left = source.getattr(self.open.ino)?.size.saturating_sub(offset).min(len);
        let mut buffer = vec![0; left.min(PIECE) as usize];
        let mut copied = 0;
        while copied < left {
            let piece = buffer.len().min((left - copied) as usize);
            let piece = buffer.get_mut(..piece).unwrap_or_default();
            let read = source.read_quietly(self.open.ino, offset + copied, piece)?;
            let piece = piece.get(..read).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            let write = |at, data: &[u8]| target.write(to.open.ino, at, data);
            match write_some(to_offset + copied, piece, write) {
                Ok(written) => copied += written as u64,
                // What was copied before counts; the next call will meet the error.
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(copied)
    }

    /// Copies all data of this file to an empty one, and the size; holes stay holes.
    pub(crate) fn copy_data(&self, to: &Self) -> Result<u64> {
        let size = self.len()?;
        let mut at = 0;
        while at < size {
            let from = match self.next(at, true) {
                Err(Cause::Number(libc::ENXIO)) => break,
                found => found?.min(size),
            };
            let end = self.next(from, false)?.min(size);
            let mut done = from;
            while done < end {
                match self.copy_range(done, to, done, end - done)? {
                    // It was cut meanwhile.
                    0 => return to.len(),
                    copied => done += copied,
                }
            }
            at = end;
        }
        if to.len()? < size {
            to.set_len(size)?;
        }
        Ok(size)
    }
}
