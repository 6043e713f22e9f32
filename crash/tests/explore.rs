//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Instant;

use lode_crash::case::{Case, Geometry};
use lode_crash::explore::{Limits, Setup, Tally, explore};
use lode_crash::region::Rules;
use lode_crash::scenarios::{SCENARIOS, Scenario};
use lode_engine::PageClass;
use lode_testkit::parse::parse;

fn case_of(scenario: &Scenario) -> Case {
    Case {
        name: scenario.name.to_owned(),
        geometry: Geometry {
            bytes: scenario.kib << 10,
            lanes: scenario.lanes,
            class: if scenario.huge { PageClass::Huge } else { PageClass::Small },
            relaxed: scenario.relaxed,
            ..Geometry::default()
        },
        before: parse(&(scenario.before)()).unwrap(),
        ops: parse(&scenario.ops.replace(';', "\n")).unwrap(),
        beside: Vec::new(),
    }
}

#[test]
fn known_hard_sequences_survive_a_cut_anywhere() {
    let mut all = Tally::default();
    let start = Instant::now();
    for scenario in SCENARIOS {
        let case = case_of(scenario);
        let setup = Setup { geometry: case.geometry.clone(), rules: Rules::default(), seed: 1 };
        let began = Instant::now();
        match explore(&case, &setup, &Limits::QUICK) {
            Ok(tally) => {
                println!("{}: {} judged in {:?}", case.name, tally.judged(), began.elapsed());
                all.add(&tally);
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{all:#?}\n{} a second", all.judged() as f64 / seconds);
}
