//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works. Every operation alone, in three profiles, and how fast
//! that is judged: nothing else runs beside this. (`survive` has more cases.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{SHORT, survive};
use lode_crash::explore::Limits;
use lode_crash::run::Set;
use lode_crash::workload::seq1;

#[test]
fn every_operation_alone_survives_a_cut_anywhere() {
    let limits = Limits { points: Limits::ALONE.points, ..SHORT };
    let outcome = survive(Set::Seq1, seq1().into_iter().enumerate(), limits);
    let each_second = outcome.tally.judged() as f64 / outcome.time.as_secs_f64();
    println!("{each_second:.0} a second");
    assert!(each_second >= 5000.0, "{each_second} a second");
    // The other sets are of data in many words, every combination of which looks different.
    let (points, exhausted) = (outcome.tally.points, outcome.tally.states.exhausted);
    assert!(exhausted * 100 >= points * 97, "{exhausted} of {points} points exhausted");
}
