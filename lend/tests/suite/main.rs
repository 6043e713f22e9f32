//! Memory that is lent, from a pool in a file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod granted;
mod sources;
