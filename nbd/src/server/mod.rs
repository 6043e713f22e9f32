//! A server: listens on sockets, and carries many clients' bytes on few threads.
//!
//! * [`ServerError`], [`Limits`]: why it can't be, and how much it does
//! * [`Tls`]: certificates, and what clients are offered with them
//! * `socket`: bytes from and to a socket, without waiting
//! * `records`: the same in the records of an encrypted connection
//! * `stream`: a client's bytes, in either way
//! * `places`: how many clients there may be, and from where
//! * `listen`: sockets that clients come to
//! * `connection`: a client: its socket, its conversation, and bounded buffers between
//! * [`Waits`]: whether a thread looks on for a moment before it sleeps
//! * `shared`: what the threads have together
//! * `worker`: a thread and its clients
//! * [`Server`], [`Builder`]: how it ends and begins

mod builder;
mod connection;
mod error;
mod limits;
mod linger;
mod listen;
mod places;
mod records;
mod running;
mod shared;
mod socket;
mod stream;
mod tls;
mod worker;

pub use builder::Builder;
pub use error::ServerError;
pub use limits::Limits;
pub use linger::Waits;
pub use running::Server;
pub use tls::{Tls, TlsError};
