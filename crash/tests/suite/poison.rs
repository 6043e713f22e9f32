//! Besides what a crash leaves, some memory can't be loaded: what has a copy costs nothing, and nothing wrong is shown.

use lode_crash::case::Case;
use lode_crash::explore::{Failure, Limits, Memo, Setup, Stage, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Outcome, ReplayId, Set, job_of, run_batch};
use lode_crash::workload::scenarios;
use lode_engine::{Protection, Rule};

/// Every other state that is judged; at level `none` one in twenty.
const EACH: Limits =
    Limits { poisoned_every: 20, inside_every: 0, then_every: 0, ..Limits::GLANCE };

fn jobs(level: Protection) -> Vec<Job> {
    let is_of = |case: &Case| case.geometry.format().protection == level;
    let cases = scenarios().into_iter().enumerate().filter(|(_, case)| is_of(case));
    cases.map(|(number, case)| job_of((Set::Hard, number), case, Profile::Adr, 1)).collect()
}

fn explored(jobs: &[Job]) -> Outcome {
    run_batch(jobs, &Batch { limits: EACH, workers: 2, time_max: None, stop: Stop::NEVER }, &())
}

/// The jobs, and the story of each that fails.
fn told(jobs: &[Job], outcome: &Outcome) -> String {
    let story = |(job, failure): &(usize, Box<Failure>)| {
        let (job, path) = (jobs[*job].id, failure.path.clone());
        format!("{}\n{failure}\n", ReplayId { job, path })
    };
    outcome.failures.iter().take(4).map(story).collect()
}

#[test]
fn what_cannot_be_loaded_costs_no_more_than_it_must() {
    for (level, least) in Protection::ALL.into_iter().zip([2000, 3000, 4000]) {
        let jobs = jobs(level);
        let outcome = explored(&jobs);
        let poisoned = outcome.tally.poisoned;
        println!("{}: {poisoned} in {:?}", level.name(), outcome.time);
        assert!(outcome.failures.is_empty(), "{}", told(&jobs, &outcome));
        assert!(poisoned >= least, "{}: {poisoned}", level.name());
    }
}

/// What level `full` needs to restore data: where it is left out, a state is wrong only with memory that can't be loaded.
#[test]
fn what_is_left_out_is_noticed_by_it() {
    let jobs = jobs(Protection::Full);
    for rule in [Rule::ParityKept, Rule::SecondChecksum, Rule::StripsVerified] {
        let noticed = jobs.iter().find_map(|job| {
            let setup = Setup { left_out: Some(rule), ..job.setup() };
            let failure = job.run(&setup, &EACH, &mut Memo::default()).err()?;
            let is_of_it = failure.path.legs.last().is_some_and(|leg| leg.stage == Stage::Poison);
            is_of_it.then_some((job, failure))
        });
        let (job, failure) = noticed.unwrap_or_else(|| panic!("{} is not noticed", rule.name()));
        let id = ReplayId { job: job.id, path: failure.path.clone() };
        println!("{}: {id}: {}", rule.name(), failure.what);
        let path = id.to_string().parse::<ReplayId>().unwrap().path;
        let without = job.replay(&path, Some(Mutant::Rule(rule)));
        assert!(without.reached && without.wrong, "{id}: {}", without.story);
        let sound = job.replay(&path, None);
        assert!(sound.reached && !sound.wrong, "{id}: {}", sound.story);
        assert!(sound.story.to_string().contains("memory can't be loaded of what that left"));
    }
}

/// Where both copies can't be loaded nothing is left to restore anything from: that is an error, which the levels that
/// promise none must not give; at level `none` it may be.
#[test]
fn what_has_no_copy_is_an_error_that_only_level_none_may_give() {
    for (level, may) in [(Protection::None, true), (Protection::Metadata, false)] {
        let mut jobs = jobs(level).into_iter();
        let job = jobs.find(|job| !job.case.before.is_empty()).unwrap();
        let lines = job.case.geometry.bytes / 64 - 128;
        let path = format!("s0p0c0:m{lines}p64c0").parse().unwrap();
        let told = job.replay(&path, None);
        assert!(told.reached && told.wrong != may, "{}: {}", level.name(), told.story);
        let beyond = format!("s0p0c0:m{}p64c0", lines + 65).parse().unwrap();
        assert!(!job.replay(&beyond, None).reached, "there is no such memory");
    }
}
