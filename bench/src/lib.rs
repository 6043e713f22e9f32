//! Side-by-side measurements: Lode, other file systems, and what physics asks for, all in one
//! run on one machine, so that only ratios inside the run have to be believed.
//!
//! * [`report`]: what a run says; [`machine`]: where it was
//! * `stats`, `random`, `name`: arithmetic and names that are ready before the clock runs
//! * `medium`: a medium that does some instructions in another way
//! * [`calls`]: what a workload asks of a file system; `worker`: the loop that measures it
//! * [`workload`]: one file a family: what is done; [`subject`]: one file each: to what
//! * `course`: how a run goes on
//! * `place`: the run's own mounts, loop devices and files, taken away whatever happens
//! * [`plan`]: which cells there are; [`run`]: measures them, subjects taking turns
//! * [`block`]: the same of block devices; [`heap`]: of main memory from a pool
//! * [`breakdown`]: what the time of an operation goes into; [`risk`]: what scribbles can take
//! * `file_system`: the kernel's, for block devices; [`programs`]: whole programs on them
//! * [`targets`]: what must hold, judged from the rows; [`html`]: the report as a page
//!
//! A new workload is an entry of [`workload::ALL`] and a file beside it; a new subject is one of
//! [`subject::ALL`] and a file.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod block;
pub mod breakdown;
pub mod calls;
mod course;
mod error;
mod file_system;
pub mod heap;
pub mod html;
pub mod machine;
mod medium;
mod name;
pub mod place;
pub mod plan;
pub mod programs;
mod random;
pub mod report;
pub mod risk;
pub mod run;
mod stats;
pub mod subject;
pub mod targets;
mod turns;
mod worker;
pub mod workload;

pub use error::{BenchError, Result};
