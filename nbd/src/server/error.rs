//! Why a server can't be started.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    #[error(
        "{0} is no loopback address: it can't be listened at without TLS, for which there is no certificate"
    )]
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
