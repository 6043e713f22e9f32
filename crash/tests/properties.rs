//! What the explorer has found in the engine: each stays found, by the smallest case that shows it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use lode_crash::case::{Case, Geometry};
use lode_crash::explore::{Limits, Memo, Setup, explore, replay};
use lode_crash::region::Rules;
use lode_crash::states::Budget;
use lode_testkit::parse::parse;

/// Every state is followed by operations in which the power fails again.
fn survives(name: &str, before: &str, ops: &str) {
    let case = Case {
        name: name.to_owned(),
        geometry: Geometry::default(),
        before: parse(before).unwrap(),
        ops: parse(ops).unwrap(),
        beside: Vec::new(),
    };
    let rules = Rules::default();
    let setup = Setup { geometry: case.geometry.clone(), rules, left_out: None, seed: 1 };
    let then = Budget { whole: 12, torn: 60 };
    let points = Budget { whole: 40, torn: 60 };
    let limits = Limits { points, then, then_every: 1, inside_every: 0, ..Limits::QUICK };
    if let Err(failure) = explore(&case, &setup, &limits, &mut Memo::default()) {
        panic!("{failure}");
    }
}

/// A record that a crash tore stayed in its place; the next one stored there, torn in its turn, made
/// it whole, and by then its session was an older one: half of a transaction counted.
#[test]
fn what_is_left_of_a_torn_record_is_not_completed_by_the_next_one() {
    survives("torn record", "create /a 33188 0", "link /a /x");
    survives("torn death", "create /a 33188 0", "unlink /a");
    survives("torn identity", "", "create /a 33188 0");
}

/// A new pool had its newer watermark where the next one was to be stored: torn, it left the older
/// one, whose place was then the next.
#[test]
fn a_watermark_is_never_stored_over_the_only_valid_one() {
    let used = "create /a 33188 0\nunlink /a\n";
    survives("watermarks", used, "maintain\ncreate /b 33188 0\nunlink /b\nmaintain");
}

/// A new log page whose header line a crash tore: the link word that it lacked was one of an earlier
/// life of the page, and led back to a page of the same log, which was called damage.
#[test]
fn a_link_word_of_an_earlier_life_of_a_log_page_is_no_damage() {
    let cases = lode_crash::workload::seq1();
    let case = cases.iter().find(|case| case.name == "collection: fast, directory, after 24");
    let case = case.unwrap();
    let setup =
        Setup { geometry: case.geometry.clone(), rules: Rules::default(), left_out: None, seed: 1 };
    let replayed = replay(case, &setup, &"s6p0c1x2.5.1x3".parse().unwrap());
    assert!(replayed.reached && !replayed.wrong, "{}", replayed.story);
}
