//! The records of an encrypted connection: bytes from and to them, without waiting, in bounded memory.
//!
//! What waits here is at most: a piece of what came in, a record or the messages of a handshake that are not whole
//! yet (64 KiB), a record's bytes that were not taken, and 64 KiB of what goes out.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::ServerConnection;

use super::socket::{Moved, Socket};
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
}

impl Records {
    /// Before the first message of the handshake.
    pub fn new(shared: Arc<Shared>) -> Result<Self, rustls::Error> {
        let tls = shared.accept()?;
        Ok(Self { tls, shared, incoming: Buffer::default(), finished: false, failed: false })
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
                    return Moved::Records { bytes, handshake: true };
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
        let Err(error) = self.tls.process_new_packets() else {
            return Moved::Records { bytes, handshake };
        };
        self.complain(socket, &error);
        match self.flush(socket) {
            // A connection that is closed while bytes come takes with it what was said. So they are taken, for as long
            // as a handshake may last.
            Moved::Bytes(_) if handshake => {
                socket.finish();
                self.incoming.consume(usize::MAX);
                self.failed = true;
                Moved::Records { bytes, handshake }
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
