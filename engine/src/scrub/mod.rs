//! Scrubbing: all that is in use is loaded, a little at a time, so that what has gone bad is found while there
//! is something to repair it from (NOVA-Fortis 4.1).

mod data;
mod entries;
mod exempt;
mod kept;
mod metadata;
mod paths;
mod remap;
mod report;
mod step;

pub use paths::PathSearch;
pub(crate) use paths::joined;
pub use report::{Finding, Outcome, SuperblockDamage, What};
pub use step::Scrub;
