//! A thread that answers requests of a queue.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use lode_nbd::Device;
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{CpuSet, sched_setaffinity};

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
    /// The CPUs whose requests it has.
    pub cpus: Vec<usize>,
}

impl Queue {
    /// Gives the kernel the commands, tells that, and answers requests until the device is over; only if it is told to
    /// go on.
    ///
    /// # Errors
    /// Where the kernel does not take the commands, or stops to serve them.
    pub fn run(self, ready: Sender<io::Result<()>>, go: &Receiver<()>) -> io::Result<()> {
        self.stay();
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

    /// Keeps this thread where its requests come from, so that who asks and who answers take turns without waking another CPU. Where it
    /// may not be there, it stays where it is.
    fn stay(&self) {
        let mut set = CpuSet::new();
        let known = self.cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU);
        known.for_each(|cpu| set.set(*cpu));
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::debug!(queue = self.number, %error, "a queue's thread can't stay on its CPUs");
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
