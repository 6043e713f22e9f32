//! Block devices over sockets: the NBD protocol (docs/nbd.md), and a server for it.
//!
//! * [`Errno`]: why a request fails
//! * [`Device`]: what is served
//! * `buffer`: bytes on their way, in memory that is used again
//! * `complaints`: what the log says of what clients cause
//! * `wire`: the structures and numbers of the protocol, from bytes and to bytes
//! * [`Export`]: a device with its name, and how much was asked of it
//! * `session`: one client's conversation, without any socket: bytes in, calls of the device, bytes out
//! * [`Server`]: listens, and carries many clients' bytes on few threads
//!
//! A module uses only those above it in this list.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod buffer;
mod complaints;
mod device;
mod errno;
mod export;
mod server;
mod session;
mod wire;

pub use device::{BlockSizes, Device, Extent, WriteZeroes};
pub use errno::Errno;
pub use export::{Export, Statistics};
pub use server::{Builder, Limits, Server, ServerError, Tls, TlsError, Waits};
