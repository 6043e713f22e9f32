//! The owner's side of main memory from the pool: programs are lent pages that no file needs.
//!
//! * [`source`]: where chunks come from, by method.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod source;
