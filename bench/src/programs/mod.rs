//! Whole programs on file systems, as the paper on PMBD measures them: on volumes of a pool, made and mounted as users do it,
//! beside memory that is no device, and beside devices that are memory and no pool.
//!
//! * `tree`: what programs are given to work on; `kit`: the same as archives, made once
//! * `program`: what each of them is asked to do; `files`, `dbench`, `postgres`: one file a kind
//! * `subject`: on what; `stack`: mounts, volumes and devices of one run, put up and taken down
//! * `run`: rounds of it all; `schemes`: which rows are compared with which

mod dbench;
mod files;
mod kit;
mod postgres;
mod program;
mod run;
mod schemes;
mod stack;
mod subject;
mod tree;

pub use program::{Program, by_id as program_by_id};
pub use run::{Settings, run};
#[cfg(test)]
pub(crate) use schemes::tests::rows_of;
pub(crate) use schemes::{Bar, Comparison, comparisons};
pub use subject::{Subject, by_id as subject_by_id};

/// All programs, in the order they are run.
pub fn all_programs() -> &'static [&'static dyn Program] {
    program::ALL
}

/// All subjects, in the order they are told.
pub fn all_subjects() -> &'static [Subject] {
    subject::ALL
}
