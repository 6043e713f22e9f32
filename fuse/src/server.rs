//! The life of a mount: from an open pool to a closed one.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lode_engine::{Host, Pool};
use lode_host::{Maintenance, StdHost};
use lode_lend::source::Region;
use lode_pmem::Medium;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::answers::Desk;
use crate::apart::within;
use crate::awake::{self, Wakeful};
use crate::control::listener::{Answers, Bound, Listener, Sessions};
use crate::control::place;
use crate::damage::Teller;
use crate::device::mount_fuse;
use crate::error::{MountError, Result};
use crate::fs::{LodeFs, MAX_WRITE, State, Views};
use crate::introduction::introduce;
use crate::lending::{self, HeapOptions};
use crate::mountpoint;
use crate::notify::{tell_manager, wait_while};
use crate::options::MountOptions;
use crate::scrub::{Periodic, RATE};
use crate::wire::{Channel, Queues, Session};

/// How long a mount may take to answer for the first time.
const START: Duration = Duration::from_secs(30);
/// How long the kernel may take to hand over what was stored through mappings.
const LAST_WRITES: Duration = Duration::from_secs(60);
/// How long the server threads may take to end when their mount is gone.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// A pool that is mounted, or about to answer.
///
/// Dropping it without [`Server::run`] takes the mount off and closes the pool.
pub struct Server<M: Medium + 'static, H: Host> {
    session: Option<Session<Wakeful<LodeFs<M, H>>>>,
    threads: usize,
    scrubs: Option<(Duration, u64)>,
    mount: Mount<M, H>,
    control: Option<Listener>,
    signals: Option<Signals>,
}

/// What is known of the mount itself.
struct Mount<M: Medium + 'static, H: Host> {
    state: Arc<State<M, H>>,
    point: PathBuf,
    /// The kernel's number of the mount's device.
    device: String,
    read_only: bool,
    closed: bool,
}

/// Why serving may end.
pub(crate) enum Event {
    /// The connection to the kernel ended: unmounted, or broken.
    Session(io::Result<()>),
    /// A signal asks to end.
    Signal(i32),
    /// A request panicked.
    Failed,
    /// A command that used the server is gone.
    Left,
}

impl<M: Medium + 'static, H: Host> Server<M, H> {
    /// Mounts `pool` at the directory `dir`. From here on the kernel's requests wait for
    /// [`Server::run`], and SIGTERM, SIGINT and SIGHUP mean to unmount.
    ///
    /// If this fails the pool is closed.
    ///
    /// # Errors
    /// [`MountError::Busy`] where a Lode pool is mounted already, and others.
    pub fn mount(pool: Pool<M, H>, dir: &Path, options: &MountOptions) -> Result<Self> {
        Self::mount_with(pool, dir, options, &place::directory())
    }

    /// As [`Server::mount`], with the control socket in the directory `control`.
    ///
    /// # Errors
    /// As [`Server::mount`].
    pub fn mount_with(
        pool: Pool<M, H>,
        dir: &Path,
        options: &MountOptions,
        control: &Path,
    ) -> Result<Self> {
        let state = Arc::new(State::new(pool, options.root));
        let started = Self::start(Arc::clone(&state), dir, options, control);
        if started.is_err() {
            // The first error is the one to report.
            if let Err(error) = state.stop() {
                tracing::error!(%error, "the pool could not be closed");
            }
        }
        started
    }

    fn start(
        state: Arc<State<M, H>>,
        dir: &Path,
        options: &MountOptions,
        control: &Path,
    ) -> Result<Self> {
        let point = mountpoint::prepare(dir)?;
        let mut options = options.clone();
        if let Ok(path) = std::fs::canonicalize(&options.pool) {
            options.pool = path;
        }
        let bound = Bound::new(control, &options.pool, &point)?;
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|source| MountError::System { what: "handle signals", source })?;
        let watched = awake::watch(options.awake)?;
        let kernel = |source| MountError::Kernel { path: point.clone(), source };
        let connection = mount_fuse(&point, &options).map_err(kernel)?;
        let mount = Mount::new(Arc::clone(&state), point.clone(), options.read_only);
        let channel = Channel::new(connection);
        let (agreed, queues) = introduce(&channel, &options).map_err(|source| {
            mount.take_off();
            MountError::Protocol { path: point.clone(), source }
        })?;
        let (atime, files) = (options.atime, std::mem::take(&mut options.views));
        let threads = options.server_threads();
        let scrubs =
            options.scrub_period.map(|period| (period, options.scrub_rate.unwrap_or(RATE)));
        let served = queues.as_ref().map(Queues::threads);
        let lends = Arc::clone(&state);
        let (for_desk, notices) = (Arc::clone(&state), channel.notices());
        let desk = Desk::new(for_desk, point.clone(), options, served, notices.clone());
        let desk = Arc::new(desk);
        let views = Views::new(&files, Arc::clone(&state.snapshots));
        let fs = LodeFs::new(state, &agreed, atime, views, Arc::clone(&desk), notices);
        let handler = Wakeful { handler: fs, watched };
        let session = Session::new(channel, handler, MAX_WRITE).with_queues(queues);
        mountpoint::set_read_ahead(&mount.device, MAX_WRITE >> 10);
        let answers: Answers = Box::new(move |op, request| desk.answer(op, request));
        let sessions: Sessions = Box::new(move |stream, line| lends.lending.admit(stream, line));
        let listener = bound.serve(Arc::new(answers), sessions)?;
        Ok(Self {
            session: Some(session),
            threads,
            scrubs,
            mount,
            control: Some(listener),
            signals: Some(signals),
        })
    }

    /// The canonical mount point.
    pub fn mount_point(&self) -> &Path {
        &self.mount.point
    }

    /// Serves until the mount is taken off or a signal asks to end; then closes the pool.
    ///
    /// # Errors
    /// [`MountError::Close`] where the pool could not be closed cleanly, and others.
    pub fn run(self) -> Result<()> {
        self.run_with(|| {})
    }

    /// As [`Server::run`]; calls `ready` once the mount answers.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_with(mut self, ready: impl FnOnce()) -> Result<()> {
        let (tell, events) = mpsc::channel();
        let (signals, session) = (self.signals.take(), self.session.take());
        let (Some(signals), Some(session)) = (signals, session) else {
            return Err(MountError::NotMounted(self.mount.point.clone()));
        };
        let watcher = Watcher::start(signals, tell.clone())?;
        let teller = tell_of_damage(&self.mount)?;
        let serving = serve(session, self.threads, tell.clone())?;
        let maintenance = maintain(&self.mount.state, self.mount.read_only, tell)?;
        let scrubber = scrub(&self.mount, self.scrubs)?;
        let served = self.mount.serve_until_end(&events, ready);
        drop(scrubber);
        drop(teller);
        drop(maintenance);
        drop(watcher);
        drop(serving);
        let ended = served.and(self.mount.close());
        if let Some(control) = self.control.take() {
            control.end(ended.as_ref().copied().map_err(ToString::to_string));
        }
        ended
    }
}

impl<M: Region + 'static> Server<M, StdHost> {
    /// Lends what files leave of the pool's memory to programs from now on, unless the pool can't be changed.
    ///
    /// # Errors
    /// Those of starting threads.
    pub fn lend(&self, options: &HeapOptions) -> Result<()> {
        lending::lend(&self.mount.state, options)
    }
}

/// Runs the session on threads of its own; tells how it ended.
fn serve<M: Medium + 'static, H: Host>(
    session: Session<Wakeful<LodeFs<M, H>>>,
    threads: usize,
    tell: Sender<Event>,
) -> Result<JoinHandle<()>> {
    let builder = thread::Builder::new().name("lode-session".into());
    builder
        .spawn(move || {
            let ended = session.run(threads);
            let _ = tell.send(Event::Session(ended));
        })
        .map_err(|source| MountError::System { what: "start the server", source })
}

impl<M: Medium + 'static, H: Host> Mount<M, H> {
    fn new(state: Arc<State<M, H>>, point: PathBuf, read_only: bool) -> Self {
        let top = mountpoint::mounted_at(&point).ok().flatten();
        let device = top.map(|top| top.device).unwrap_or_default();
        Self { state, point, device, read_only, closed: false }
    }

    /// Whether this mount is (still) the topmost at its mount point.
    fn is_mounted(&self) -> bool {
        let top = mountpoint::mounted_at(&self.point).ok().flatten();
        top.is_some_and(|top| top.device == self.device)
    }

    /// Cuts the mount off, if it is there.
    fn take_off(&self) {
        if !self.is_mounted() {
            return;
        }
        if let Err(error) = mountpoint::cut_off(&self.point) {
            tracing::error!(point = %self.point.display(), %error, "could not be taken off");
        }
    }

    fn serve_until_end(&self, events: &Receiver<Event>, ready: impl FnOnce()) -> Result<()> {
        // (It may be taken off before this has looked.)
        let answers = wait_while(&self.point, START, &|| self.is_mounted());
        match answers {
            Ok(()) => {
                tracing::info!(point = %self.point.display(), "mounted");
                ready();
                tell_manager("READY=1");
            }
            // Unmounted before it was looked at: the event tells.
            Err(_) if !self.is_mounted() => {}
            Err(error) => {
                self.unmount(events);
                return Err(error);
            }
        }
        match events.recv() {
            Ok(Event::Session(ended)) => self.ended(ended),
            Ok(Event::Signal(signal)) => {
                tracing::info!(signal, "unmounting");
                tell_manager("STOPPING=1");
                self.unmount(events);
                Ok(())
            }
            // (Nobody is a user of a mount.)
            Ok(Event::Failed | Event::Left) => {
                self.unmount(events);
                Err(MountError::Panicked(self.point.clone()))
            }
            Err(_) => Err(MountError::Panicked(self.point.clone())),
        }
    }

    fn ended(&self, ended: io::Result<()>) -> Result<()> {
        // The connection is gone: whatever is still mounted is dead.
        self.take_off();
        if self.state.gate.failed() {
            return Err(MountError::Panicked(self.point.clone()));
        }
        ended.map_err(|source| MountError::Session { path: self.point.clone(), source })
    }

    /// Takes the mount off. If nobody uses it the kernel first hands over all it has;
    /// else those requests that have begun are answered, and who still has files of it
    /// open is cut off.
    fn unmount(&self, events: &Receiver<Event>) {
        let point = self.point.clone();
        let unmounted = within(LAST_WRITES, move || {
            mountpoint::unmount(&point).inspect_err(|error| {
                tracing::info!(%error, "in use: cutting off its users");
                let _ = mountpoint::sync(&point);
            })
        });
        if !matches!(unmounted, Some(Ok(()))) && self.is_mounted() {
            self.state.gate.close();
            self.take_off();
        }
        let end = std::time::Instant::now() + LAST_REQUESTS;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match events.recv_timeout(left) {
                Ok(Event::Session(_)) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("the kernel keeps the connection; it ends with this process");
                    return;
                }
            }
        }
    }

    /// Closes the pool, unless a request has left it in a state that must not be kept.
    fn close(&mut self) -> Result<()> {
        self.closed = true;
        let closed = self.state.stop();
        if self.state.gate.failed() {
            return Err(MountError::Panicked(self.point.clone()));
        }
        closed.map_err(MountError::Close)
    }
}

impl<M: Medium + 'static, H: Host> Drop for Mount<M, H> {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        self.take_off();
        if let Err(error) = self.close() {
            tracing::error!(%error, "the mount ended badly");
        }
    }
}

/// Turns signals into events, until it is dropped.
pub(crate) struct Watcher {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(mut signals: Signals, tell: Sender<Event>) -> Result<Self> {
        let handle = signals.handle();
        let builder = thread::Builder::new().name("lode-signals".into());
        let thread = builder
            .spawn(move || {
                for signal in signals.forever() {
                    if tell.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|source| MountError::System { what: "watch for signals", source })?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives the pool time for its background work, and looks whether a request has panicked.
pub(crate) fn maintain<M: Medium + 'static, H: Host>(
    state: &Arc<State<M, H>>,
    read_only: bool,
    tell: Sender<Event>,
) -> Result<Maintenance> {
    let state = Arc::clone(state);
    let mut told = false;
    let work = move || {
        let pass = if read_only { None } else { state.gate.enter().ok() };
        let done = pass.as_ref().map_or(Ok(()), |pass| pass.pool.maintain());
        if pass.is_some_and(|pass| pass.pool.is_read_only()) && !std::mem::replace(&mut told, true)
        {
            tracing::error!(
                "changes are refused from now on: something could not be made durable, or what memory has of the pool \
                 contradicts itself; mount it again, which finds out what there is"
            );
        }
        if state.gate.failed() {
            let _ = tell.send(Event::Failed);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(done)
    };
    let system = |source| MountError::System { what: "start the maintenance", source };
    Maintenance::start(work).map_err(system)
}

/// Scrubs every so often, if that is asked for.
fn scrub<M: Medium + 'static, H: Host>(
    mount: &Mount<M, H>,
    scrubs: Option<(Duration, u64)>,
) -> Result<Option<Periodic>> {
    let system = |source| MountError::System { what: "start scrubbing", source };
    let start = |(period, rate)| Periodic::start(Arc::clone(&mount.state), period, rate);
    scrubs.map(start).transpose().map_err(system)
}

/// Tells in the log what is damaged, as requests meet it.
fn tell_of_damage<M: Medium + 'static, H: Host>(mount: &Mount<M, H>) -> Result<Teller<M, H>> {
    let system = |source| MountError::System { what: "start to look for paths", source };
    Teller::start(Arc::clone(&mount.state)).map_err(system)
}
