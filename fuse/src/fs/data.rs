//! File data: read, write, space, copying inside the pool.

use std::cell::RefCell;

use fuser::{Errno, INodeNo, ReplyData, ReplyWrite};
use lode_engine::{Error, Fallocate, Host, Ino};
use lode_pmem::Medium;

use super::convert::{errno, errno_in};
use super::{LodeFs, MAX_WRITE};

/// Most bytes that one request copies: it must not keep a server thread for long.
const MAX_COPY: u64 = 32 << 20;

thread_local! {
    /// Where a server thread puts what it reads; as large as its largest read so far.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `bytes` bytes of this thread's buffer.
fn with_buffer<T>(bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> Result<T, Errno> {
    BUFFER.with(|buffer| {
        let mut buffer = buffer.try_borrow_mut().map_err(|_| Errno::EIO)?;
        if buffer.len() < bytes {
            let more = bytes - buffer.len();
            buffer.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
            buffer.resize(bytes, 0);
        }
        buffer.get_mut(..bytes).map(work).ok_or(Errno::EIO)
    })
}

impl<M: Medium, H: Host> LodeFs<M, H> {
    pub(super) fn do_read(&self, node: INodeNo, offset: u64, size: u32, reply: ReplyData) {
        let pass = match self.enter() {
            Ok(pass) => pass,
            Err(error) => return reply.error(error),
        };
        // In a slot, so that the reply is still there when the buffer can't be had.
        let mut reply = Some(reply);
        let done = with_buffer(size as usize, |buffer| {
            let read = self.pool().read(self.ino(node), offset, buffer);
            match (read, reply.take()) {
                (Ok(bytes), Some(reply)) => reply.data(buffer.get(..bytes).unwrap_or(buffer)),
                (Err(error), Some(reply)) => reply.error(errno_in(self.ino(node), &error)),
                (_, None) => {}
            }
        });
        if let (Err(error), Some(reply)) = (done, reply) {
            reply.error(error);
        }
        drop(pass);
    }

    /// Writes what one request holds: atomic and durable when it is answered. The
    /// offset is the kernel's, for appends too: it alone changes sizes, one writer
    /// of a file at a time, and puts the same bytes in its page cache at that offset.
    /// The kernel takes set-user-id bits and capabilities off before a write through its page
    /// cache; one that goes around it is ours to watch.
    pub(super) fn do_write(
        &self,
        node: INodeNo,
        offset: u64,
        data: &[u8],
        uid: u32,
        reply: ReplyWrite,
    ) {
        let written = self.enter().and_then(|pass| {
            let ino = self.ino(node);
            let safe = self.take_off_rights(ino, uid);
            let done = safe.and_then(|()| self.pool().write(ino, offset, data));
            done.map(|()| pass).map_err(|error| errno_in(ino, &error))
        });
        match written {
            Ok(_pass) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    pub(super) fn do_fallocate(
        &self,
        node: INodeNo,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let how = fallocate_mode(mode).ok_or(Errno::EOPNOTSUPP)?;
        self.pool().fallocate(self.ino(node), how, offset, len).map_err(|error| errno(&error))
    }

    pub(super) fn do_seek(&self, node: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        let data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        match self.pool().seek(self.ino(node), offset, data) {
            Ok(found) => i64::try_from(found).map_err(|_| Errno::EOVERFLOW),
            Err(Error::NotFound) => Err(Errno::ENXIO),
            Err(error) => Err(errno(&error)),
        }
    }

    pub(super) fn do_fsync(&self, node: INodeNo) -> Result<(), Errno> {
        self.pool().fsync(self.ino(node)).map_err(|error| errno(&error))
    }

    /// Copies inside the pool; each piece of up to 1 MiB is one atomic write.
    pub(super) fn do_copy(
        &self,
        from: (INodeNo, u64),
        to: (INodeNo, u64),
        len: u64,
    ) -> Result<u32, Errno> {
        let (from_ino, to_ino) = (self.ino(from.0), self.ino(to.0));
        let total = len.min(MAX_COPY);
        let mut copied = 0;
        while copied < total {
            let piece = (total - copied).min(u64::from(MAX_WRITE));
            let at = (from.1.checked_add(copied), to.1.checked_add(copied));
            let (Some(source), Some(target)) = at else {
                return Err(Errno::EFBIG);
            };
            let done = with_buffer(piece as usize, |buffer| {
                self.copy_piece(from_ino, source, to_ino, target, buffer)
            })?;
            match done {
                Ok(0) => break,
                Ok(bytes) => copied += bytes,
                // What was copied before the error counts; the next request will meet it.
                Err(_) if copied > 0 => break,
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(copied as u32)
    }

    fn copy_piece(
        &self,
        from: Ino,
        source: u64,
        to: Ino,
        target: u64,
        buffer: &mut [u8],
    ) -> Result<u64, Error> {
        let bytes = self.pool().read(from, source, buffer)?.min(buffer.len());
        if bytes > 0 {
            self.pool().write(to, target, buffer.get(..bytes).unwrap_or(buffer))?;
        }
        Ok(bytes as u64)
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

    #[test]
    fn the_buffer_grows_and_stays() {
        let first = with_buffer(100, |buffer| buffer.len()).unwrap();
        let second = with_buffer(10, |buffer| buffer.len()).unwrap();
        assert_eq!((first, second), (100, 10));
        assert_eq!(BUFFER.with(|buffer| buffer.borrow().len()), 100);
    }
}
