//! A whole region as one device: after every crash each sector holds what it may, and nothing that a flush or a durable write has
//! promised is missing. Each fence, each write-back and each wait that makes it so is noticed where it is left out.

mod explore;
mod memory;
mod steps;

use std::collections::BTreeSet;

use lode_crash::region::{LeftOut, Profile, Rules};
use lode_crash::states::Budget;
use lode_pmem::{RawRule, WriteScheme};

use explore::{Tally, Task, explore, is_for};
use steps::{CASES, Case, WATCHED, WRITTEN_AT_ONCE, Way};

const GLANCE: Budget = Budget { whole: 12, torn: 3 };
const QUICK: Budget = Budget { whole: 40, torn: 20 };

fn ways() -> impl Iterator<Item = Way> {
    let deferred = [None, Some(100), Some(1)];
    WriteScheme::ALL
        .into_iter()
        .flat_map(move |scheme| deferred.map(|deferred| Way { scheme, deferred }))
}

fn cases(way: Way) -> impl Iterator<Item = &'static Case> {
    let by_hand: &[&Case] = match way.scheme {
        WriteScheme::Cached => &[&WRITTEN_AT_ONCE],
        _ => &[&WRITTEN_AT_ONCE, &WATCHED],
    };
    CASES.iter().chain(by_hand.iter().copied()).filter(move |case| is_for(case, way))
}

/// What a crash is: and of the first kind, with lines that are streamed in one piece.
fn kinds() -> impl Iterator<Item = Rules> {
    let plain = Profile::ALL.map(|profile| Rules { profile, ..Rules::default() });
    plain.into_iter().chain([Rules { whole_lines: true, ..Rules::default() }])
}

#[test]
fn nothing_that_a_raw_device_has_promised_is_missing_after_a_crash() {
    for rules in kinds() {
        let mut tally = Tally::default();
        for way in ways() {
            // (Over a file what is measured is not durable.)
            let is_promised =
                |case: &&Case| rules.profile != Profile::File || case.name != WATCHED.name;
            for case in cases(way).filter(is_promised) {
                let task = Task { way, rules, left_out: None, budget: QUICK };
                explore(case, task, &mut tally).unwrap_or_else(|what| panic!("{what}"));
            }
        }
        let Tally { points, judged, torn, .. } = tally;
        println!("{rules:?}: {points} points, {judged} states, {torn} with torn sectors");
        assert!(judged > 1000 && torn > 100, "{rules:?}: {judged} states, {torn} torn");
    }
}

/// Looks for a state that is wrong; the places that were come to are noted.
fn is_noticed(
    (rule, left_out): (Option<RawRule>, Option<LeftOut>),
    sites: &mut BTreeSet<LeftOut>,
) -> Option<String> {
    for profile in [Profile::Adr, Profile::File] {
        let rules = Rules { profile, left_out, ..Rules::default() };
        for way in ways() {
            for case in
                cases(way).filter(|case| profile != Profile::File || case.name != WATCHED.name)
            {
                let mut tally = Tally::default();
                let task = Task { way, rules, left_out: rule, budget: GLANCE };
                if let Err(what) = explore(case, task, &mut tally) {
                    return Some(what);
                }
                sites.extend(tally.sites);
            }
        }
    }
    None
}

#[test]
fn each_fence_and_write_back_of_a_raw_device_that_is_left_out_is_noticed() {
    let mut sites = BTreeSet::new();
    assert_eq!(is_noticed((None, None), &mut sites), None);
    let is_ours = |site: &LeftOut| site.site().file.starts_with("pmem/src/raw/");
    assert!(sites.iter().all(is_ours), "{sites:#?}");
    let kinds = |kind: &str| sites.iter().filter(|site| site.kind() == kind).count();
    // Of a write, of a write that is measured, of a barrier, and the system's; of a scheme, and of a barrier.
    assert_eq!((kinds("fence"), kinds("write-back")), (4, 2), "{sites:#?}");
    let mut missed = Vec::new();
    for left_out in sites {
        match is_noticed((None, Some(left_out)), &mut BTreeSet::new()) {
            Some(what) => println!("{left_out}: {what}"),
            None => missed.push(left_out.to_string()),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn each_rule_of_a_raw_device_that_is_left_out_is_noticed() {
    for rule in RawRule::ALL {
        match is_noticed((Some(rule), None), &mut BTreeSet::new()) {
            Some(what) => println!("{rule:?}: {what}"),
            None => panic!("{rule:?} is not noticed"),
        }
    }
}
