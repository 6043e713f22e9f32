//! What a server is made of.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use super::error::ServerError;
use super::limits::Limits;
use super::listen::Listener;
use super::running::Server;
use super::shared::Shared;
use super::tls::Tls;
use super::worker::Worker;
use crate::export::{Export, Exports};

impl Server {
    /// One that is not started yet.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// A server that is not started yet.
#[derive(Default)]
pub struct Builder {
    exports: Vec<Export>,
    default: Option<String>,
    unix: Vec<PathBuf>,
    /// Of each of these the first that can be had.
    tcp: Vec<Vec<SocketAddr>>,
    tls: Option<Tls>,
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

    /// Listens at `address`, too, which has to be a loopback address where there is no [`Self::tls`]. Port 0 is any
    /// that is free.
    #[must_use]
    pub fn tcp(self, address: SocketAddr) -> Self {
        self.tcp_first_of(&[address])
    }

    /// The same of the first of these addresses that can be had, as a name may have several: all have to be such.
    #[must_use]
    pub fn tcp_first_of(mut self, addresses: &[SocketAddr]) -> Self {
        self.tcp.push(addresses.to_vec());
        self
    }

    /// Offers clients TLS, without which those of other machines get nothing.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
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
        let Self { unix, tcp, tls, mut limits, .. } = self;
        let tls = tls.as_ref();
        limits.workers = limits.workers.max(1);
        let has_unix = !unix.is_empty();
        let unix = unix.iter().map(|path| Listener::unix(path, tls));
        let tcp = tcp.iter().map(|addresses| Listener::tcp(addresses, tls));
        let listeners = unix.chain(tcp).collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners.iter().filter_map(Listener::address).collect();
        let system = |what| move |source| ServerError::System { what, source };
        let shared = Shared::new(exports, limits, has_unix).map_err(io::Error::from);
        let shared = Arc::new(shared.map_err(system("make a server's events"))?);
        let mut server = Server::new(Arc::clone(&shared), addresses);
        let mut listeners = Some(listeners);
        for number in 0..limits.workers {
            let listeners = listeners.take().unwrap_or_default();
            let worker = Worker::new(Arc::clone(&shared), number, listeners);
            let worker = worker.map_err(|code| system("wait for events")(code.into()))?;
            let thread = thread::Builder::new().name("lode-nbd".into());
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
