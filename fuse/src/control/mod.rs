//! The control socket: what a mount can be asked besides its files.
//!
//! A line of JSON is a request, a line of JSON its answer. Requests are
//! `{"op":"ping"}`, `{"op":"info"}`, `{"op":"stats"}`, `{"op":"wear","from":N,"group":N}` and
//! `{"op":"wait"}`, which is answered when the server has closed the pool. `{"op":"heap",...}` makes the connection a
//! session of a program that is lent memory, `{"op":"heap-user"}` says that a command uses a server while the connection lasts, and
//! `{"op":"heap-stats"}` tells of sessions. Every answer has `schema` and `ok`;
//! one that is not `ok` has `error`.

mod client;
pub(crate) mod listener;
pub mod place;

pub use client::{Client, Farewell, HeapUse, Standing};

/// Version of the messages: raised when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;
/// The `op` of a command whose programs are lent memory.
pub(crate) const HEAP_USER: &str = "heap-user";
/// Longest line either side accepts, in bytes.
pub const MAX_LINE: usize = 1 << 20;
