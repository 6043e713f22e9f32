//! What a thread that serves gets its requests from.
//!
//! To ask whether there is one, and then to read it, are two calls, and who waits for the answer waits for both. So who looks for the
//! next request reads it at once; only who sleeps has a device that lets it.

use std::io;

use super::channel::{Came, Channel};

/// A thread's place at a channel that nobody else receives from.
#[derive(Debug)]
pub(super) struct Inbox<'c> {
    channel: &'c Channel,
    /// The latest request, or what there is room for.
    bytes: Vec<u8>,
    /// A read does not wait.
    quick: bool,
    /// Nothing was there, since this thread last slept.
    looked: bool,
}

impl<'c> Inbox<'c> {
    /// With room for requests of so many bytes.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub(super) fn new(channel: &'c Channel, room: usize) -> io::Result<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self { channel, bytes, quick: false, looked: false })
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
        // (Who only asks before it sleeps is not to change the device twice for that.)
        if !self.quick && !self.looked {
            if !self.channel.is_ready()? {
                self.looked = true;
                return Ok(Came::Nothing);
            }
        } else {
            self.be(true)?;
        }
        self.channel.receive(&mut self.bytes)
    }

    /// Sleeps until something comes.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn asleep(&mut self) -> io::Result<Came> {
        self.be(false)?;
        self.looked = false;
        loop {
            match self.channel.receive(&mut self.bytes)? {
                Came::Nothing => {}
                came => return Ok(came),
            }
        }
    }

    fn be(&mut self, quick: bool) -> io::Result<()> {
        if self.quick != quick {
            self.channel.never_wait(quick)?;
            self.quick = quick;
        }
        Ok(())
    }
}
