//! Logs that take back pages which were theirs before: what the torn header of such a page lacks is a link word of its earlier
//! life, and that leads anywhere. Random pasts of two directories, of which those are taken where it leads to another's page
//! that still has records of the log; and each line of the next change torn in every way.

use lode_crash::case::{Case, Geometry, Trouble};
use lode_crash::explore::{Limits, Memo, Setup, explore};
use lode_crash::region::Rules;
use lode_crash::states::Budget;
use lode_engine::{OpenOptions, PAGE_BYTES};
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::parse::parse;
use lode_testkit::rng::Rng;
use lode_testkit::run::time_of;
use lode_testkit::system::{PoolSystem, System};

const PAGE: usize = PAGE_BYTES as usize;
const LINE: usize = 64;
/// Record lines of a log page.
const LOG_LINES: usize = 4;
/// What a log page begins with; behind that, its owner (16 bytes), its nonce, and its link word.
const LOG_HEADER: &[u8] = b"LLOG";

/// Each line torn in each of the 254 ways, the others all there, and not, and some.
const EACH_TEAR: Limits = Limits {
    points: Budget { whole: 40, torn: 6 * 254 },
    inside_every: 0,
    then_every: 0,
    ..Limits::QUICK
};

/// Names that come and go in two directories, and modes between them; then `last`, and one more name.
fn past(seed: u64, geometry: Geometry, last: &str) -> Case {
    let mut rng = Rng::new(seed);
    let mut before = "create /k; mkdir /d; mkdir /e; create /m".to_owned();
    let mut there: [Vec<String>; 2] = Default::default();
    for number in 0..10 + rng.below(45) {
        let at = usize::from(rng.once_in(3));
        let (dir, names) = (["/d", "/e"][at], &mut there[at]);
        if rng.once_in(5) {
            before += &format!("; chmod /m 0o6{}{}", number % 8, number / 8);
        } else if !names.is_empty() && rng.once_in(2) {
            let name = names.swap_remove(rng.below(names.len() as u64) as usize);
            before += &format!("; unlink {dir}/{name}");
        } else {
            let name = format!("%={number}.{}", rng.pick(&[20, 60, 100, 130]));
            before += &format!("; link /k {dir}/{name}");
            names.push(name);
        }
    }
    let ops = format!("link /k /d/%=99.{}", rng.pick(&[60, 100, 130]));
    let [before, ops] = [before + last, ops].map(|text| parse(&text.replace(';', "\n")).unwrap());
    let (name, trouble) = (format!("seed {seed}"), Trouble::Power);
    Case { name, trouble, geometry, before, ops, beside: Vec::new() }
}

/// Whether the operation gives a log a page again whose older link leads to a page of another, with lines of this one.
fn takes_back(case: &Case) -> bool {
    let host = TestHost::in_order(1, 1);
    let format = case.geometry.format();
    let options = OpenOptions::default();
    let pool = PoolSystem::new(case.geometry.bytes, host, &format, options).unwrap();
    let mut handles = Handles::new();
    let mut images = Vec::new();
    let ops = case.before.iter().chain(&case.ops).enumerate();
    for (step, op) in ops {
        if step == case.before.len() {
            images.push(pool.memory().image());
        }
        pool.set_now(time_of(step));
        if execute(pool.fs(), &mut handles, op).is_err() {
            return false;
        }
    }
    let (old, new) = (&images[0], pool.memory().image());
    let header = |image: &[u8], page: usize| image[page * PAGE..][..LINE].to_vec();
    (1..new.len() / PAGE).any(|page| {
        let (was, is) = (header(old, page), header(&new, page));
        let is_again = was.starts_with(LOG_HEADER) && was[..24] == is[..24] && was != is;
        let link = u64::from_le_bytes(was[40..48].try_into().unwrap()) & ((1 << 34) - 1);
        let led_to = link as usize;
        if !is_again || was[24..32] == is[24..32] || led_to == 0 || led_to >= old.len() / PAGE {
            return false;
        }
        let seals = (1..=LOG_LINES).map(|line| &old[led_to * PAGE + line * LINE + 56..][..8]);
        header(old, led_to)[..24] != is[..24] && seals.into_iter().any(|seal| *seal != [0; 8])
    })
}

/// Explores the first cases of a kind that are good.
fn explore_some(geometry: &Geometry, last: &str, some: usize) {
    let cases = (0..).map(|seed| past(seed, geometry.clone(), last)).filter(takes_back);
    for case in cases.take(some) {
        let setup = Setup {
            geometry: case.geometry.clone(),
            rules: Rules::default(),
            left_out: None,
            seed: 1,
            asked: Default::default(),
            stop: Default::default(),
        };
        let explored = explore(&case, &setup, &EACH_TEAR, &mut Memo::default());
        explored.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

fn pool(bytes: u64) -> Geometry {
    Geometry { bytes, lanes: 1, log_lines: LOG_LINES as u8, ..Geometry::default() }
}

#[test]
fn an_older_link_is_no_damage() {
    explore_some(&pool(160 << 10), "", 5);
}

#[test]
fn an_older_link_is_no_damage_where_metadata_has_copies() {
    explore_some(&Geometry { dead_zone: Some(0), ..pool(320 << 10) }, "", 2);
}

#[test]
fn an_older_link_is_no_damage_to_snapshots() {
    explore_some(&pool(160 << 10), "; snapshot a", 3);
    explore_some(&pool(160 << 10), "; link /k /d/x; snapshot a", 2);
}
