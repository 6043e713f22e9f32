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

/// Answers of at most so many bytes go in one piece: the kernel looks up the memory of each piece for itself. (All structures are
/// shorter.)
const IN_ONE: usize = 384;

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
        let parts = reply.parts();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let (mut piece, pieces) = ([0; IN_ONE], parts.map(IoSlice::new));
        let sent = match piece.get_mut(..bytes) {
            Some(whole) => rustix::io::write(&*self.0, joined(whole, &parts)),
            None => rustix::io::writev(&*self.0, &pieces),
        };
        match sent {
            Ok(_) => {}
            // Nobody waits for it any more.
            Err(Code::NOENT | Code::NODEV) => tracing::debug!(unique, "an answer came too late"),
            Err(error) => tracing::error!(unique, %error, "the kernel did not take an answer"),
        }
    }
}

/// What these parts are together; as much room is there.
fn joined<'w>(whole: &'w mut [u8], parts: &[&[u8]]) -> &'w [u8] {
    let mut at = 0;
    for part in parts {
        if let Some(place) = whole.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
        at += part.len();
    }
    whole
}
