//! The device: requests come one to a read, answers go one to a write.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno as Code, ioctl_fionbio};

use super::clone;
use super::errno::Errno;
use super::notices::Notices;
use super::reply::{Answer, Reply};
use super::rings::Queues;

/// The device that mounts are served through.
pub const DEVICE: &str = "/dev/fuse";

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    /// A request.
    Request,
    /// Nothing so far.
    Nothing,
    /// The end: there will be no more, the mount is gone.
    End,
}

/// A connection to the kernel.
#[derive(Debug)]
pub struct Channel(Arc<OwnedFd>);

impl Channel {
    /// The connection behind a descriptor of the device.
    pub fn new(connection: OwnedFd) -> Self {
        Self(Arc::new(connection))
    }

    /// One more channel of the same connection, with a queue of its own for the requests that
    /// are worked on.
    ///
    /// # Errors
    /// Those of opening the device.
    pub fn split(&self) -> io::Result<Self> {
        let fresh = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        clone::attach(&fresh, self.0.as_fd())?;
        Ok(Self::new(fresh.into()))
    }

    /// Threads that requests could come to by io_uring, with so many bytes of data at most; what does
    /// not let them is in the log.
    pub fn queues(&self, data_bytes: usize) -> Option<Queues> {
        let queues = Queues::start(&self.0, data_bytes);
        queues.inspect_err(|error| tracing::debug!(%error, "no requests by io_uring")).ok()
    }

    /// A way to tell the kernel what it did not ask.
    pub fn notices(&self) -> Notices {
        Notices::new(Arc::clone(&self.0))
    }

    /// Whether a request is there now, or there will be no more.
    pub(super) fn is_ready(&self) -> io::Result<bool> {
        let mut device = [PollFd::new(&*self.0, PollFlags::IN)];
        loop {
            match poll(&mut device, Some(&Timespec::default())) {
                Ok(ready) => return Ok(ready > 0),
                Err(Code::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether [`Channel::receive`] returns where nothing is there, and does not wait for it.
    pub(super) fn never_wait(&self, never: bool) -> io::Result<()> {
        Ok(ioctl_fionbio(&*self.0, never)?)
    }

    /// Puts a request in `into`, as far as there is room.
    pub(super) fn receive(&self, into: &mut Vec<u8>) -> io::Result<Came> {
        loop {
            into.clear();
            match rustix::io::read(&*self.0, spare_capacity(into)) {
                Ok(bytes) if bytes > 0 => return Ok(Came::Request),
                // (The second where the mount goes away while the kernel hands a request out.)
                Ok(_) | Err(Code::NODEV | Code::CONNABORTED) => return Ok(Came::End),
                Err(Code::AGAIN) => return Ok(Came::Nothing),
                // The request was taken back before it could be read.
                Err(Code::NOENT | Code::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers the request `unique`.
    pub(super) fn answer(&self, unique: u64, answer: &Result<Answer<'_>, Errno>) {
        let reply = Reply::new(unique, answer);
        let [head, body, tail] = reply.parts();
        let parts = [IoSlice::new(head), IoSlice::new(body), IoSlice::new(tail)];
        let used = if body.is_empty() { 1 } else { 2 + usize::from(!tail.is_empty()) };
        match rustix::io::writev(&*self.0, parts.get(..used).unwrap_or(&parts)) {
            Ok(_) => {}
            // Nobody waits for it any more.
            Err(Code::NOENT | Code::NODEV) => tracing::debug!(unique, "an answer came too late"),
            Err(error) => tracing::error!(unique, %error, "the kernel did not take an answer"),
        }
    }
}
