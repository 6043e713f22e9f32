//! A server: listens on sockets, and carries many clients' bytes on few threads.
//!
//! * `stream`: bytes from and to a socket, without waiting
//! * `listen`: sockets that clients come to
//! * `connection`: a client: its socket, its conversation, and bounded buffers between
//! * `shared`: what the threads have together
//! * `worker`: a thread and its clients
//! * [`Builder`], [`Server`]: how it begins and ends

mod builder;
mod connection;
mod listen;
mod running;
mod shared;
mod stream;
mod worker;

pub use builder::{Builder, Limits, ServerError};
pub use running::Server;

/// Name of a server's threads.
const THREAD: &str = "lode-nbd";
