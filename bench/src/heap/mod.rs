//! Main memory from a pool: what the paper by Oikawa draws, for this machine (`lode bench heap`).
//!
//! * [`subject`]: where memory comes from: anonymous memory, the three methods, a bitmap instead of lists, swapping
//! * `helper`: processes of the run. [`child`]: what the hidden ones do; `block`: memory that is touched there
//! * `owner`: a server of a pool; `bitmap`: one that looks for free pages in a bitmap; `swap`: a device to swap to
//! * `build`: a program that is compiled; `sources`: its files. `targets`: what must hold; [`run`]: all of it
//!
//! What a process is lent, and by whom, is the process's: so each subject is touched in one of its own, which lives
//! for all rounds.

mod bitmap;
mod block;
mod build;
pub mod child;
mod helper;
mod owner;
pub mod run;
mod sources;
pub mod subject;
mod swap;
mod targets;

pub use run::{Settings, run};

/// What rows call a build as a whole, and its phases.
pub const BUILDS: [&str; 3] = build::WORKLOADS;

/// What rows of this run have as their mode.
pub const MODE: &str = "heap";
