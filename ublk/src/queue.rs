//! A thread that answers requests of a queue.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use lode_nbd::Device;
use rustix::process::configure_io_flusher_behavior;

use crate::descriptors::Descriptors;
use crate::parameters::{DATA_BYTES, Shape};
use crate::request::answer;
use crate::tags::Tags;
use crate::wire::ABORTED;

/// What a queue answers, and for whom.
pub struct Queue {
    /// The driver's file of the device.
    pub file: Arc<OwnedFd>,
    /// What is served.
    pub device: Arc<dyn Device>,
    /// What it looks like.
    pub shape: Shape,
    /// Which queue it is.
    pub number: u16,
    /// Requests at a time.
    pub depth: u16,
}

impl Queue {
    /// Gives the kernel the commands, tells that, and answers requests until the device is over; only if it is told to
    /// go on.
    ///
    /// # Errors
    /// Where the kernel does not take the commands, or stops to serve them.
    pub fn run(self, ready: Sender<io::Result<()>>, go: &Receiver<()>) -> io::Result<()> {
        // The kernel must not wait for this device to find memory for who answers for it.
        if let Err(error) = configure_io_flusher_behavior(true) {
            tracing::debug!(%error, "a queue's thread may wait for its own device");
        }
        let (descriptors, mut tags) = match self.begin() {
            Ok(begun) => begun,
            Err(error) => {
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let _ = ready.send(Ok(()));
        drop(ready);
        match go.recv() {
            Ok(()) => self.serve(&descriptors, &mut tags),
            Err(_) => Ok(()),
        }
    }

    fn begin(&self) -> io::Result<(Descriptors, Tags)> {
        let descriptors = Descriptors::map(&*self.file, self.number, self.depth)?;
        let file = Arc::clone(&self.file);
        let mut tags = Tags::new(file, self.number, self.depth, DATA_BYTES as usize)?;
        tags.fetch()?;
        Ok((descriptors, tags))
    }

    fn serve(&self, descriptors: &Descriptors, tags: &mut Tags) -> io::Result<()> {
        while tags.is_used() {
            tags.submit(true)?;
            while let Some((tag, result)) = tags.completed() {
                match (result, descriptors.get(tag)) {
                    (ABORTED, _) => {}
                    (0, Some(wanted)) => {
                        let told = answer(&*self.device, &self.shape, &wanted, tags.data(tag));
                        tags.commit(tag, told)?;
                    }
                    (0.., _) => return Err(io::ErrorKind::InvalidData.into()),
                    (code, _) => return Err(io::Error::from_raw_os_error(-code)),
                }
            }
        }
        Ok(())
    }
}
