//! The control socket: what a mount can be asked besides its files.
//!
//! A line of JSON is a request, a line of JSON its answer. Requests are
//! `{"op":"ping"}`, `{"op":"info"}`, `{"op":"stats"}`, `{"op":"wear","from":N,"group":N}` and
//! `{"op":"wait"}`, which is answered when the server has closed the pool. `{"op":"heap",...}` makes the connection a
//! session of a program that is lent memory, and `{"op":"heap-stats"}` tells of those. Every answer has `schema` and `ok`;
//! one that is not `ok` has `error`.

mod client;
pub(crate) mod listener;
pub mod place;

pub use client::Client;

/// Version of the messages: raised when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;
/// Longest line either side accepts, in bytes.
pub const MAX_LINE: usize = 1 << 20;
