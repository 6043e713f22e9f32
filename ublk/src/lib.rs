//! Block devices of the kernel that a process answers for: `/dev/ublkbN`, by the driver `ublk_drv` of Linux 6.4 or later.
//!
//! * `wire`: the structures and numbers of the driver
//! * `parameters`: what a device is told to be
//! * `request`: a request of the kernel, checked, as a call of the device
//! * [`Error`]: why there is no device
//! * `descriptors`: where the kernel writes what it wants
//! * `control`: devices made, started, stopped and deleted
//! * `tags`: commands by which requests come and answers go
//! * `queue`: a thread that answers requests
//! * [`Disk`]: a device, from when it is there until it is deleted
//!
//! A module uses only those above it in this list. What is served is a [`lode_nbd::Device`]: whatever NBD serves.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod control;
mod descriptors;
mod disk;
mod error;
mod parameters;
mod queue;
mod request;
mod tags;
mod wire;

pub use disk::{Disk, Settings};
pub use error::Error;
pub use wire::CONTROL;
