//! Random sequences, and how failing ones get short.

use crate::support::sequences::holds_for_all;
use lode_crash::case::Case;
use lode_crash::explore::{Limits, Memo, Setup, explore};
use lode_crash::region::Rules;
use lode_crash::states::Budget;
use lode_engine::Rule;
use lode_testkit::op::{Op, print};

/// Fails where `second` comes behind `first`, anywhere in the sequence.
fn never_behind(
    case: &Case,
    first: fn(&Op) -> bool,
    second: fn(&Op) -> bool,
) -> Result<(), String> {
    let mut all = case.before.iter().chain(&case.ops);
    match all.any(first) && all.any(second) {
        true => Err("one behind the other".to_owned()),
        false => Ok(()),
    }
}

#[test]
fn a_planted_failure_shrinks_to_the_two_operations_it_takes() {
    for seed in 0..5 {
        let property = |case: &Case| {
            let rename = |op: &Op| matches!(op, Op::Rename { .. });
            never_behind(case, rename, |op| matches!(op, Op::Unlink { .. }))
        };
        let broken = holds_for_all(seed, 200, property).unwrap_err();
        let all = [broken.case.before, broken.case.ops].concat();
        assert_eq!(all.len(), 2, "seed {seed}:\n{}", print(&all));
        assert!(matches!(all[0], Op::Rename { .. }) && matches!(all[1], Op::Unlink { .. }));
        assert_eq!(broken.why, "one behind the other");
    }
}

#[test]
fn arguments_shrink_too() {
    let property = |case: &Case| {
        let mut all = case.before.iter().chain(&case.ops);
        let long = |op: &Op| matches!(op, Op::Write { data, .. } if data.len >= 100);
        if all.any(long) { Err("a long write".to_owned()) } else { Ok(()) }
    };
    let broken = holds_for_all(1, 200, property).unwrap_err();
    let [Op::Write { offset: 0, data, .. }] = &broken.case.ops[..] else {
        panic!("not the simplest:\n{}", print(&broken.case.ops));
    };
    assert!(data.len == 100 && data.fill <= 1, "{data:?}");
}

#[test]
fn what_holds_is_not_shrunk() {
    assert!(holds_for_all(1, 50, |_| Ok(())).is_ok());
}

/// What the explorer finds in a random case, with or without a rule of the engine.
fn explored(case: &Case, left_out: Option<Rule>) -> Result<(), String> {
    let (geometry, rules) = (case.geometry.clone(), Rules::default());
    let setup = Setup {
        geometry,
        rules,
        left_out,
        seed: 1,
        asked: Default::default(),
        stop: Default::default(),
    };
    let points = Budget { whole: 12, torn: 4 };
    let limits = Limits { points, inside_every: 32, then_every: 64, ..Limits::QUICK };
    explore(case, &setup, &limits, &mut Memo::default())
        .map(|_| ())
        .map_err(|failure| failure.to_string())
}

#[test]
fn random_sequences_survive_a_cut_anywhere() {
    if let Err(broken) = holds_for_all(7, 100, |case| explored(case, None)) {
        panic!("{}", broken.why);
    }
}

#[test]
fn a_rule_left_out_is_found_by_random_sequences_and_shrinks_to_few_operations() {
    let lost = |case: &Case| explored(case, Some(Rule::LinkInOne));
    let broken = holds_for_all(1, 200, lost).unwrap_err();
    let all = [broken.case.before, broken.case.ops].concat();
    assert!(all.len() <= 8, "{}", print(&all));
}
