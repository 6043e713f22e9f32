//! A client's bytes: as they are, or in the records of an encrypted connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::records::Records;
use super::socket::{Moved, Socket};
use super::tls::Offer;
use crate::session::Encryption;

/// A client's bytes.
pub struct Stream {
    socket: Socket,
    offer: Offer,
    /// Once it is encrypted.
    records: Option<Box<Records>>,
}

impl Stream {
    /// Through this socket, not encrypted yet.
    pub fn new(socket: OwnedFd, offer: Offer) -> Self {
        Self { socket: Socket::new(socket), offer, records: None }
    }

    /// Whether it is encrypted, or can be.
    pub fn encryption(&self) -> Encryption {
        match &self.records {
            Some(_) => Encryption::Begun,
            None => self.offer.encryption(),
        }
    }

    /// Whatever is received and sent from here on is encrypted; false where that can't be.
    pub fn encrypt(&mut self) -> bool {
        let Some(shared) = self.offer.shared() else {
            return false;
        };
        match Records::new(Arc::clone(shared)) {
            Ok(records) => self.records = Some(Box::new(records)),
            Err(error) => {
                tracing::error!(%error, "a connection can't be encrypted");
                return false;
            }
        }
        true
    }

    /// Takes what has come, as far as there is room `into`.
    pub fn receive(&mut self, into: &mut [u8]) -> Moved {
        match &mut self.records {
            Some(records) => records.receive(&self.socket, into),
            None => self.socket.receive(into),
        }
    }

    /// Takes what there is room for. It is sent when it is [flushed](Self::flush).
    pub fn send(&mut self, from: &[u8]) -> Moved {
        match &mut self.records {
            Some(records) => records.send(&self.socket, from),
            None => self.socket.send(from),
        }
    }

    /// Sends all that was taken.
    pub fn flush(&mut self) -> Moved {
        match &mut self.records {
            Some(records) => records.flush(&self.socket),
            None => Moved::Bytes(0),
        }
    }

    /// Has the kernel hold more of what is sent, where it does that.
    pub fn widen(&self) {
        self.socket.widen();
    }

    /// Whether something that was taken waits to be sent.
    pub fn is_waiting(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.is_waiting())
    }

    /// Says that nothing more will be sent; blocked where that can't be said yet.
    pub fn finish(&mut self) -> Moved {
        let said = match &mut self.records {
            Some(records) => records.finish(&self.socket),
            None => Moved::Bytes(0),
        };
        if said != Moved::Blocked {
            self.socket.finish();
        }
        said
    }

    /// Gives back memory that only a busy client needs.
    pub fn rest(&mut self) {
        if let Some(records) = &mut self.records {
            records.rest();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
