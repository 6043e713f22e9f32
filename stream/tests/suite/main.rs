//! Tests of streams, in one program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod edges;
mod pieces;
mod round_trip;
mod sending;
