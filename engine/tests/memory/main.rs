//! Tests of the engine that have an allocator of their own: what its indexes take, and what it does where memory is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod allocator;
mod indexes;
mod refused;
