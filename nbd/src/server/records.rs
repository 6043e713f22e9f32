//! The records of an encrypted connection: bytes from and to them, without waiting, in bounded memory.
//!
//! What waits here is at most: a piece of what came in, a record or the messages of a handshake that are not whole
//! yet (64 KiB), a record's bytes that were not taken, and 64 KiB of what goes out.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::ServerConnection;

use super::socket::{Cost, Moved, Socket};
use super::tls::Shared;
use crate::buffer::Buffer;

/// What is taken from the socket at a time.
const INCOMING_BYTES: usize = 32 << 10;

/// An encrypted connection's state.
pub struct Records {
    tls: ServerConnection,
    shared: Arc<Shared>,
    /// What came in and was not looked at.
    incoming: Buffer,
    finished: bool,
    /// The handshake has failed, and the client was told why.
    failed: bool,
    overhead: Overhead,
}

/// Bytes of records that have brought nothing: keys that are changed again and again, empty records. They cost more than they weigh.
#[derive(Debug, Default)]
struct Overhead(usize);

/// A record, and a little more: the largest may come in parts.
const OVERHEAD_MAX: usize = 17 << 10;

impl Overhead {
    /// So many bytes came, and so many were in them. Says whether too many have brought nothing since this was said last.
    fn took(&mut self, bytes: usize, brought: usize) -> bool {
        self.0 = (self.0 + bytes).saturating_sub(brought.saturating_mul(2));
        let too_many = self.0 > OVERHEAD_MAX;
        if too_many {
            self.0 = 0;
        }
        too_many
    }
}

impl Records {
    /// Before the first message of the handshake.
    pub fn new(shared: Arc<Shared>) -> Result<Self, rustls::Error> {
        let tls = shared.accept()?;
        let (incoming, overhead) = (Buffer::default(), Overhead::default());
        Ok(Self { tls, shared, incoming, finished: false, failed: false, overhead })
    }

    /// Takes bytes that have come, or a piece of the records that they come in.
    pub fn receive(&mut self, socket: &Socket, into: &mut [u8]) -> Moved {
        match self.tls.reader().read(into) {
            Ok(0) => return Moved::Gone,
            Ok(bytes) => return Moved::Bytes(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Moved::Gone,
        }
        if self.incoming.is_empty() {
            let room = self.incoming.space(INCOMING_BYTES).get_mut(..INCOMING_BYTES);
            match socket.receive(room.unwrap_or_default()) {
                Moved::Bytes(bytes) if self.failed => {
                    return Moved::Records { bytes, cost: Cost::Change };
                }
                Moved::Bytes(bytes) => self.incoming.commit(bytes),
                other => return other,
            }
        }
        self.open(socket)
    }

    /// Opens a piece of what came in.
    fn open(&mut self, socket: &Socket) -> Moved {
        let bytes = match self.tls.read_tls(&mut self.incoming.filled()) {
            Ok(0) | Err(_) => return Moved::Gone,
            Ok(bytes) => bytes,
        };
        self.incoming.consume(bytes);
        let handshake = self.tls.is_handshaking();
        let error = match self.tls.process_new_packets() {
            Ok(state) => {
                // (All that was there before has been taken.)
                let brought = state.plaintext_bytes_to_read();
                let cost = match self.overhead.took(bytes, brought) {
                    _ if handshake => Cost::Change,
                    true => Cost::Turn,
                    false => Cost::Bytes,
                };
                return Moved::Records { bytes, cost };
            }
            Err(error) => error,
        };
        self.complain(socket, &error);
        match self.flush(socket) {
            // A connection that is closed while bytes come takes with it what was said. So they are taken, for as long
            // as a handshake may last.
            Moved::Bytes(_) if handshake => {
                socket.finish();
                self.incoming.consume(usize::MAX);
                self.failed = true;
                Moved::Records { bytes, cost: Cost::Change }
            }
            _ => Moved::Gone,
        }
    }

    fn complain(&self, socket: &Socket, error: &rustls::Error) {
        let peer = socket.peer();
        match self.shared.complaints.due() {
            Some(count) => tracing::warn!(%error, peer, count, "clients were refused by TLS"),
            None => tracing::debug!(%error, peer, "a client was refused by TLS"),
        }
    }

    /// Encrypts what there is room for, when all that was encrypted before is sent.
    pub fn send(&mut self, socket: &Socket, from: &[u8]) -> Moved {
        match self.flush(socket) {
            Moved::Bytes(_) => {}
            other => return other,
        }
        match self.tls.writer().write(from) {
            Ok(0) | Err(_) => Moved::Gone,
            Ok(bytes) => Moved::Bytes(bytes),
        }
    }

    /// Sends what is encrypted.
    pub fn flush(&mut self, socket: &Socket) -> Moved {
        let mut sent = 0;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Out(socket)) {
                Ok(0) => return Moved::Gone,
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Moved::Blocked,
                Err(_) => return Moved::Gone,
            }
        }
        Moved::Bytes(sent)
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self, socket: &Socket) -> Moved {
        if !std::mem::replace(&mut self.finished, true) {
            self.tls.send_close_notify();
        }
        self.flush(socket)
    }

    /// Whether something waits to be sent.
    pub fn is_waiting(&self) -> bool {
        self.tls.wants_write()
    }

    /// Gives back memory that only a busy client needs.
    pub fn rest(&mut self) {
        self.incoming.release();
    }
}

/// A socket to write to.
struct Out<'a>(&'a Socket);

impl Out<'_> {
    fn moved(moved: Moved) -> io::Result<usize> {
        match moved {
            Moved::Bytes(bytes) => Ok(bytes),
            Moved::Blocked | Moved::Records { .. } => Err(io::ErrorKind::WouldBlock.into()),
            Moved::Gone => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Write for Out<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Self::moved(self.0.send(from))
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::moved(self.0.send_all_of(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_large_writes_are_no_overhead_and_records_that_bring_nothing_are() {
        let mut overhead = Overhead::default();
        for _ in 0..10_000 {
            // A request in a record of its own; a record of 16 KiB, which comes in parts.
            assert!(!overhead.took(28 + 22, 28));
            assert!((0..4).all(|_| !overhead.took(4096, 0)) && !overhead.took(22, 16 << 10));
        }
        // A byte after each 32 changes of the key.
        let costly = (0..1000).filter(|_| overhead.took(32 * 27 + 23, 1)).count();
        assert!((45..60).contains(&costly), "{costly}");
    }
}
