//! Kept heaps: whole after every crash, and each fence and write-back that makes them so is noticed where it is left out.

use std::collections::BTreeSet;

use lode_crash::kept::{Ground, KeptCase, KeptTally, cases, explore_kept};
use lode_crash::region::{LeftOut, Profile, Rules};
use lode_crash::states::Budget;

const GLANCE: Budget = Budget { whole: 12, torn: 3 };
const QUICK: Budget = Budget { whole: 40, torn: 10 };
const DEEP: Budget = Budget { whole: 240, torn: 160 };

fn explored(profile: Profile, ground: Ground, budget: Budget, inside_every: u64) -> KeptTally {
    let mut all = KeptTally::default();
    for case in cases().iter().filter(|case| case.ground == ground) {
        let rules = Rules { profile, ..Rules::default() };
        let tally = explore_kept(case, rules, budget, inside_every);
        let tally = tally.unwrap_or_else(|failure| panic!("{failure}"));
        all.points += tally.points;
        all.judged += tally.judged;
        all.inside += tally.inside;
        all.sites.extend(tally.sites);
    }
    println!(
        "{ground:?}, {profile}: {} points, {} states, {} inside",
        all.points, all.judged, all.inside
    );
    all
}

#[test]
fn a_heap_is_whole_after_every_crash() {
    for profile in Profile::ALL {
        let tally = explored(profile, Ground::Bare, QUICK, 16);
        assert!(tally.judged > 1000 && tally.inside > 300, "{profile}: {tally:?}");
    }
}

#[test]
fn a_heap_in_a_mapped_file_is_whole_after_every_crash() {
    for profile in Profile::ALL {
        let tally = explored(profile, Ground::File, QUICK, 32);
        assert!(tally.judged > 1000 && tally.inside > 50, "{profile}: {tally:?}");
    }
}

fn is_noticed(left_out: LeftOut, cases: &[KeptCase]) -> Option<String> {
    for (budget, inside_every) in [(GLANCE, 16), (QUICK, 4), (DEEP, 4)] {
        for profile in [Profile::Adr, Profile::File] {
            let rules = Rules { profile, left_out: Some(left_out), ..Rules::default() };
            for case in cases {
                if let Err(failure) = explore_kept(case, rules, budget, inside_every) {
                    return Some(failure.to_string());
                }
            }
        }
    }
    None
}

#[test]
fn each_fence_and_write_back_of_the_heap_that_is_left_out_is_noticed() {
    let sites = explored(Profile::Adr, Ground::Bare, GLANCE, 16).sites;
    let is_ours = |site: &&LeftOut| site.site().file.starts_with("heap/kept/");
    let ours: BTreeSet<&LeftOut> = sites.iter().filter(is_ours).collect();
    let kinds = |kind: &str| ours.iter().filter(|site| site.kind() == kind).count();
    assert!(kinds("fence") >= 8 && kinds("write-back") >= 8, "{ours:?}");
    let bare: Vec<KeptCase> =
        cases().into_iter().filter(|case| case.ground == Ground::Bare).collect();
    let mut missed = Vec::new();
    for left_out in ours {
        match is_noticed(*left_out, &bare) {
            Some(failure) => println!("{left_out}: {failure}"),
            None => missed.push(left_out.to_string()),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
