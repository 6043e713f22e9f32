//! Tests of the server and of what it says, in one program. Apart from it are those that measure times, and the one that
//! listens to what is logged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod handshake;
mod requests;
mod server;
mod tls;
mod waits;
