//! x
#![allow(missing_docs, clippy::all)]
use lode_crash::explore::{Limits, Memo};
use lode_crash::region::Profile;
use lode_crash::run::{Set, jobs_of};
use lode_crash::workload::{scenarios, seq1, two_threads};
use lode_engine::Rule;
#[test]
fn adhoc() {
    let rule = std::env::var("RULE").unwrap_or_default();
    let name = std::env::var("CASE").unwrap();
    let rule = Rule::ALL.iter().copied().find(|r| r.name() == rule);
    let set = std::env::var("SET").unwrap_or_default();
    let (set, cases) = match set.as_str() {
        "hard" => (Set::Hard, scenarios()),
        "bits" => (Set::Bits, lode_crash::workload::flips()),
        "seq1" => (Set::Seq1, seq1()),
        _ => (Set::Pairs, two_threads()),
    };
    let (mut total, mut n) = (0, 0);
    for profile in Profile::ALL {
        for job in jobs_of((set, 0, 1), cases.iter().cloned(), profile, 1) {
            if !job.case.name.contains(&name) {
                continue;
            }
            let mut setup = job.setup();
            setup.left_out = rule;
            let limits = if std::env::var("DEEP").is_ok() { Limits::DEEP } else { Limits::QUICK };
            match job.run(&setup, &limits, &mut Memo::default()) {
                Ok(t) => {
                    total += t.judged();
                    n += 1;
                }
                Err(f) => {
                    println!("{}: {}: killed: {}", job.id, job.case.name, f);
                    return;
                }
            }
        }
    }
    println!("survived {n} jobs, {total} judged");
}
