//! The owner's side of main memory from the pool: programs are lent pages that no file needs.
//!
//! * [`source`]: where chunks come from, by method
//! * [`Service`]: sessions of programs; `lender`: the thread that speaks with all of them, `session`: one connection,
//!   `filler`: chunks that are zeroed before somebody wants them
//! * `ledger`: who has what, within [`Limits`]; `wish`: what programs are asked for when files are short
//! * [`kept`]: files that programs have as their memory
//! * [`Facts`]: what is told of it; `complaints`: what the log says of who misbehaves
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod complaints;
mod facts;
mod filler;
pub mod kept;
mod ledger;
mod lender;
mod limits;
mod service;
mod session;
pub mod source;
#[cfg(test)]
mod tests;
mod wish;

pub use facts::{Facts, KeptFacts, ProgramFacts};
pub use limits::{Limits, READY};
pub use service::{SESSIONS_MOST, Service, Sources};
