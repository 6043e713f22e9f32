//! The quick run keeps its word about time and states, and every mutant is noticed. These
//! measure: nothing else runs beside them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Instant;

use common::lode;

#[test]
fn a_quick_run_takes_less_than_a_minute_and_every_mutant_is_noticed() {
    let began = Instant::now();
    let json = lode(&["crash", "run", "--quick", "--json"]).expect(0).json();
    let (seconds, judged) = (began.elapsed().as_secs_f64(), json["judged"].as_u64().unwrap());
    println!("quick: {judged} states judged in {seconds:.1} s");
    assert!(seconds < 50.0, "{seconds} s");
    assert!(judged >= 100_000, "{judged} states judged");
    let each_second = json["judged_per_second"].as_f64().unwrap();
    println!("{each_second:.0} states judged a second");
    assert!(each_second >= 5000.0, "{each_second} a second");

    let began = Instant::now();
    let json = lode(&["crash", "mutants", "--json"]).expect(0).json();
    let [all, killed] = ["mutants", "mutants_killed"].map(|key| json[key].as_u64().unwrap());
    println!("mutants: {killed} of {all} killed in {:.1} s", began.elapsed().as_secs_f64());
    assert!(all >= 20 && killed == all, "{killed} of {all}");
    let verdicts = json["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len() as u64, all);
    for key in ["site", "kind", "killed_by"] {
        assert!(verdicts.iter().all(|verdict| verdict[key].is_string()), "{key}");
    }
}
