//! Lode's engine: a file system on persistent memory that knows no operating system.
//!
//! What it needs from outside (locks, time, CPU numbers, random bits, helpers for
//! parallel work) comes through [`Host`]; what it stores goes through the door,
//! [`lode_pmem::Door`]. Layers, each using only those above it in this list:
//!
//! * [`layout`]: the bytes on the medium, typed; seals
//! * `space`: free pages; `table`: inode slots; `lanes`: transactions and rounds
//! * `log`: walking, appending to and collecting the logs of inodes
//! * `inode`: what is known of an inode in memory, rebuilt from its log
//! * `namespace`, `file`: the operations
//! * `recovery`, `check`, `dump`: opening, checking and showing pools
//! * [`Pool`]: the public face
#![no_std]

extern crate alloc;

mod error;
mod host;
mod pool;
mod types;

pub use error::{Corruption, Error, Result, Unusable};
pub use host::Host;
pub use pool::*;
pub use types::*;
