//! What a server is made of, and why it can't be.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::THREAD;
use super::listen::Listener;
use super::running::Server;
use super::shared::Shared;
use super::worker::Worker;
use crate::export::{Export, Exports};

/// Why a server can't be started.
#[derive(thiserror::Error, Debug)]
pub enum ServerError {
    /// A name or a description is none that the protocol has.
    #[error("an export can't be named or described so: {0:?}")]
    Name(String),
    /// Two have one name.
    #[error("there are two exports {0:?}")]
    TwoExports(String),
    /// The one that is meant where no name is given is not there.
    #[error("there is no export {0:?}")]
    NoDefault(String),
    /// Nobody could connect.
    #[error("a server needs a socket to listen at, and an export")]
    Nothing,
    /// Others could read along.
    #[error("nothing is encrypted, so only loopback addresses can be listened at, and {0} is none")]
    NotLoopback(SocketAddr),
    /// A server lives there.
    #[error("{0} is served already")]
    Served(PathBuf),
    /// Something else is there.
    #[error("{0} is there, and is no socket")]
    NotASocket(PathBuf),
    /// The system can't listen there.
    #[error("can't listen at {path}: {source}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system can't listen there.
    #[error("can't listen at {address}: {source}")]
    Address {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The system has no means.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// How much a server does at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Threads; one at least.
    pub workers: usize,
    /// Clients at a time; others are refused. Each holds about 2.5 MiB at most.
    pub max_clients: usize,
    /// How long a client may take until it has chosen an export; and, when all is said, to take the last replies.
    pub handshake: Duration,
}

impl Default for Limits {
    /// A thread for each processor up to four, 256 clients, 10 s.
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self { workers: cpus.min(4), max_clients: 256, handshake: Duration::from_secs(10) }
    }
}

/// A server that is not started yet.
#[derive(Default)]
pub struct Builder {
    exports: Vec<Export>,
    default: Option<String>,
    unix: Vec<PathBuf>,
    tcp: Vec<SocketAddr>,
    limits: Limits,
}

impl Builder {
    /// Serves `export` as well.
    #[must_use]
    pub fn export(mut self, export: Export) -> Self {
        self.exports.push(export);
        self
    }

    /// Serves the export `name` to clients that name none. Where there is only one export, it is the one.
    #[must_use]
    pub fn default_export(mut self, name: impl Into<String>) -> Self {
        self.default = Some(name.into());
        self
    }

    /// Listens at a Unix socket, too: for its owner only. What a dead server left there is replaced.
    #[must_use]
    pub fn unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.unix.push(path.into());
        self
    }

    /// Listens at `address`, too, which has to be a loopback address. Port 0 is any that is free.
    #[must_use]
    pub fn tcp(mut self, address: SocketAddr) -> Self {
        self.tcp.push(address);
        self
    }

    /// With these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// Why it can't be; nothing is left of it then.
    pub fn start(self) -> Result<Server, ServerError> {
        let exports = self.exports()?;
        let Self { unix, tcp, mut limits, .. } = self;
        limits.workers = limits.workers.max(1);
        let unix = unix.iter().map(|path| Listener::unix(path));
        let tcp = tcp.into_iter().map(Listener::tcp);
        let listeners = unix.chain(tcp).collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners.iter().filter_map(Listener::address).collect();
        let system = |what| move |source| ServerError::System { what, source };
        let shared = Shared::new(exports, limits).map_err(io::Error::from);
        let shared = Arc::new(shared.map_err(system("make a server's events"))?);
        let mut server = Server::new(Arc::clone(&shared), addresses);
        let mut listeners = Some(listeners);
        for number in 0..limits.workers {
            let listeners = listeners.take().unwrap_or_default();
            let worker = Worker::new(Arc::clone(&shared), number, listeners);
            let worker = worker.map_err(|code| system("wait for events")(code.into()))?;
            let thread = thread::Builder::new().name(THREAD.into());
            let started = thread.spawn(move || worker.run());
            server.add(started.map_err(system("start a server's thread"))?);
        }
        Ok(server)
    }

    /// The exports, where they can be told apart.
    fn exports(&self) -> Result<Exports, ServerError> {
        if self.exports.is_empty() || (self.unix.is_empty() && self.tcp.is_empty()) {
            return Err(ServerError::Nothing);
        }
        let mut names = HashSet::new();
        for export in &self.exports {
            if !export.is_named_well() {
                return Err(ServerError::Name(export.name().into()));
            }
            if !names.insert(export.name()) {
                return Err(ServerError::TwoExports(export.name().into()));
            }
        }
        let default = match (&self.default, &self.exports[..]) {
            (Some(name), _) if !names.contains(&**name) => {
                return Err(ServerError::NoDefault(name.clone()));
            }
            (Some(name), _) => Some(name.clone()),
            (None, [only]) => Some(only.name().into()),
            (None, _) => None,
        };
        Ok(Exports::new(self.exports.clone(), default))
    }
}
