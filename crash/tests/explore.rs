//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lode_crash::explore::{Setup, Tally, explore, explore_and_shrink};
use lode_crash::simulated::{LeftOut, LineStores};
use lode_engine::{PageClass, Rule};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::parse::parse;
use lode_testkit::rng::Rng;

use lode_crash::scenarios::{SCENARIOS, Scenario};

/// Runs that shrinking a violation may take.
const TRIES: usize = 60;

fn setup_of(scenario: &Scenario, seed: u64) -> Setup {
    Setup {
        seed,
        log_lines: 63,
        bytes: scenario.kib << 10,
        lanes: scenario.lanes,
        class: if scenario.huge { PageClass::Huge } else { PageClass::Small },
        relaxed: scenario.relaxed,
        ..Setup::default()
    }
}

fn run_scenario(scenario: &Scenario, setup: &Setup) -> Result<Tally, String> {
    let before = parse(&(scenario.before)()).unwrap();
    let ops = parse(&scenario.ops.replace(';', "\n")).unwrap();
    explore_and_shrink(setup, &before, &ops, TRIES)
        .map_err(|violation| format!("{}: {violation}", scenario.name))
}

#[test]
fn known_hard_sequences_survive_a_cut_anywhere() {
    all_scenarios(63);
}

/// With four lines a page, logs roll over and are collected in nearly every sequence.
#[test]
fn known_hard_sequences_on_short_log_pages_survive_a_cut_anywhere() {
    all_scenarios(4);
}

fn all_scenarios(log_lines: u8) {
    let only = std::env::var("LODE_SCENARIO").ok();
    let mut failed = Vec::new();
    for scenario in SCENARIOS {
        if only.as_ref().is_some_and(|only| only != scenario.name) {
            continue;
        }
        let start = Instant::now();
        let setup = Setup { log_lines, ..setup_of(scenario, 1) };
        match run_scenario(scenario, &setup) {
            Ok(tally) => println!("{}: {tally} in {:?}", scenario.name, start.elapsed()),
            Err(failure) => failed.push(failure),
        }
    }
    assert!(failed.is_empty(), "{} scenarios fail\n{}", failed.len(), failed.join("\n"));
}

/// A random short sequence and where it runs, by number.
fn random_case(number: u64) -> (Setup, Vec<Op>, Vec<Op>) {
    let mut rng = Rng::new(number ^ 0xC0FFEE);
    let huge = rng.once_in(8);
    let setup = Setup {
        seed: number,
        bytes: if huge { 8 << 20 } else { rng.pick(&[192 << 10, 512 << 10, 1 << 20, 2 << 20]) },
        lanes: rng.pick(&[1, 2]),
        class: if huge { PageClass::Huge } else { PageClass::Small },
        relaxed: rng.once_in(6),
        atime: rng.once_in(8),
        line_stores: rng.pick(&[LineStores::Words, LineStores::Words, LineStores::Whole]),
        images: 12,
        log_lines: [63, 4, 9, 5][number as usize % 4],
        ..Setup::default()
    };
    let shape = Shape {
        names: 4,
        depth: 3,
        name_max: 136,
        offset_max: 20_000,
        len_max: rng.pick(&[600, 5000, 9000]),
        sparse: rng.once_in(3),
        slots: 2,
        remount_every: rng.pick(&[0, 10, 30]),
        maintain_every: 12,
        ..Shape::default()
    };
    let mut generator = Generator::new(number, shape);
    let quiet = rng.pick(&[0, 5, 20, 60, 200]);
    let before = generator.take(quiet);
    let count = 2 + rng.below(11) as usize;
    (setup, before, generator.take(count))
}

fn run_random(number: u64) -> Tally {
    let (setup, before, ops) = random_case(number);
    match explore_and_shrink(&setup, &before, &ops, TRIES) {
        Ok(tally) => tally,
        Err(violation) => panic!("random case {number}: {violation}"),
    }
}

#[test]
fn random_sequences_survive_a_cut_anywhere() {
    let mut all = Tally::default();
    let from = std::env::var("LODE_CASE").ok().map(|text| text.parse().unwrap());
    let cases = from.map_or(0..150, |from| from..from + 1);
    for number in cases {
        all.add(&run_random(number));
    }
    println!("{all}");
}

/// `LODE_CRASH_SECONDS` runs more random cases, for so long, from `LODE_CRASH_FROM` on.
#[test]
fn more_random_sequences_survive_a_cut_anywhere() {
    let Ok(seconds) = std::env::var("LODE_CRASH_SECONDS") else {
        return;
    };
    let end = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let from = std::env::var("LODE_CRASH_FROM").map_or(1000, |from| from.parse().unwrap());
    let mut all = Tally::default();
    let mut number = from;
    while Instant::now() < end {
        all.add(&run_random(number));
        number += 1;
    }
    println!("cases {from} to {number}: {all}");
}

/// What the scenarios find when `left_out` is left out; `None` if nothing.
fn found_without(left_out: LeftOut) -> Option<String> {
    SCENARIOS.iter().find_map(|scenario| {
        let setup = Setup { left_out: Some(left_out), ..setup_of(scenario, 1) };
        let before = parse(&(scenario.before)()).unwrap();
        let ops = parse(&scenario.ops.replace(';', "\n")).unwrap();
        let found = explore(&setup, &before, &ops).err()?;
        let what = found.what.lines().next().unwrap_or_default().to_owned();
        Some(format!("{}: {what}", scenario.name))
    })
}

/// All places that fence or write back.
fn places() -> BTreeSet<LeftOut> {
    let mut all = Tally::default();
    for scenario in SCENARIOS {
        all.add(&run_scenario(scenario, &setup_of(scenario, 1)).unwrap_or_default());
    }
    all.sites
}

/// What finds that a rule is left out: which scenario, lines of a log page, and what it saw.
fn found_without_rule(rule: Rule) -> Option<String> {
    let left_out = Some(LeftOut::Rule(rule));
    for (log_lines, scenario) in
        [4, 63].into_iter().flat_map(|lines| SCENARIOS.iter().map(move |one| (lines, one)))
    {
        let setup = Setup { left_out, log_lines, ..setup_of(scenario, 1) };
        let before = parse(&(scenario.before)()).unwrap();
        let ops = parse(&scenario.ops.replace(';', "\n")).unwrap();
        let found = catch_unwind(|| explore(&setup, &before, &ops));
        let (what, cut) = match found {
            Ok(Ok(_)) => continue,
            Ok(Err(found)) => (found.what.clone(), found.cut.clone()),
            Err(_) => ("panicked".to_owned(), String::new()),
        };
        let what: Vec<&str> = what.lines().take(2).collect();
        let cut = cut.lines().next().unwrap_or("no cut").trim().to_owned();
        return Some(format!("{} ({log_lines}): {} [{cut}]", scenario.name, what.join(" ")));
    }
    None
}

#[test]
fn every_rule_left_out_is_noticed() {
    let only = std::env::var("LODE_RULE").ok();
    let rules: Vec<Rule> = Rule::ALL
        .iter()
        .copied()
        .filter(|rule| {
            only.as_ref().is_none_or(|only| only.split(',').any(|only| only == rule.name()))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&rule) = rules.get(next.fetch_add(1, Relaxed)) {
            let start = Instant::now();
            let found = found_without_rule(rule);
            println!(
                "RULE {} | {} | {:?}",
                rule.name(),
                found.as_deref().unwrap_or("SURVIVES"),
                start.elapsed()
            );
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

/// Places whose fences or write-backs no single-threaded sequence misses, and why.
const EXCUSED: [(&str, &str); 2] = [
    ("recovery/repair.rs", "a link past the end leads to a page of another life"),
    ("store/table.rs", "the creation's own fence follows, unless another thread is faster"),
];

/// The tester is not blind: each fence and each write-back is missed when it is left out.
#[test]
fn every_fence_or_write_back_left_out_is_noticed() {
    let mut unnoticed = Vec::new();
    for left_out in places() {
        let (LeftOut::Fence(site) | LeftOut::WriteBack(site)) = left_out else { continue };
        let excused = EXCUSED.iter().find(|(file, _)| site.file.ends_with(file));
        if std::env::var("LODE_MUTANTS").is_err() && excused.is_some() {
            continue;
        }
        match (found_without(left_out), excused) {
            (Some(found), _) => println!("{left_out}: {found}"),
            (None, Some((_, why))) => println!("{left_out}: not noticed: {why}"),
            (None, None) => unnoticed.push(left_out.to_string()),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:#?}");
}
