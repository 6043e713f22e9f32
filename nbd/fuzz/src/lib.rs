//! The server's conversations and parsers as they are, in a crate of their own: compiled once more, so that every
//! branch of them is seen and nothing else of the server has to be built.
//!
//! * [`conversation`]: bytes of a whole connection, over a device that is checked
//! * [`parsers`]: bytes of single structures
#![forbid(unsafe_code)]
#![allow(dead_code)] // What the server alone uses.

#[path = "../../src/buffer.rs"]
mod buffer;
#[path = "../../src/complaints.rs"]
mod complaints;
#[path = "../../src/device.rs"]
mod device;
#[path = "../../src/errno.rs"]
mod errno;
#[path = "../../src/export.rs"]
mod export;
#[path = "../../src/session/mod.rs"]
mod session;
#[path = "../../src/wire/mod.rs"]
mod wire;

mod bytes;
pub mod conversation;
mod disk;
pub mod parsers;
mod reference;
