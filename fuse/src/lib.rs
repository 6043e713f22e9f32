//! The mount: a pool as a file system of the Linux kernel, through FUSE.
//!
//! [`Server`] mounts an open pool and serves it with several threads until the mount is
//! taken off or a signal asks to end; then it closes the pool. The server is the only
//! one that changes the pool, so the kernel keeps names, attributes, listings and
//! pages; writes go through to the pool and are durable when they return.
//!
//! * [`options`]: how to mount; [`mountpoint`]: what is mounted where, and dead mounts
//! * [`bare`]: a mount without a pool; `device`: the system calls that mount; `server`: the life of a mount
//! * [`wire`]: the protocol of the device; `fs`: the kernel's requests: names, attributes,
//!   data, directories
//! * [`control`]: the socket on which a mount answers questions; `answers`, `stats`: what it
//!   says, `scrub`, `snapshots`, `rollback`, `volumes`, `send`: what it does when asked, `views`: the same as files; [`notify`]: readiness
//! * `heap`: a pool that is served without a mount, `users`: for how long, `lending`: its memory, lent to programs
//! * `awake`: processors that do not fall asleep while requests come
//! * `damage`: what the log says of damage that requests meet; `paths`: where in the mount it is
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answers;
mod apart;
mod awake;
pub mod bare;
pub mod control;
mod damage;
mod device;
mod error;
mod fs;
mod heap;
#[cfg(feature = "inject")]
mod inject;
mod introduction;
mod lending;
mod lost;
pub mod mountpoint;
pub mod notify;
pub mod options;
mod paths;
mod rollback;
mod scrub;
mod send;
mod server;
mod snapshots;
mod stats;
mod unmount;
mod users;
mod views;
mod volumes;
pub mod wire;

pub use awake::Awake;
pub use error::{MountError, Result};
pub use fs::MAX_WRITE;
pub use heap::HeapServer;
pub use lending::HeapOptions;
pub use options::MountOptions;
pub use scrub::RATE as SCRUB_RATE;
pub use server::Server;
pub use unmount::unmount;
pub use views::{Ask, View};
