//! What the explorer has found in the engine: each stays found, by the smallest case that shows it.

use lode_crash::case::{Case, Geometry, Trouble};
use lode_crash::explore::{Failure, Limits, Memo, Setup, Tally, explore};
use lode_crash::region::{Pages, Profile, Rules, Simulated};
use lode_crash::states::{Budget, units_of};
use lode_engine::{Pool, Rule};
use lode_testkit::parse::parse;

/// Every state is followed by operations in which the power fails again.
fn survives(name: &str, before: &str, ops: &str) {
    let case = case(name, Geometry::default(), before, ops);
    let then = Budget { whole: 12, torn: 90 };
    let points = Budget { whole: 40, torn: 90 };
    let limits = Limits { points, then, then_every: 1, inside_every: 0, ..Limits::QUICK };
    explored(&case, &limits, None).unwrap_or_else(|failure| panic!("{failure}"));
}

fn case(name: &str, geometry: Geometry, before: &str, ops: &str) -> Case {
    let [before, ops] = [before, ops].map(|text| parse(&text.replace(';', "\n")).unwrap());
    Case {
        name: name.to_owned(),
        trouble: Trouble::Power,
        geometry,
        before,
        ops,
        beside: Vec::new(),
    }
}

fn explored(case: &Case, limits: &Limits, left_out: Option<Rule>) -> Result<Tally, Box<Failure>> {
    let setup = Setup {
        geometry: case.geometry.clone(),
        rules: Rules::default(),
        left_out,
        seed: 1,
        asked: Default::default(),
        stop: Default::default(),
    };
    explore(case, &setup, limits, &mut Memo::default())
}

/// The lines of each point torn in each of the 254 ways, the others all there, and not, and some.
const EACH_TEAR: Limits = Limits {
    points: Budget { whole: 40, torn: 6 * 254 },
    inside_every: 0,
    then_every: 0,
    ..Limits::QUICK
};

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
    let explored = explored(case.unwrap(), &EACH_TEAR, None);
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The same where no record reached the new page either: what the older link word led to, a page of the
/// same log without a header of its own, was called damage, and the pool did not open any more.
#[test]
fn an_older_link_word_in_a_log_page_without_records_is_no_damage() {
    let cases = lode_crash::workload::scenarios();
    let case = cases.iter().find(|case| case.name == "a log gets a page again").unwrap();
    explored(case, &EACH_TEAR, None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = explored(case, &EACH_TEAR, Some(Rule::LinkDoubted)).unwrap_err();
    assert!(failure.what.contains("damaged line in the middle of a log"), "{failure}");
}

/// The same where a crash tore the last line in front of that page, too: only what the page before held was asked whether the
/// link word of this one is to be believed.
#[test]
fn an_older_link_word_in_a_log_page_behind_the_logs_end_is_no_damage() {
    let cases = lode_crash::workload::scenarios();
    let case = cases.iter().find(|case| case.name == "a log gets a page again behind padding");
    explored(case.unwrap(), &EACH_TEAR, None).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Two threads both came to raise the session: the second one only had its lanes begin anew, in the session
/// that the first had begun, whose sequences were used twice.
#[test]
fn a_session_that_two_threads_raise_uses_no_sequence_twice() {
    let limits = Limits { schedules: 200, ..Limits::QUICK };
    let cases = lode_crash::workload::two_threads();
    let cases: Vec<&Case> =
        cases.iter().filter(|case| case.name.contains("the session ends")).collect();
    assert_eq!(cases.len(), 6);
    for case in cases {
        explored(case, &limits, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The link from one piece of inode table to the next is needed only after the next crash: in a pool
/// that was closed nobody looked at it, not even the full check; nor at what a log ends with.
#[test]
fn a_flipped_bit_of_what_has_a_seal_is_found_before_it_is_needed() {
    let mut flips = 0;
    for case in lode_crash::workload::flips() {
        let tally = explored(&case, &Limits::QUICK, None);
        let tally = tally.unwrap_or_else(|failure| panic!("{failure}"));
        // (The smallest ones are a directory's log of two pages and a node's inode.)
        assert!(tally.flips > 400, "{}: {} flips", case.name, tally.flips);
        flips += tally.flips;
    }
    assert!(flips > 11_000, "{flips} flips");
}

/// (None was found there: but each line of a record, and each way to tear it, is one more chance.)
#[test]
fn a_line_may_be_torn_in_any_way() {
    let before = "create /a; write /a 0 5000 1; mkdir /d; create /d/b; create /d/c; symlink /s x";
    let all = [
        "create /n; mkdir /m; mknod /p fifo; symlink /t %=0.100",
        "create /%=1.130; rename /%=1.130 /%=2.120; unlink /%=2.120",
        "unlink /a; rmdir /d; unlink /d/b; unlink /d/c; rmdir /d",
        "rename /a /d/a; rename /d/a /d/b; rename /d /e; rename /s /e/c exchange",
        "link /a /d/l; unlink /a; chmod /d/l 0o600; chown /d/l 1 2; truncate /d/l 100",
        "append /a 100 2; write /a 100 70 3; write /a 0 9000 4; punch /a 0 4096; zero /a 9 99",
        "setxattr /a user.x 30 1; setxattr /a user.x 300 2; removexattr /a user.x; tmpfile / 0 0o600 user.y 60; link @0 /t",
    ];
    for (number, ops) in all.into_iter().enumerate() {
        // (Every other one in short logs.)
        let geometries = [Geometry::default(), Geometry { log_lines: 4, ..Geometry::default() }];
        for geometry in geometries.into_iter().take(1 + number % 2) {
            let case = case(&format!("torn {number}"), geometry, before, ops);
            if let Err(failure) = explored(&case, &EACH_TEAR, None) {
                panic!("{failure}");
            }
            let unsealed = explored(&case, &EACH_TEAR, Some(Rule::RecordSeal));
            assert!(unsealed.is_err(), "{ops}: without a seal, no torn line is noticed");
        }
    }
}

/// Names, attributes' names and values that short log pages have no room for are refused, and nobody
/// takes that for a fault: not beside a second thread either.
#[test]
fn what_short_log_pages_refuse_is_no_failure() {
    let pool = |log_lines| Geometry { log_lines, ..Geometry::default() };
    for log_lines in [4, 6, 7, 10] {
        for len in [1, 112, 113, 150, 200, 255] {
            let ops = format!(
                "create /a; setxattr /a %=3.{len} 20 2; setxattr /a %=3.{len} 300 2; \
                 setxattr /a %=3.{len} 60000 3; create /%=0.{len}"
            );
            let case = case("refused", pool(log_lines), "", &ops);
            explored(&case, &Limits::GLANCE, None).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
    let mut beside = case("refused beside", pool(4), "", "create /%=0.255");
    beside.beside = parse("list /").unwrap();
    explored(&beside, &Limits::GLANCE, None).unwrap_or_else(|failure| panic!("{failure}"));
}

/// The first superblock is stored at each mount. In a region larger than the pool nobody could
/// find the second one while the first was torn.
#[test]
fn a_pool_smaller_than_its_region_is_found_whatever_superblock_is_torn() {
    let pool = Geometry { made: Some(96 << 10), bytes: 128 << 10, ..Geometry::default() };
    let case = case("a longer region", pool, "create /a", "append /a 5000; crash; unlink /a");
    let limits = Limits { inside_every: 1, ..Limits::QUICK };
    explored(&case, &limits, None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = explored(&case, &limits, Some(Rule::Located)).unwrap_err();
    assert!(failure.what.contains("superblocks"), "{failure}");
}

#[test]
fn a_label_is_the_old_or_the_new_one_whatever_is_torn() {
    let setup = Setup {
        geometry: Geometry { bytes: 96 << 10, ..Geometry::default() },
        rules: Rules::default(),
        left_out: None,
        seed: 1,
        asked: Default::default(),
        stop: Default::default(),
    };
    let made = Simulated::plain(&Pages::new(setup.geometry.bytes));
    Pool::format(made.clone(), setup.host(0), &setup.format()).unwrap();
    let medium = Simulated::new(made.seen(), setup.rules);
    let pool = Pool::open(medium.clone(), setup.host(0), &setup.options()).unwrap();
    pool.set_label(b"old").unwrap();
    medium.record(true);
    pool.set_label(b"a new label").unwrap();
    medium.record(false);
    let (mut old, mut new) = (0, 0);
    for point in medium.take_points().into_iter().chain([medium.point()]) {
        let units = units_of(&point, Profile::Adr, true);
        let all: Vec<u16> = units.units.iter().map(|unit| unit.all).collect();
        let mut choices = vec![vec![0; all.len()], all.clone()];
        for (number, unit) in units.units.iter().enumerate() {
            for alternative in 0..unit.alternatives.len() as u16 {
                for mut choice in [vec![0; all.len()], all.clone()] {
                    choice[number] = alternative;
                    choices.push(choice);
                }
            }
        }
        for choice in choices {
            let image = Simulated::plain(&units.image(&point.durable, &choice));
            let pool = Pool::open(image, setup.host(1), &setup.options()).unwrap();
            match pool.info().unwrap().label.as_slice() {
                b"old" => old += 1,
                b"a new label" => new += 1,
                other => panic!("label {other:?}"),
            }
        }
    }
    assert!(old > 10 && new > 10, "{old} and {new} states");
}

/// What a crash leaves in one copy of metadata alone would come true when the other is damaged.
#[test]
fn recovery_makes_the_copies_of_metadata_the_same() {
    let cases = lode_crash::workload::scenarios();
    let case = cases.iter().find(|case| case.name == "two copies of metadata").unwrap();
    explored(case, &Limits::QUICK, None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = explored(case, &Limits::QUICK, Some(Rule::TwinsMended)).unwrap_err();
    assert!(failure.what.contains("lines of metadata differ"), "{failure}");
}
