//! Data has checksums, and the power fails anywhere while a snapshot is received, and while mapped pages leave bad
//! memory: nothing is lost, and in each case something that is left out is noticed.

use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Set, job_of, mutants_of, run_batch, run_mutants};
use lode_crash::workload::{scenarios, seq1};

/// The cases by a part of their names, and where what they are about is stored.
const ABOUT: [(&str, usize, &[&str]); 2] = [
    (
        "a snapshot is received where data has checksums",
        4,
        &["engine/src/snapshot/receive.rs", "engine/src/integrity/"],
    ),
    ("broken; read /a 0 ", 3, &["engine/src/file/exempt.rs", "engine/src/file/relocate.rs"]),
];

fn jobs(name: &str) -> Vec<Job> {
    let hard = scenarios().into_iter().enumerate().map(|(number, case)| (Set::Hard, number, case));
    let alone = seq1().into_iter().enumerate().map(|(number, case)| (Set::Seq1, number, case));
    let cases = hard.chain(alone).filter(|(.., case)| case.name.contains(name));
    cases.map(|(set, number, case)| job_of((set, number), case, Profile::Adr, 1)).collect()
}

#[test]
fn each_case_loses_nothing_and_notices_something_that_is_left_out() {
    let batch = Batch { limits: Limits::GLANCE, workers: 2, time_max: None, stop: Stop::NEVER };
    for (name, count, files) in ABOUT {
        let jobs = jobs(name);
        assert_eq!(jobs.len(), count, "{name}");
        for job in jobs {
            let job = std::slice::from_ref(&job);
            let sound = run_batch(job, &batch, &());
            let failures = sound.failures.iter();
            let text: String = failures.map(|(_, failure)| format!("{failure}\n")).collect();
            assert!(sound.failures.is_empty(), "{}: {text}", job[0].case.name);
            let mut mutants = mutants_of(&sound);
            mutants.retain(|mutant| match mutant {
                Mutant::Site(site) => files.iter().any(|file| site.site().file.starts_with(file)),
                Mutant::Rule(_) => false,
            });
            // (As many at a time as there are workers: who is not noticed is looked for long.)
            let noticed = mutants.chunks(batch.workers).find_map(|some| {
                let verdicts = run_mutants(some, job, &sound, &batch, &());
                verdicts.into_iter().find(|one| one.killed_by.is_some())
            });
            let name = &job[0].case.name;
            let noticed = noticed.unwrap_or_else(|| panic!("{name}: none of {mutants:?}"));
            println!("{name}: {} points, {noticed}", sound.tally.points);
        }
    }
}
