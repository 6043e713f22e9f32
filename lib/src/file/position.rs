//! Reading and writing at the position, which moves: std's traits.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{File, Open};
use crate::error::{Cause, Error};

/// The largest position that there is.
const MOST: u64 = i64::MAX as u64;

impl Open {
    fn read(&self, into: &mut [u8]) -> Result<usize, Cause> {
        let mut position = self.position.lock();
        let read = self.read_some(into, *position)?;
        *position = position.saturating_add(read as u64);
        Ok(read)
    }

    fn write(&self, data: &[u8]) -> Result<usize, Cause> {
        let mut position = self.position.lock();
        let (at, written) = self.write_some(data, *position)?;
        // Nothing is written nowhere: then the position stays.
        if written > 0 {
            *position = at.saturating_add(written as u64);
        }
        Ok(written)
    }

    fn seek(&self, to: SeekFrom) -> Result<u64, Cause> {
        let mut position = self.position.lock();
        let sought = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.enter()?.getattr(self.ino)?.size.checked_add_signed(by),
        };
        let sought = sought.filter(|&offset| offset <= MOST);
        *position = sought.ok_or(Cause::Number(libc::EINVAL))?;
        Ok(*position)
    }
}

fn told<T>(done: Result<T, Cause>) -> io::Result<T> {
    done.map_err(|cause| Error::from(cause).into())
}

impl Read for &File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        told(self.open.read(into))
    }
}

impl Write for &File {
    /// One atomic, durable step: see [`File::write_at`].
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        told(self.open.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        told(self.open.seek(to))
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        told(self.open.read(into))
    }
}

impl Write for File {
    /// One atomic, durable step: see [`File::write_at`].
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        told(self.open.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        told(self.open.seek(to))
    }
}
