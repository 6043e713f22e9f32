//! Tests of databases on persistent memory, in one program. Apart from it are those that measure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod copies;
mod databases;
mod kill;
mod locks;
mod same;
mod threads;

/// Not a test of its own: what is killed.
#[test]
#[ignore = "started by the others"]
fn worker() {
    common::worker::work();
}
