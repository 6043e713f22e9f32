//! Runs many cases on all processors, and reports: of the engine as it is, and of mutants.

mod batch;
pub mod html;
mod id;
mod job;
mod jobs;
mod mutants;
mod report;
mod selection;

pub(crate) use batch::on_workers;
pub use batch::{Batch, Outcome, Progress, run_batch};
pub use id::{JobId, ReplayId, Set};
pub use job::Job;
pub use jobs::{case, job_of, jobs_of};
pub use mutants::{Mutant, Verdict, mutants_of, run_mutants};
pub use report::{FailureReport, MutantReport, OperationReport, Report, Story, stories};
pub use selection::{What, left_out, select};
