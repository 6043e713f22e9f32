//! Bytes from and to a socket, without waiting.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno as Code;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, getpeername, recv, send,
    sendmsg, shutdown, sockopt,
};

/// What records cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Their bytes.
    Bytes,
    /// More than their bytes: they are part of a handshake.
    Change,
    /// So much that others are to come: they have brought nothing.
    Turn,
}

/// What came of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// So many bytes of records, which may hold none for the conversation.
    Records {
        /// How many.
        bytes: usize,
        /// What they cost.
        cost: Cost,
    },
    /// None can be moved now.
    Blocked,
    /// None will ever be: the other end is gone.
    Gone,
}

const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// What the kernel is to hold of replies for a client at a Unix socket that asks for much at a time; it doubles that for what it needs itself.
const WIDE_BYTES: usize = 1 << 20;

/// A client's socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// This one.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Takes what has come, as far as there is room `into`.
    pub fn receive(&self, into: &mut [u8]) -> Moved {
        moved(|| recv(&self.0, &mut *into, RecvFlags::DONTWAIT).map(|(_, bytes)| bytes))
    }

    /// Sends what there is room for.
    pub fn send(&self, from: &[u8]) -> Moved {
        moved(|| send(&self.0, from, SEND_FLAGS))
    }

    /// Sends what there is room for of all of these.
    pub fn send_all_of(&self, from: &[IoSlice<'_>]) -> Moved {
        moved(|| sendmsg(&self.0, from, &mut SendAncillaryBuffer::default(), SEND_FLAGS))
    }

    /// Has the kernel hold replies of 1 MiB whole, if this is a Unix socket: the usual 208 KiB have one wait four times until the client has taken
    /// most of them. (It may not allow that. What TCP holds it sees to by itself.)
    pub fn widen(&self) {
        let is_unix = sockopt::socket_domain(&self.0) == Ok(AddressFamily::UNIX);
        if is_unix && sockopt::set_socket_send_buffer_size_force(&self.0, WIDE_BYTES).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&self.0, WIDE_BYTES);
        }
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        // Who is gone already needs not be told.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Who is at the other end, for people.
    pub fn peer(&self) -> String {
        let peer = getpeername(&self.0).ok().flatten();
        match peer.map(SocketAddr::try_from) {
            Some(Ok(address)) => address.to_string(),
            _ => "of this machine".into(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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
