//! How a bug of another system is kept out: a script holds at every level of protection, and the same
//! script, with the bug put in again, does not.

use std::collections::BTreeSet;

use lode_crash::case::{Case, Trouble};
use lode_crash::explore::{Limits, Memo, Setup, Tally};
use lode_crash::region::Profile;
use lode_crash::run::{Job, Mutant, Set, job_of};
use lode_crash::workload::parse_script;
use lode_engine::{Protection, Rule};

/// Bytes of a strip at level `full`.
const STRIP: u32 = 512;
/// How far a bug is looked for, the least first.
const LOOKS: [Limits; 3] = [Limits::GLANCE, Limits::QUICK, Limits::DEEP];

/// The script on a pool of a level. Pools whose metadata is there twice are so much larger.
fn job_at(level: Protection, script: &str, trouble: Trouble) -> Job {
    let case = parse_script(script).unwrap_or_else(|why| panic!("{why} in:\n{script}"));
    let mut case = Case { trouble, ..case };
    if level != Protection::None {
        case.geometry.bytes = 2 * case.geometry.bytes + (256 << 10);
        case.geometry.dead_zone = Some(0);
    }
    case.geometry.strip = (level == Protection::Full).then_some(STRIP);
    job_of((Set::Script, 0), case, Profile::Adr, 1)
}

/// Explores a script at a level: all holds.
fn sound(level: Protection, job: &Job) -> Tally {
    let tally = job.run(&job.setup(), &Limits::QUICK, &mut Memo::default());
    tally.unwrap_or_else(|failure| panic!("at level {level:?}:\n{failure}"))
}

/// Something is wrong when this is left out.
fn is_noticed(job: &Job, mutant: Mutant) -> bool {
    let mut setup: Setup = job.setup();
    match mutant {
        Mutant::Site(site) => setup.rules.left_out = Some(site),
        Mutant::Rule(rule) => setup.left_out = Some(rule),
    }
    LOOKS.iter().any(|limits| job.run(&setup, limits, &mut Memo::default()).is_err())
}

/// The script holds at every level; without the rule, at these it does not.
pub fn holds_by(rule: Rule, levels: &[Protection], script: &str) {
    for level in Protection::ALL {
        let job = job_at(level, script, Trouble::Power);
        let tally = sound(level, &job);
        if levels.contains(&level) {
            let noticed = tally.rules.contains(&rule) && is_noticed(&job, Mutant::Rule(rule));
            assert!(noticed, "level {level:?}: nothing is wrong without {}", rule.name());
        }
    }
}

/// A bit that flips behind the operations is never shown as right; without the rule it is.
pub fn holds_by_looking(rule: Rule, level: Protection, script: &str) {
    let job = job_at(level, script, Trouble::Bit);
    sound(level, &job);
    assert!(is_noticed(&job, Mutant::Rule(rule)), "nothing is wrong without {}", rule.name());
}

/// The script holds at every level; without any fence or write-back of these sources that it comes to, it does
/// not at those levels that come to it.
pub fn holds_by_each_fence_of(sources: &str, script: &str) {
    let is_of = |mutant: &Mutant| mutant.site().starts_with(sources);
    for level in Protection::ALL {
        let job = job_at(level, script, Trouble::Power);
        let sites = sound(level, &job).sites;
        let places: BTreeSet<Mutant> =
            sites.iter().map(|site| Mutant::Site(*site)).filter(is_of).collect();
        assert!(!places.is_empty(), "level {level:?} comes to no place of {sources}");
        for mutant in places {
            assert!(is_noticed(&job, mutant), "level {level:?}, without {mutant}");
        }
    }
}

/// The script holds at every level.
pub fn holds(script: &str) {
    for level in Protection::ALL {
        sound(level, &job_at(level, script, Trouble::Power));
    }
}
