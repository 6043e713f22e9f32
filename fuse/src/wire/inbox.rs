//! What a thread that serves gets its requests from.
//!
//! To ask whether there is one, and then to read it, are two calls, and who waits for the answer waits for both. So who looks for the
//! next request reads it at once; only who sleeps has a device that lets it.

use std::io;

use super::channel::{Came, Channel};

/// How a thread is with its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A read waits, and nobody has asked since the last one.
    Slept,
    /// A read waits, and nothing was there when it was asked for.
    Asked,
    /// A read does not wait.
    Looks,
}

/// A thread's place at a channel that nobody else receives from.
#[derive(Debug)]
pub(super) struct Inbox<'c> {
    channel: &'c Channel,
    /// The latest request, or what there is room for.
    bytes: Vec<u8>,
    state: State,
}

impl<'c> Inbox<'c> {
    /// With room for requests of so many bytes.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub(super) fn new(channel: &'c Channel, room: usize) -> io::Result<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self { channel, bytes, state: State::Slept })
    }

    /// The request that came last.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is there now.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn now(&mut self) -> io::Result<Came> {
        match self.state {
            // (Who asks once and then sleeps is not to change the device twice for that.)
            State::Slept if !self.channel.is_ready()? => {
                self.state = State::Asked;
                return Ok(Came::Nothing);
            }
            State::Asked => {
                self.channel.never_wait(true)?;
                self.state = State::Looks;
            }
            State::Slept | State::Looks => {}
        }
        self.channel.receive(&mut self.bytes)
    }

    /// Sleeps until something comes.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn asleep(&mut self) -> io::Result<Came> {
        if self.state == State::Looks {
            self.channel.never_wait(false)?;
        }
        self.state = State::Slept;
        loop {
            match self.channel.receive(&mut self.bytes)? {
                Came::Nothing => {}
                came => return Ok(came),
            }
        }
    }
}
