//! The jobs of a collection of cases.

use super::{Job, JobId, Set};
use crate::case::Case;
use crate::region::Profile;
use crate::workload::{flips, pair, pair_count, random_case, scenarios, seq1, two_threads};

/// The case with this number, of a collection that every run with this seed has.
pub fn case(set: Set, number: usize, seed: u64) -> Option<Case> {
    let of = |cases: Vec<Case>| cases.into_iter().nth(number);
    match set {
        Set::Hard => of(scenarios()),
        Set::Seq1 => of(seq1()),
        Set::Seq2 => (number < pair_count()).then(|| pair(number)),
        Set::Pairs => of(two_threads()),
        Set::Random => Some(random_case(number as u64, seed)),
        Set::Bits => of(flips()),
        Set::Script => None,
    }
}

/// The jobs of all cases of a set, under a profile.
pub fn jobs_of(
    set: Set,
    cases: impl IntoIterator<Item = Case>,
    profile: Profile,
    seed: u64,
) -> Vec<Job> {
    let job = |(number, case)| job_of((set, number), case, profile, seed);
    cases.into_iter().enumerate().map(job).collect()
}

/// The job of the case with this number of a set.
pub fn job_of((set, number): (Set, usize), case: Case, profile: Profile, seed: u64) -> Job {
    // Whether a line is streamed in one piece is the CPU's affair: one case in eight.
    let whole_lines = profile == Profile::Adr && number % 8 == 7;
    Job { id: JobId { set, number, profile, whole_lines, seed }, case }
}
