//! The quick run keeps its word about time and states. This measures: nothing else runs beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Instant;

use common::lode;

#[test]
fn a_quick_run_takes_less_than_a_minute() {
    let began = Instant::now();
    let json = lode(&["crash", "run", "--quick", "--json"]).expect(0).json();
    let (seconds, judged) = (began.elapsed().as_secs_f64(), json["judged"].as_u64().unwrap());
    println!("quick: {judged} states judged in {seconds:.1} s");
    assert!(seconds < 50.0, "{seconds} s");
    assert!(judged >= 100_000, "{judged} states judged");
    let each_second = json["judged_per_second"].as_f64().unwrap();
    println!("{each_second:.0} states judged a second");
    assert!(each_second >= 5000.0, "{each_second} a second");
}
