//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lode_crash::explore::{Setup, Tally, explore, explore_and_shrink};
use lode_crash::images::choose;
use lode_crash::pages::Pages;
use lode_crash::simulated::{LeftOut, LineStores, Simulated};
use lode_engine::{FormatOptions, PageClass, Pool, Rule};
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
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

/// Rules that no scenario misses, and why.
const EXCUSED_RULES: [(Rule, &str); 5] = [
    (Rule::WatermarkFenced, "needs a transaction in flight while another thread makes a round"),
    (Rule::FreeAfterFence, "needs another thread that takes the page before the fence"),
    (Rule::LinkCheck, "needs a header line that lacks its link word alone: one torn line of 128"),
    (Rule::LinksPastEnd, "needs more operations after recovery: see below"),
    (Rule::PieceZeroed, "needs more operations after recovery: see below"),
];

#[test]
fn every_rule_left_out_is_noticed() {
    let all = std::env::var("LODE_MUTANTS").is_ok();
    let only = std::env::var("LODE_RULE").ok();
    let excused = |rule: Rule| EXCUSED_RULES.iter().any(|&(other, _)| other == rule);
    let wanted = |rule: &Rule| match &only {
        Some(only) => only == rule.name(),
        None => all || !excused(*rule),
    };
    let rules: Vec<Rule> = Rule::ALL.iter().copied().filter(wanted).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut unnoticed = Vec::new();
        while let Some(&rule) = rules.get(next.fetch_add(1, Relaxed)) {
            let found = found_without_rule(rule);
            println!("{}: {}", rule.name(), found.as_deref().unwrap_or("not noticed"));
            if found.is_none() && !excused(rule) {
                unnoticed.push(rule.name());
            }
        }
        unnoticed
    };
    let unnoticed = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut unnoticed = work();
        unnoticed.extend(other.join().unwrap());
        unnoticed
    });
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
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

/// What is done after a cut in the middle of `ops`, and after recovery from it, may be what
/// shows that a rule is left out: `after`, another opening, and the check.
fn found_after(
    rule: Option<Rule>,
    setup: &Setup,
    before: &str,
    ops: &str,
    after: &str,
) -> Option<String> {
    let host = || TestHost::new(7).leaving_out(rule);
    let new = |pages| Simulated::new(pages, LineStores::Words);
    let medium = new(Pages::new(setup.bytes));
    let format = FormatOptions { lanes: 1, log_lines: setup.log_lines, ..Default::default() };
    Pool::format(medium.clone(), host(), &format).unwrap();
    let pool = Pool::open(medium.clone(), host(), &setup.options()).unwrap();
    let mut handles = Handles::new();
    let mut run = |pool: &Pool<Simulated, TestHost>, text: &str| {
        for op in parse(text).unwrap() {
            let _ = execute(pool, &mut handles, &op);
        }
    };
    run(&pool, before);
    medium.record(true);
    run(&pool, ops);
    let mut rng = Rng::new(setup.seed);
    for point in medium.take_points() {
        for image in choose(&point, setup.images, &mut rng) {
            let medium = new(image.pages);
            let Ok(pool) = Pool::open(medium.clone(), host(), &setup.options()) else {
                return Some("does not open".to_owned());
            };
            run(&pool, after);
            if !after.ends_with("crash") {
                pool.close().unwrap();
            }
            let pages = medium.seen();
            let pool = match Pool::open(new(pages), host(), &setup.options()) {
                Ok(pool) => pool,
                Err(error) => return Some(format!("{error}")),
            };
            if let Some(damage) = pool.check(&mut |_, _| ()).unwrap().damage.first() {
                return Some(format!("{damage}"));
            }
        }
    }
    None
}

/// Rules that nothing misses before the pool is used again.
#[test]
fn rules_that_a_later_use_misses_are_noticed_then() {
    let long = repeated_names(6);
    let cases = [
        (
            Rule::LinksPastEnd,
            4,
            // The page that the log nearly grew by must stay free, and not be the first one.
            "create /y 33188 0\nwrite /y 0 100 1\ncreate /k 33188 0\nwrite /k 0 100 1\n\
             create /z 33188 0\nwrite /z 0 100 1\ncreate /d 16877 0\ncreate /d/a 33188 0\n\
             create /d/b 33188 0\ncreate /d/c 33188 0\ncreate /d/e 33188 0\n\
             setattr /y size=0\nsetattr /z size=0",
            "create /d/%=0.30 33188 0",
            "create /d/x 33188 0",
        ),
        (Rule::PieceZeroed, 63, long.as_str(), "write /a0 0 110592 1", "create /x 33188 0\ncrash"),
    ];
    for (rule, log_lines, before, ops, after) in cases {
        let setup = Setup { bytes: 192 << 10, log_lines, images: 60, ..Setup::default() };
        assert_eq!(found_after(None, &setup, before, ops, after), None);
        let found = found_after(Some(rule), &setup, before, ops, after);
        println!("{}: {found:?}", rule.name());
        assert!(found.is_some(), "{} is not noticed", rule.name());
    }
}

/// A full piece of inode table, and one behind it that came and went.
fn repeated_names(count: u64) -> String {
    let all: String = (0..count).map(|name| format!("create /a{name} 33188 0\n")).collect();
    all + "create /b 33188 0\ncreate /c 33188 0\nunlink /b\nunlink /c\nmaintain\n"
}
