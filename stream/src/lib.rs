//! Snapshots as streams of bytes, for backup and replication through any pipe.
//!
//! * `wire`: what a stream is made of (docs/stream.md): a header, and changes in frames, each under a checksum of all
//!   before it
//! * `differ`: the changes that make one tree of a pool another, found without reading what both have
//! * [`Sender`]: a snapshot, or what differs between two, as a stream: always the same bytes
//! * [`Receiver`]: applies a stream to a pool, from any point on, wholly or not at all
//!
//! A module uses only those above it in this list.

mod differ;
mod error;
mod receive;
mod send;
mod wire;

pub use error::{Error, Result};
pub use receive::{Begun, Point, Receiver, Start, point_of};
pub use send::Sender;
pub use wire::Header;
