//! Commands to the device by io_uring: the only part of it that has no safe interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::IntoBytes;

use super::entry::Entry;
use super::layout::{COMMIT_AND_FETCH, Command, PARTS, REGISTER};

/// Where the length stands in what is submitted (`struct io_uring_sqe`).
const LEN_AT: usize = 24;
const _: () = assert!(size_of::<squeue::Entry128>() == 128);

/// A ring of commands, with the entries that the kernel is given by them.
///
/// They belong together: memory that the kernel may write to lives as long as it may, which is longer
/// than the ring where that is given up before its time.
pub struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// Parts of entries, which registering reads.
    parts: Vec<[libc::iovec; PARTS as usize]>,
    connection: Arc<OwnedFd>,
    /// Entries that the kernel has.
    given: usize,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_used() {
            // What the kernel still has it gives back some time after the ring was closed, and tells nobody.
            std::mem::forget(std::mem::take(&mut self.entries));
            std::mem::forget(std::mem::take(&mut self.parts));
        }
    }
}

impl Ring {
    /// A ring for these entries; the thread that makes it is the only one to use it.
    ///
    /// # Errors
    /// Those of io_uring: a kernel without it, or one that does not let this process use it.
    pub fn new(connection: Arc<OwnedFd>, entries: Vec<Entry>) -> io::Result<Self> {
        let room = u32::try_from(entries.len()).unwrap_or(u32::MAX).max(1).next_power_of_two();
        let mut builder = IoUring::builder();
        // A child must not have it mapped: it may wait for the mount, which would never end then.
        // Requests arrive when the thread goes to the kernel, and never interrupt what it does; at its
        // end, too, so that who waits is told.
        builder.dontfork().setup_single_issuer().setup_coop_taskrun().setup_cqsize(2 * room);
        Ok(Self { ring: builder.build(room)?, entries, parts: Vec::new(), connection, given: 0 })
    }

    /// Whether the kernel has any of the entries.
    pub fn is_used(&self) -> bool {
        self.given > 0
    }

    /// One of them, that the kernel does not have.
    pub fn entry(&mut self, index: usize) -> Option<&mut Entry> {
        self.entries.get_mut(index)
    }

    /// Gives all entries to the kernel for the first time.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn register(&mut self) -> io::Result<()> {
        let Self { entries, parts, .. } = self;
        parts.extend(entries.iter_mut().map(|entry| {
            let (data, bytes) = entry.data.memory();
            let heads = entry.heads.as_mut_bytes();
            [
                libc::iovec { iov_base: heads.as_mut_ptr().cast(), iov_len: heads.len() },
                libc::iovec { iov_base: data.cast(), iov_len: bytes },
            ]
        }));
        for index in 0..self.entries.len() {
            self.push(index, REGISTER)?;
        }
        Ok(())
    }

    /// Hands an entry's answer over, and gives it to the kernel again.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn commit(&mut self, index: usize) -> io::Result<()> {
        self.push(index, COMMIT_AND_FETCH)
    }

    #[allow(unsafe_code)]
    fn push(&mut self, index: usize, number: u32) -> io::Result<()> {
        let Some(entry) = self.entries.get(index) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let device = types::Fd(self.connection.as_raw_fd());
        let mut words = [0; 80];
        let command = Command::new(entry.queue, entry.commit());
        for (place, byte) in words.iter_mut().zip(command.as_bytes()) {
            *place = *byte;
        }
        let mut command = opcode::UringCmd80::new(device, number).cmd(words);
        let parts = self.parts.get(index).filter(|_| number == REGISTER);
        if let Some(parts) = parts {
            command = command.addr(Some(parts.as_ptr() as u64));
        }
        let submitted = command.build().user_data(index as u64);
        let submitted = match parts {
            Some(_) => with_len(submitted, PARTS),
            None => submitted,
        };
        let mut queue = self.ring.submission();
        // SAFETY: the memory that the command names, an entry's heads and data and the list of both, is
        // owned by `self` behind pointers that stay, and not used by anybody else while the kernel may
        // write to it: `entry` is asked for only those whose command has completed. It is freed only when
        // all commands have.
        let pushed = unsafe { queue.push(&submitted) };
        drop(queue);
        let full = "a ring has no room for as many commands as it has entries";
        pushed.map_err(|_| io::Error::other(full))?;
        self.given += 1;
        Ok(())
    }

    /// Submits what was pushed; with `wait` returns once something has completed.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn submit(&self, wait: bool) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(usize::from(wait)) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next entry that the kernel has done with: a request is in it, or the error by which the
    /// kernel refused it.
    pub fn completed(&mut self) -> Option<(usize, io::Result<()>)> {
        let done = self.ring.completion().next()?;
        self.given -= 1;
        let result = match done.result() {
            0.. => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        };
        Some((done.user_data() as usize, result))
    }
}

/// The same with a length, which the interface has no word for.
#[allow(unsafe_code)]
fn with_len(submitted: squeue::Entry128, len: u32) -> squeue::Entry128 {
    let mut bytes = {
        // SAFETY: it is 128 bytes, integers without gaps, of which any value is one.
        unsafe { std::mem::transmute::<squeue::Entry128, [u8; 128]>(submitted) }
    };
    for (place, byte) in bytes.iter_mut().skip(LEN_AT).zip(len.as_bytes()) {
        *place = *byte;
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(bytes) }
}
