//! Bytes from and to a socket, without waiting. Encryption would have its place here, and nowhere else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno as Code;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// What came of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// None can be moved now.
    Blocked,
    /// None will ever be: the other end is gone.
    Gone,
}

/// A client's socket.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    /// Through this socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Takes what has come, as far as there is room `into`.
    pub fn receive(&self, into: &mut [u8]) -> Moved {
        Self::moved(|| recv(&self.0, &mut *into, RecvFlags::DONTWAIT).map(|(_, bytes)| bytes))
    }

    /// Sends what there is room for.
    pub fn send(&self, from: &[u8]) -> Moved {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Self::moved(|| send(&self.0, from, flags))
    }

    fn moved(mut call: impl FnMut() -> rustix::io::Result<usize>) -> Moved {
        loop {
            return match call() {
                Ok(0) => Moved::Gone,
                Ok(bytes) => Moved::Bytes(bytes),
                Err(Code::INTR) => continue,
                Err(Code::AGAIN) => Moved::Blocked,
                Err(_) => Moved::Gone,
            };
        }
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        // Who is gone already needs not be told.
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
