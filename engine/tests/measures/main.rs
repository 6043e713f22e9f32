//! Tests of the engine that measure times, in one program beside which nothing else should run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod million_files;
mod mount_time;
mod size;
mod snapshot_cost;

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MEASURING: RwLock<()> = RwLock::new(());

/// While this is held, no other test of this program runs. (One that has failed does not count.)
fn alone() -> RwLockWriteGuard<'static, ()> {
    MEASURING.write().unwrap_or_else(|failed| failed.into_inner())
}

/// While this is held, no test measures.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    MEASURING.read().unwrap_or_else(|failed| failed.into_inner())
}
