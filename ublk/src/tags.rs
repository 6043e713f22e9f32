//! Commands by which requests come and answers go, one for each request that a queue may have at a time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::IntoBytes;

use crate::wire::{COMMIT_AND_FETCH, FETCH, RequestCommand};

/// The commands of a queue, and the memory that data of their requests is in.
///
/// They belong together: memory that the kernel may write to lives as long as it may, which is longer than the ring where that is given up
/// before its time. Memory that no request needs is never touched.
pub struct Tags {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    device: Arc<OwnedFd>,
    queue: u16,
    data: Vec<Vec<u8>>,
    /// Commands that the kernel has.
    given: usize,
}

impl Drop for Tags {
    fn drop(&mut self) {
        if self.is_used() {
            // What the kernel still has it gives back some time after the ring was closed, and tells nobody.
            std::mem::forget(std::mem::take(&mut self.data));
        }
    }
}

impl Tags {
    /// Those of a queue, for `depth` requests of so many bytes of data at most, as the device was made; the thread that makes
    /// it is the only one to use it.
    ///
    /// # Errors
    /// Those of io_uring: a kernel without it, or one that does not let this process use it.
    pub fn new(
        device: Arc<OwnedFd>,
        queue: u16,
        depth: u16,
        data_bytes: usize,
    ) -> io::Result<Self> {
        let room = u32::from(depth).max(1).next_power_of_two();
        let mut builder = IoUring::builder();
        builder.dontfork().setup_single_issuer().setup_coop_taskrun().setup_cqsize(2 * room);
        let data = (0..depth).map(|_| vec![0; data_bytes]).collect();
        Ok(Self { ring: builder.build(room)?, device, queue, data, given: 0 })
    }

    /// Whether the kernel has any of the commands.
    pub fn is_used(&self) -> bool {
        self.given > 0
    }

    /// The data of a request whose command has completed.
    pub fn data(&mut self, tag: u16) -> &mut [u8] {
        self.data.get_mut(usize::from(tag)).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Gives all commands to the kernel for the first time.
    ///
    /// # Errors
    /// Those of io_uring, and the first by which the kernel refuses one.
    pub fn fetch(&mut self) -> io::Result<()> {
        for tag in (0..).take(self.data.len()) {
            self.push(FETCH, tag, 0)?;
        }
        self.submit(false)?;
        // (A request is possible only when the device is started, and so this is a refusal.)
        match self.completed() {
            Some((_, result)) if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            _ => Ok(()),
        }
    }

    /// Tells how a request ended, and gives its command to the kernel again.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(COMMIT_AND_FETCH, tag, result)
    }

    #[allow(unsafe_code)]
    fn push(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let Some(data) = self.data.get_mut(usize::from(tag)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let address = data.as_mut_ptr().expose_provenance() as u64;
        let command = RequestCommand { queue: self.queue, tag, result, address };
        let mut words = [0; size_of::<RequestCommand>()];
        words.copy_from_slice(command.as_bytes());
        let device = types::Fd(self.device.as_raw_fd());
        let submitted = opcode::UringCmd16::new(device, number).cmd(words).build();
        let submitted = submitted.user_data(tag.into());
        let mut queue = self.ring.submission();
        // SAFETY: the memory that the command names is owned by `self`, is as long as the longest request that the device was
        // made for, and is not used by anybody else while the kernel may use it: `data` is asked for only after the
        // command has completed. It is freed only when all commands have.
        let pushed = unsafe { queue.push(&submitted) };
        drop(queue);
        let full = "a ring has no room for as many commands as it has tags";
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

    /// The next tag whose command has completed, and how.
    pub fn completed(&mut self) -> Option<(u16, i32)> {
        let done = self.ring.completion().next()?;
        self.given = self.given.saturating_sub(1);
        Some((done.user_data() as u16, done.result()))
    }
}
