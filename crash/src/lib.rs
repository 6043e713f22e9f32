//! The crash explorer: runs operations on a simulated persistent memory, cuts the power
//! everywhere, and judges what recovery makes of each state by the model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod case;
pub mod corrupt;
pub mod explore;
pub mod judge;
pub mod kept;
pub mod region;
pub mod run;
pub mod scenarios;
pub mod schedule;
pub mod states;
pub mod workload;
