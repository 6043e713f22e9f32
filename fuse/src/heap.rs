//! A pool whose memory is lent to programs without a mount: from an open pool to a closed one.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use lode_engine::Pool;
use lode_host::StdHost;
use lode_lend::source::Region;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::answers::Desk;
use crate::control::HEAP_USER;
use crate::control::listener::{Answers, Bound, Listener, Sessions};
use crate::control::place;
use crate::error::{MountError, Result};
use crate::fs::State;
use crate::lending;
use crate::notify::tell_manager;
use crate::options::MountOptions;
use crate::server::{Event, Watcher, maintain};
use crate::users::Users;
use crate::wire::Notices;

/// What such a server answers on its control socket besides `wait` and `heap`.
const OPS: [&str; 5] = ["ping", "info", "stats", "wear", "heap-stats"];

/// A pool whose memory can be had.
///
/// Dropping it without [`HeapServer::run_with`] closes the pool.
pub struct HeapServer<M: Region + 'static> {
    state: Arc<State<M, StdHost>>,
    options: MountOptions,
    /// Who uses it, where it is to end when nobody does.
    users: Option<Arc<Users>>,
    control: Option<Listener>,
    signals: Option<Signals>,
    closed: bool,
}

impl<M: Region + 'static> HeapServer<M> {
    /// Lends the memory of `pool` from now on, by a control socket that is found by the pool's path, as `options` says it.
    /// SIGTERM, SIGINT and SIGHUP mean to end.
    ///
    /// If this fails the pool is closed.
    ///
    /// # Errors
    /// [`MountError::Control`] and others.
    pub fn start(pool: Pool<M, StdHost>, options: &MountOptions) -> Result<Self> {
        Self::start_with(pool, options, &place::directory(), false)
    }

    /// As [`HeapServer::start`], but it ends by itself when no command uses it any more (as `heap-user` on the control socket
    /// says it) and no program has memory.
    ///
    /// # Errors
    /// As [`HeapServer::start`].
    pub fn start_while_used(pool: Pool<M, StdHost>, options: &MountOptions) -> Result<Self> {
        Self::start_with(pool, options, &place::directory(), true)
    }

    /// As [`HeapServer::start`], with the control socket in the directory `control`; `while_used`: it ends by itself.
    ///
    /// # Errors
    /// As [`HeapServer::start`].
    pub fn start_with(
        pool: Pool<M, StdHost>,
        options: &MountOptions,
        control: &Path,
        while_used: bool,
    ) -> Result<Self> {
        let mut options = options.clone();
        if let Ok(path) = std::fs::canonicalize(&options.pool) {
            options.pool = path;
        }
        let state = Arc::new(State::new(pool, None));
        // From here on whatever fails closes the pool.
        let users = while_used.then(Users::new);
        let mut server =
            Self { state, options, users, control: None, signals: None, closed: false };
        let path = server.options.pool.clone();
        let bound = Bound::new(control, &path, &path)?;
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|source| MountError::System { what: "handle signals", source })?;
        server.signals = Some(signals);
        lending::lend(&server.state, &server.options.heap)?;
        let state = Arc::clone(&server.state);
        let desk = Desk::new(state, path, server.options.clone(), None, Notices::default());
        let answers: Answers = Box::new(move |op, request| {
            OPS.contains(&op).then(|| desk.answer(op, request)).flatten()
        });
        let state = Arc::clone(&server.state);
        let users = server.users.clone();
        let sessions: Sessions = Box::new(move |stream, line| match &users {
            Some(users) if line.get("op").is_some_and(|op| op == HEAP_USER) => users.admit(stream),
            _ => state.lending.admit(stream, line),
        });
        server.control = Some(bound.serve(Arc::new(answers), sessions)?);
        Ok(server)
    }

    /// Calls `ready`, and serves until a signal asks to end; then closes the pool.
    ///
    /// # Errors
    /// [`MountError::Close`] where the pool could not be closed cleanly, and others.
    pub fn run_with(mut self, ready: impl FnOnce()) -> Result<()> {
        let (tell, events) = mpsc::channel();
        let Some(signals) = self.signals.take() else {
            return Err(MountError::NotMounted(self.options.pool.clone()));
        };
        let watcher = Watcher::start(signals, tell.clone())?;
        let maintenance = maintain(&self.state, self.options.read_only, tell.clone())?;
        tracing::info!(pool = %self.options.pool.display(), "memory can be had");
        ready();
        tell_manager("READY=1");
        let event = match &self.users {
            Some(users) => users.wait(&events, tell, || self.state.lending.is_used()),
            None => {
                drop(tell);
                Some(events.recv().unwrap_or(Event::Failed))
            }
        };
        match event {
            Some(Event::Signal(signal)) => {
                tracing::info!(signal, "ending");
                tell_manager("STOPPING=1");
            }
            None => tracing::info!("ending: nobody uses it any more"),
            // (What has failed the gate tells.)
            _ => tracing::error!("the server failed"),
        }
        drop(maintenance);
        drop(watcher);
        let ended = self.close();
        if let Some(control) = self.control.take() {
            control.end(ended.as_ref().copied().map_err(ToString::to_string));
        }
        ended
    }

    fn close(&mut self) -> Result<()> {
        self.closed = true;
        let closed = self.state.stop();
        if self.state.gate.failed() {
            return Err(MountError::Panicked(self.options.pool.clone()));
        }
        closed.map_err(MountError::Close)
    }
}

impl<M: Region + 'static> Drop for HeapServer<M> {
    fn drop(&mut self) {
        if !self.closed
            && let Err(error) = self.close()
        {
            tracing::error!(%error, "the pool could not be closed");
        }
    }
}
