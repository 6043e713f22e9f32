//! Which jobs a run has, the ones that should come early first.

use lode_engine::PageClass;
use lode_testkit::rng::mix;

use super::{Job, JobId, Set, job_of, jobs_of};
use crate::case::{Case, Trouble};
use crate::explore::Stop;
use crate::region::Profile;
use crate::workload::{flips, pair_count, pairs, random_case, scenarios, seq1, share, two_threads};

/// One pair in so many belongs to runs that are not of all pairs.
const SHARE: usize = 40;
/// Which share of them.
const SHARE_NUMBER: usize = 0;
/// Random cases of a usual run, and of one of everything.
const RANDOM: usize = 60;
const RANDOM_FULL: usize = 2000;

/// What to explore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Something of everything.
    Usual,
    /// The same without huge pages, side by side: time may end it anywhere.
    Quick,
    /// Everything there is.
    Full,
    /// Every operation alone.
    Seq1,
    /// Every pair.
    Seq2,
    /// What notices mutants.
    ForMutants,
    /// A case of the user's.
    Script(Box<Case>),
}

/// The jobs of a run, under each of these profiles. When it is time to stop, what takes long to make
/// is made in a simpler way, only to be counted.
pub fn select(what: &What, profiles: &[Profile], seed: u64, stop: &Stop) -> Vec<Job> {
    let hard = || numbered(Set::Hard, scenarios());
    let threads = || numbered(Set::Pairs, two_threads());
    let bits = || numbered(Set::Bits, flips());
    let alone = || numbered(Set::Seq1, seq1());
    let case = |number| random_case(number, seed);
    let random = |count| numbered(Set::Random, (0..count as u64).map(case));
    let cases: Vec<Numbered> = match what {
        What::Script(case) => return script(case, profiles, seed),
        What::Seq1 => alone(),
        What::Seq2 => all_pairs(stop),
        What::Usual => {
            [hard(), threads(), bits(), alone(), some_pairs(SHARE, stop), random(RANDOM)].concat()
        }
        What::ForMutants => [brief(hard()), threads(), bits(), of_lending(alone())].concat(),
        What::Full => {
            [hard(), threads(), bits(), alone(), all_pairs(stop), random(RANDOM_FULL)].concat()
        }
        What::Quick => {
            let mut spread: Vec<_> = small(alone());
            spread.sort_by_key(|((_, number), _)| mix(*number as u64));
            let first = [small(hard()), threads(), bits()];
            woven(&first, &[some_pairs(SHARE, stop), random(RANDOM / 3), spread])
        }
    };
    let under = |case: &Numbered| {
        let (id, case) = case.clone();
        // A bit that flips is the same under all.
        let profiles = if case.trouble == Trouble::Bit { &profiles[..1] } else { profiles };
        profiles.iter().map(move |profile| job_of(id, case.clone(), *profile, seed))
    };
    cases.iter().flat_map(under).collect()
}

/// What a run leaves out of all that there is, in words; empty if nothing.
pub fn left_out(what: &What) -> &'static str {
    match what {
        What::Usual => {
            "39 of 40 pairs of operations, and most states of points with many (--full has them)"
        }
        What::ForMutants => "most sequences: mutants take only some",
        What::Quick => {
            "huge pages, 39 of 40 pairs of operations, and most states of points with many \
             (--full has them)"
        }
        What::Seq1 | What::Seq2 => "the other collections, and most states of points with many",
        What::Full | What::Script(_) => {
            "states beyond 96 looks at a point (and 24 at torn ones), 21 inside a recovery; \
             schedules of two threads beyond 4,000 of a case, and 100 of one with a large pool"
        }
    }
}

/// A case and its place.
type Numbered = ((Set, usize), Case);

/// Those without huge pages: a state of a large pool takes long.
fn small(mut cases: Vec<Numbered>) -> Vec<Numbered> {
    cases.retain(|(_, case)| case.geometry.class == PageClass::Small);
    cases
}

/// Cases that take as long as a fifth of all that mutants are looked for in, where shorter ones find the same.
const LONG: &str = "what was received is given up where ";

/// Those but the longest.
fn brief(mut cases: Vec<Numbered>) -> Vec<Numbered> {
    cases.retain(|(_, case)| !case.name.starts_with(LONG));
    cases
}

/// Those in which memory is lent: what is left out of that shows nowhere else.
fn of_lending(mut cases: Vec<Numbered>) -> Vec<Numbered> {
    cases.retain(|(_, case)| case.name.starts_with("lent, ") || case.name.starts_with("held: "));
    cases
}

/// All lists side by side, so that wherever time ends, something of each was done: `first` are done
/// when half of `rest` is.
fn woven(first: &[Vec<Numbered>], rest: &[Vec<Numbered>]) -> Vec<Numbered> {
    let place = |share: usize| {
        move |list: &Vec<Numbered>| {
            let (list, len) = (list.clone(), list.len());
            let place = move |(index, case)| (index * 1000 * share / len, case);
            list.into_iter().enumerate().map(place)
        }
    };
    let mut all: Vec<(usize, Numbered)> = first.iter().flat_map(place(1)).collect();
    all.extend(rest.iter().flat_map(place(2)));
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, case)| case).collect()
}

fn numbered(set: Set, cases: impl IntoIterator<Item = Case>) -> Vec<Numbered> {
    let cases = cases.into_iter().enumerate();
    cases.map(|(number, case)| ((set, number), case)).collect()
}

fn all_pairs(stop: &Stop) -> Vec<Numbered> {
    of_pairs((0..pair_count()).collect(), stop)
}

fn some_pairs(of: usize, stop: &Stop) -> Vec<Numbered> {
    of_pairs(share(SHARE_NUMBER, of), stop)
}

fn of_pairs(numbers: Vec<usize>, stop: &Stop) -> Vec<Numbered> {
    let cases = pairs(&numbers, stop);
    numbers.into_iter().map(|number| (Set::Seq2, number)).zip(cases).collect()
}

/// A script has few cases: lines are streamed both ways.
fn script(case: &Case, profiles: &[Profile], seed: u64) -> Vec<Job> {
    let mut jobs = Vec::new();
    for &profile in profiles {
        jobs.extend(jobs_of(Set::Script, [case.clone()], profile, seed));
        if profile == Profile::Adr {
            let id = JobId { set: Set::Script, number: 0, profile, whole_lines: true, seed };
            jobs.push(Job { id, case: case.clone() });
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::case;

    #[test]
    fn the_long_cases_are_two() {
        let hard = numbered(Set::Hard, scenarios());
        assert_eq!(brief(hard.clone()).len() + 2, hard.len());
    }

    #[test]
    fn the_id_of_each_job_names_its_case() {
        for what in [What::Usual, What::Quick] {
            let jobs = select(&what, &[Profile::Adr], 1, &Stop::NEVER);
            let ids: BTreeSet<_> = jobs.iter().map(|job| job.id).collect();
            assert_eq!(ids.len(), jobs.len(), "{what:?}");
            for job in jobs.iter().step_by(17) {
                assert_eq!(
                    case(job.id.set, job.id.number, job.id.seed).as_ref(),
                    Some(&job.case),
                    "{}",
                    job.id
                );
            }
        }
    }
}
