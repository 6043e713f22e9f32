//! Several logical threads under a scheduler that a test decides, so that every run can be
//! repeated and all of them can be tried.
//!
//! Exactly one thread runs at a time. It may be changed at a switch point: before a lock is
//! taken, after one is given back, and wherever [`point`] is called. What happens between two
//! switch points is one step for the other threads.
//!
//! * [`Schedule`]: the choices of a run, as a short text
//! * [`Chooser`]: decides one run; [`Schedules`]: all runs with few preemptions, then random ones
//! * [`Threads`], [`run_scoped`]: run jobs; [`Outcome`]: what became of them
//! * [`SchedHost`], [`SchedMutex`], [`SchedRwLock`]: what an engine needs to be scheduled
//!
//! What it cannot see: orders of loads and stores of ordinary memory between two switch points,
//! and what a CPU may reorder there.

mod choice;
mod chooser;
mod enumerate;
mod host;
mod locks;
mod outcome;
mod seat;
mod state;
mod table;
mod threads;

pub use choice::Schedule;
pub use chooser::Chooser;
pub use enumerate::{Plan, Schedules};
pub use host::SchedHost;
pub use locks::{SchedMutex, SchedRwLock};
pub use outcome::{Event, Outcome, Step};
pub use seat::{current, point};
pub use threads::{Job, Threads, run_scoped};
