//! x
#![allow(missing_docs, clippy::all)]
use lode_crash::explore::{Limits, Memo};
use lode_crash::region::Profile;
use lode_crash::run::{Set, jobs_of};
use lode_crash::workload::{scenarios, two_threads};
use lode_engine::Rule;
#[test]
fn adhoc() {
    let rule = std::env::var("RULE").unwrap_or_default();
    let name = std::env::var("CASE").unwrap();
    let rule = Rule::ALL.iter().copied().find(|r| r.name() == rule);
    let (set, cases) = if std::env::var("HARD").is_ok() {
        (Set::Hard, scenarios())
    } else {
        if std::env::var("BITS").is_ok() {
            (Set::Bits, lode_crash::workload::flips())
        } else {
            (Set::Pairs, two_threads())
        }
    };
    for job in jobs_of((set, 0, 1), cases, Profile::Adr, 1) {
        if !job.case.name.contains(&name) {
            continue;
        }
        let mut setup = job.setup();
        setup.left_out = rule;
        let limits = Limits::DEEP;
        match job.run(&setup, &limits, &mut Memo::default()) {
            Ok(t) => println!(
                "{}: survived; schedules {} judged {}",
                job.case.name,
                t.schedules,
                t.judged()
            ),
            Err(f) => println!("{}: killed: {:?}", job.case.name, f),
        }
    }
}
