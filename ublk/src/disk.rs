//! A device, from when it is there until it is deleted.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use lode_nbd::Device;

use crate::control::Control;
use crate::error::Error;
use crate::parameters::Shape;
use crate::queue::Queue;
use crate::wire::{Info, MAX_DEPTH};

/// Queues where nothing is said: more threads than these do not make memory faster.
const MAX_QUEUES: usize = 16;
/// Requests of a queue at a time where nothing is said.
const DEPTH: u16 = 64;

/// How a device is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Queues, each with a thread; the kernel makes no more of them than there are CPUs.
    pub queues: u16,
    /// Requests of a queue at a time.
    pub depth: u16,
}

impl Default for Settings {
    /// A queue for each CPU that this process may use.
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self { queues: cpus.min(MAX_QUEUES) as u16, depth: DEPTH }
    }
}

/// Threads, which serve a device once they are told to.
struct Queues {
    threads: Vec<JoinHandle<io::Result<()>>>,
    go: Vec<Sender<()>>,
}

/// A block device of the kernel. It is deleted when this is dropped.
pub struct Disk {
    control: Control,
    info: Info,
    queues: Vec<JoinHandle<io::Result<()>>>,
    path: PathBuf,
    is_there: bool,
}

impl Disk {
    /// Makes a device of the kernel of `device`. What devices are left of servers that were killed is cleaned away before.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn start(device: Arc<dyn Device>, settings: Settings) -> Result<Self, Error> {
        let shape = Shape::of(&*device).ok_or(Error::Shape)?;
        let parameters = shape.parameters(&*device);
        let mut control = Control::open()?;
        control.clean();
        let depth = settings.depth.clamp(1, MAX_DEPTH);
        let info = control.add(settings.queues.max(1), depth)?;
        let path = PathBuf::from(format!("/dev/ublkb{}", info.device));
        // (From here on it is deleted whatever happens.)
        let mut disk = Self { control, info, queues: Vec::new(), path, is_there: true };
        disk.control.set(info.device, &parameters)?;
        let Queues { threads, go } = disk.begin(device, shape)?;
        disk.queues = threads;
        for one in go {
            let _ = one.send(());
        }
        disk.control.start(info.device)?;
        Ok(disk)
    }

    /// Starts the threads, and returns when all have what they need.
    fn begin(&mut self, device: Arc<dyn Device>, shape: Shape) -> Result<Queues, Error> {
        let file = Arc::new(opened(self.info.device)?);
        let (ready, all): (_, Receiver<io::Result<()>>) = mpsc::channel();
        let mut begun = Queues { threads: Vec::new(), go: Vec::new() };
        for number in 0..self.info.queues {
            let queue = Queue {
                file: Arc::clone(&file),
                device: Arc::clone(&device),
                shape,
                number,
                depth: self.info.depth,
                cpus: self.control.cpus(self.info.device, number)?,
            };
            let (go, wait) = mpsc::channel();
            let ready = ready.clone();
            let builder = thread::Builder::new().name(format!("lode-ublk-{number}"));
            let thread = builder.spawn(move || queue.run(ready, &wait)).map_err(Error::Queue)?;
            begun.threads.push(thread);
            begun.go.push(go);
        }
        drop(ready);
        let failed = all.iter().find_map(Result::err);
        match failed {
            None => Ok(begun),
            Some(error) => {
                // Who is not told to go on ends.
                drop(begun.go);
                joined(begun.threads)?;
                Err(Error::Queue(error))
            }
        }
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is over, as when somebody else has deleted it, or a thread could not go on.
    pub fn is_over(&self) -> bool {
        self.queues.iter().any(JoinHandle::is_finished)
    }

    /// Deletes it. What the kernel still has to write to it is written before, also if it is mounted; then it is gone.
    ///
    /// # Errors
    /// What was wrong with it until then, or that the driver does not delete it.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_there) {
            return Ok(());
        }
        let stopped = self.control.stop(self.info.device);
        let served = joined(std::mem::take(&mut self.queues));
        let deleted = self.control.delete(self.info.device);
        served.and(stopped).and(deleted)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(device = %self.path.display(), %error, "a device may not be gone");
        }
    }
}

/// The driver's file of a device, which one process may have open.
fn opened(device: u32) -> Result<OwnedFd, Error> {
    let path = PathBuf::from(format!("/dev/ublkc{device}"));
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    Ok(opened.map_err(|error| Error::Open { path, error })?.into())
}

/// Waits for threads to end; how the first of them failed.
fn joined(threads: Vec<JoinHandle<io::Result<()>>>) -> Result<(), Error> {
    let mut all = Ok(());
    for thread in threads {
        let panicked = || Err(io::Error::other("a thread panicked"));
        let ended = thread.join().unwrap_or_else(|_| panicked()).map_err(Error::Queue);
        all = all.and(ended);
    }
    all
}
