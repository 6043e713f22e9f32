//! Tests of volumes and of raw regions, in one program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod raw;
mod volumes;
