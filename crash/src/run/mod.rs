//! Runs many cases on all processors, and reports: of the engine as it is, and of mutants.

mod batch;
mod id;
mod job;
mod jobs;
mod mutants;
mod report;

pub use batch::{Batch, Outcome, Progress, run_batch};
pub use id::{JobId, ReplayId, Set};
pub use job::Job;
pub use jobs::{case, jobs_of};
pub use mutants::{Mutant, Verdict, run_mutants};
pub use report::{FailureReport, MutantReport, OperationReport, Report};
