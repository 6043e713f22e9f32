//! File data: read, write, space, copying inside the pool.

use lode_engine::{Error, Fallocate, Host, Ino};
use lode_pmem::Medium;
use lode_posix::rights::{CAPABILITY, set_ids};
use lode_posix::write::{write_all, write_some};

use super::{MAX_WRITE, Work};
use crate::wire::{Answer, Errno, NewData, NodeId, Scratch};

/// Most bytes that one request copies: it must not keep a server thread for long.
const MAX_COPY: u64 = 32 << 20;

impl<M: Medium, H: Host> Work<'_, M, H> {
    pub(super) fn do_read<'s>(
        &self,
        node: NodeId,
        offset: u64,
        size: u32,
        quiet: bool,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let (ino, buffer) = (self.ino(node), scratch.room(size as usize)?);
        let bytes = match quiet {
            true => self.pool().read_quietly(ino, offset, buffer),
            false => self.pool().read(ino, offset, buffer),
        };
        let asked = (offset, u64::from(size));
        let bytes = bytes.map_err(|error| self.errno_at(ino, asked, &error))?;
        Ok(Answer::data(buffer.get(..bytes).unwrap_or(buffer)))
    }

    /// Writes what one request holds: atomic and durable when it is answered. The
    /// offset is the kernel's, for appends too: it alone changes sizes, one writer
    /// of a file at a time, and puts the same bytes in its page cache at that offset.
    /// The kernel itself takes set-user-id bits and capabilities off before all other changes of
    /// data; a write that goes around its page cache is ours to watch.
    pub(super) fn do_write(
        &self,
        node: NodeId,
        new: NewData<'_>,
    ) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let written = match self.write_safely(node, &new) {
            // (It may have been the rights that there was no space to take off.)
            Err(Error::NoSpace) => {
                let safe = self.take_off_rights(node, new.unprivileged);
                safe.and_then(|()| self.write_short_of_space(ino, &new))
            }
            done => done.map(|()| new.data.len()),
        };
        let place = (new.offset, new.data.len() as u64);
        let written = written.map_err(|error| self.errno_at(ino, place, &error))?;
        Ok(Answer::written(written as u32))
    }

    /// Writes what is asked for, to a file that gives no rights any more to whoever runs it.
    fn write_safely(&self, node: NodeId, new: &NewData<'_>) -> Result<(), Error> {
        let (pool, ino) = (self.pool(), self.ino(node));
        let gives_none = |mode| !new.unprivileged || set_ids(mode) == 0;
        if pool.write_plain(ino, new.offset, new.data, gives_none, CAPABILITY)? {
            return Ok(());
        }
        self.take_off_rights(node, new.unprivileged)?;
        pool.write(ino, new.offset, new.data)
    }

    /// As much as there is room for; all of what was mapped, or of a volume: loop devices take a part for all.
    #[cold]
    fn write_short_of_space(&self, ino: Ino, new: &NewData<'_>) -> Result<usize, Error> {
        let pool = self.pool();
        if let Some(done) = lode_block::write_short_of_space(pool, ino, new.offset, new.data) {
            return done.map(|()| new.data.len());
        }
        let write = |at, data: &[u8]| pool.write(ino, at, data);
        match new.mapped {
            true => write_all(new.offset, new.data, write),
            false => write_some(new.offset, new.data, write),
        }
    }

    pub(super) fn do_fallocate(
        &self,
        node: NodeId,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<Answer<'static>, Errno> {
        let how = fallocate_mode(mode.cast_signed()).ok_or(Errno::EOPNOTSUPP)?;
        let ino = self.ino(node);
        // (What a loop device discards of a volume is such a call.)
        let done = lode_block::fallocate(self.pool(), ino, how, offset, len);
        done.map(|()| Answer::Done).map_err(|error| self.errno_in(ino, &error))
    }

    pub(super) fn do_seek(
        &self,
        node: NodeId,
        offset: u64,
        whence: u32,
    ) -> Result<Answer<'static>, Errno> {
        let data = match whence.cast_signed() {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Errno::EINVAL),
        };
        // An offset below 0 is one beyond all that there can be.
        if i64::try_from(offset).is_err() {
            return Err(Errno::ENXIO);
        }
        let ino = self.ino(node);
        match self.pool().seek(ino, offset, data) {
            Ok(found) if i64::try_from(found).is_err() => Err(Errno::EOVERFLOW),
            Ok(found) => Ok(Answer::position(found)),
            Err(Error::NotFound) => Err(Errno::ENXIO),
            Err(error) => Err(self.errno_in(ino, &error)),
        }
    }

    pub(super) fn do_fsync(&self, node: NodeId) -> Result<(), Errno> {
        let ino = self.ino(node);
        self.pool().fsync(ino).map_err(|error| self.errno_in(ino, &error))
    }

    /// Copies inside the pool; each piece of up to 1 MiB is one atomic write.
    pub(super) fn do_copy(
        &self,
        from: (NodeId, u64),
        to: (NodeId, u64),
        len: u64,
        scratch: &mut Scratch,
    ) -> Result<Answer<'static>, Errno> {
        let (from_ino, to_ino) = (self.ino(from.0), self.ino(to.0));
        let total = len.min(MAX_COPY);
        let mut copied = 0;
        while copied < total {
            let piece = (total - copied).min(u64::from(MAX_WRITE));
            let at = (from.1.checked_add(copied), to.1.checked_add(copied));
            let (Some(source), Some(target)) = at else {
                return Err(Errno::EFBIG);
            };
            let buffer = scratch.room(piece as usize)?;
            match self.copy_piece(from_ino, source, to_ino, target, buffer) {
                Ok(0) => break,
                Ok(bytes) => copied += bytes,
                // What was copied before the error counts; the next request will meet it.
                Err(_) if copied > 0 => break,
                Err(error) => return Err(self.errno_at(from_ino, (source, piece), &error)),
            }
        }
        Ok(Answer::written(copied as u32))
    }

    fn copy_piece(
        &self,
        from: Ino,
        source: u64,
        to: Ino,
        target: u64,
        buffer: &mut [u8],
    ) -> Result<u64, Error> {
        // The kernel, which has the source's times for ever, does not know of this as a read.
        let bytes = self.pool().read_quietly(from, source, buffer)?.min(buffer.len());
        if bytes > 0 {
            let piece = buffer.get(..bytes).unwrap_or(buffer);
            let copied = write_some(target, piece, |at, data| self.pool().write(to, at, data))?;
            return Ok(copied as u64);
        }
        Ok(0)
    }
}

fn fallocate_mode(mode: i32) -> Option<Fallocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const PUNCH_KEEP: i32 = PUNCH | KEEP;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match mode {
        0 => Some(Fallocate::Allocate { keep_size: false }),
        KEEP => Some(Fallocate::Allocate { keep_size: true }),
        PUNCH_KEEP => Some(Fallocate::Punch),
        ZERO => Some(Fallocate::Zero { keep_size: false }),
        ZERO_KEEP => Some(Fallocate::Zero { keep_size: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_five_ways_to_allocate_are_known() {
        let known: Vec<_> = (0..0x80).filter(|mode| fallocate_mode(*mode).is_some()).collect();
        assert_eq!(known, [0, 1, 3, 0x10, 0x11]);
        assert_eq!(fallocate_mode(3), Some(Fallocate::Punch));
        assert_eq!(fallocate_mode(0x11), Some(Fallocate::Zero { keep_size: true }));
    }
}
