//! Random operations do the same to a pool as to the model: every value, every error, the
//! whole tree, through clean remounts and crashes.

use lode_engine::{
    AccessTimes, DEAD_ZONE, Error, FormatOptions, NewInode, OpenOptions, PageClass, Protection,
    RenameMode, mode,
};
use lode_testkit::TestHost;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::parse::parse;
use lode_testkit::rng::Rng;
use lode_testkit::run::{Failure, Rules, run, run_and_shrink};
use lode_testkit::system::PoolSystem;

const MIB: u64 = 1 << 20;
/// Runs that shrinking a failure may take.
const TRIES: usize = 400;

/// What of a pool a test varies.
#[derive(Clone, Copy, Debug)]
struct Pools {
    bytes: u64,
    lanes: u32,
    log_lines: u8,
    class: PageClass,
    relaxed: bool,
    index_memory: Option<u64>,
    /// Bytes between twins of metadata, if it has such.
    dead_zone: Option<u64>,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            bytes: 16 * MIB,
            lanes: 4,
            log_lines: 63,
            class: PageClass::Small,
            relaxed: false,
            index_memory: None,
            dead_zone: None,
        }
    }
}

impl Pools {
    fn make(&self, seed: u64) -> Result<PoolSystem, String> {
        let format = FormatOptions {
            lanes: self.lanes,
            log_lines: self.log_lines,
            page_class: self.class,
            protection: match self.dead_zone {
                None => Protection::None,
                Some(_) => Protection::Metadata,
            },
            dead_zone: self.dead_zone.unwrap_or_default(),
            ..Default::default()
        };
        let options = OpenOptions {
            relaxed: self.relaxed,
            atime: AccessTimes::Never,
            index_memory: self.index_memory,
            ..OpenOptions::default()
        };
        PoolSystem::new(self.bytes, TestHost::new(seed), &format, options)
    }
}

fn check(pools: Pools, seed: u64, ops: &[Op], rules: &Rules) {
    let result = run_and_shrink(&|| pools.make(seed), ops, rules, TRIES);
    if let Err(failure) = result {
        panic!("{pools:?}, seed {seed}: {failure}");
    }
}

fn random(pools: Pools, shape: &Shape, seeds: std::ops::Range<u64>, count: usize, rules: &Rules) {
    for seed in seeds {
        let ops = Generator::new(seed, shape.clone()).take(count);
        check(pools, seed, &ops, rules);
    }
}

#[test]
fn random_operations_equal_the_model() {
    random(Pools::default(), &Shape::default(), 0..100, 600, &Rules::default());
}

#[test]
fn random_operations_with_remounts_and_crashes_equal_the_model() {
    let shape = Shape { remount_every: 25, maintain_every: 40, ..Shape::default() };
    random(Pools::default(), &shape, 100..300, 500, &Rules::default());
}

#[test]
fn one_lane_and_many_lanes_equal_the_model() {
    let shape = Shape { remount_every: 60, ..Shape::default() };
    for lanes in [1, 2, 64] {
        let pools = Pools { lanes, ..Pools::default() };
        random(pools, &shape, 200..204, 400, &Rules::default());
    }
}

#[test]
fn relaxed_mode_equals_the_model() {
    let shape = Shape { remount_every: 50, ..Shape::default() };
    let pools = Pools { relaxed: true, ..Pools::default() };
    random(pools, &shape, 300..315, 500, &Rules::default());
}

#[test]
fn pools_whose_metadata_has_twins_equal_the_model() {
    let shape = Shape { remount_every: 25, maintain_every: 40, ..Shape::default() };
    for (seed, dead_zone, log_lines) in [(1500, DEAD_ZONE, 63), (1540, 60_000, 9), (1580, 0, 63)] {
        let pools = Pools { dead_zone: Some(dead_zone), log_lines, ..Pools::default() };
        random(pools, &shape, seed..seed + 25, 500, &Rules::default());
    }
}

/// Every inode is dropped as soon as another one is wanted, and loaded again.
#[test]
fn pools_that_keep_nothing_in_memory_equal_the_model() {
    let shape = Shape { remount_every: 80, maintain_every: 20, names: 5, ..Shape::default() };
    for (seeds, relaxed, log_lines) in [(0..40, false, 63), (40..70, false, 9), (70..85, true, 63)]
    {
        let pools = Pools { index_memory: Some(0), relaxed, log_lines, ..Pools::default() };
        random(pools, &shape, 1300 + seeds.start..1300 + seeds.end, 500, &Rules::default());
    }
}

#[test]
fn huge_pages_equal_the_model() {
    let shape = Shape {
        remount_every: 50,
        offset_max: 5 << 20,
        len_max: 100_000,
        sparse: false,
        ..Shape::default()
    };
    for relaxed in [false, true] {
        let class = PageClass::Huge;
        let pools = Pools { bytes: 64 * MIB, class, relaxed, ..Pools::default() };
        let rules = Rules { no_space_above: 4096, ..Rules::default() };
        random(pools, &shape, 400..406, 300, &rules);
    }
}

#[test]
fn page_classes_that_change_between_mounts_equal_the_model() {
    let shape = Shape { offset_max: 3 << 20, sparse: false, ..Shape::default() };
    let pools = Pools { bytes: 64 * MIB, ..Pools::default() };
    for seed in 500..505 {
        let ops = Generator::new(seed, shape.clone()).take(300);
        let new = || {
            let mut system = pools.make(seed)?;
            let page_class = Some(PageClass::Huge);
            system.set_options(OpenOptions {
                page_class,
                atime: AccessTimes::Never,
                ..Default::default()
            });
            Ok(system)
        };
        // The option counts from the first remount on.
        let mut ops = ops;
        ops.insert(100, Op::Crash);
        let rules = Rules { no_space_above: 4096, ..Rules::default() };
        if let Err(failure) = run_and_shrink(&new, &ops, &rules, TRIES) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn pools_that_run_full_equal_the_model_where_they_do_anything() {
    let shape = Shape {
        sparse: false,
        offset_max: 400_000,
        len_max: 200_000,
        remount_every: 80,
        ..Shape::default()
    };
    for bytes in [2 * MIB, 3 * MIB, 4 * MIB] {
        let pools = Pools { bytes, ..Pools::default() };
        let rules = Rules { no_space_above: bytes / 4096 / 6, ..Rules::default() };
        random(pools, &shape, 600..608, 400, &rules);
    }
}

/// Few names and one directory: logs get long, roll over and are collected.
#[test]
fn long_logs_equal_the_model() {
    let shape = Shape {
        names: 2,
        odd_names: true,
        depth: 2,
        offset_max: 30_000,
        len_max: 300,
        sparse: false,
        maintain_every: 100,
        remount_every: 300,
        ..Shape::default()
    };
    let rules = Rules { tree_every: 200, ..Rules::default() };
    random(Pools::default(), &shape, 700..706, 4000, &rules);
}

/// Log pages of few lines: every log grows and is collected all the time.
#[test]
fn short_log_pages_equal_the_model() {
    for (log_lines, name_max) in [(4, 136), (5, 176), (9, 256)] {
        let pools = Pools { log_lines, ..Pools::default() };
        let rules = Rules { tree_every: 100, ..Rules::default() };
        let mut collected = [0; 2];
        for seed in 0..100 {
            let shape = Shape {
                names: 3 + seed % 5,
                name_max,
                offset_max: 60_000,
                len_max: 9000,
                remount_every: 120,
                maintain_every: 40,
                ..Shape::default()
            };
            let ops = Generator::new(800 + seed, shape).take(600);
            let mut system = pools.make(seed).unwrap();
            if run(&mut system, &ops, &rules).is_err() {
                check(pools, seed, &ops, &rules);
            }
            collected = [0, 1].map(|kind| collected[kind] + system.collected()[kind]);
        }
        println!("{log_lines} lines: {collected:?} collections");
        assert!(collected[0] > 9 && collected[1] > 99, "{log_lines} lines: {collected:?}");
    }
}

/// A name whose record is longer than a log page has no place to go when its log is collected.
#[test]
fn names_that_fit_no_log_page_are_refused() {
    for (log_lines, longest) in [(4, 136), (5, 176), (6, 216), (7, 255)] {
        let system = Pools { log_lines, ..Pools::default() }.make(1).unwrap();
        let pool = system.pool();
        let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
        let (fits, too_long) = (vec![b'n'; longest], vec![b'n'; longest + 1]);
        pool.create(pool.root(), &fits, &new).unwrap();
        let refused = Some(Error::NameTooLong);
        assert_eq!(pool.create(pool.root(), &too_long, &new).err(), refused);
        let renamed = pool.rename(pool.root(), &fits, pool.root(), &too_long, RenameMode::Replace);
        assert_eq!(renamed.err(), refused);
        pool.symlink(pool.root(), b"s", &[b't'; 136], 1, 1).unwrap();
        assert_eq!(pool.lookup(pool.root(), &fits).unwrap().links, 1);
    }
}

#[test]
fn log_pages_of_no_possible_length_are_refused() {
    for log_lines in [0, 3, 64, 255] {
        assert!(Pools { log_lines, ..Pools::default() }.make(1).is_err(), "{log_lines} lines");
    }
}

/// All offsets and lengths around the edges of words, lines and pages, on a file that has a
/// page, a hole and an unaligned end.
#[test]
fn writes_at_every_edge_equal_the_model() {
    let mut rng = Rng::new(1);
    for relaxed in [false, true] {
        let mut text = String::from("create /f 33188 0\nwrite /f 0 5000 1\nwrite /f 16380 100 2\n");
        for edge in [0u64, 8, 64, 512, 4096, 8192, 16_384, 16_480] {
            for before in [0, 1, 7, 8, 9, 17] {
                let at = edge.saturating_sub(before);
                for len in [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 4096, 4097] {
                    if rng.once_in(3) {
                        text.push_str(&format!("write /f {at} {len} {}\n", 3 + rng.below(900)));
                    }
                    if rng.once_in(40) {
                        text.push_str(&format!("setattr /f size={}\n", at + len));
                        text.push_str("write /f 20000 10 7\n");
                    }
                    if rng.once_in(60) {
                        text.push_str("crash\n");
                    }
                }
            }
        }
        let ops = parse(&text).unwrap();
        let rules = Rules { tree_every: 10, ..Rules::default() };
        check(Pools { relaxed, ..Pools::default() }, 1, &ops, &rules);
    }
}

/// A shrunk failure can be pasted here.
#[test]
fn known_sequences_equal_the_model() {
    let sequences = [
        // Rename: onto itself, onto a hard link of the same file, over an empty directory,
        // into its own subtree, swaps of a file and a directory.
        "create /a 33188 0\nlink /a /b\nrename /a /a replace\nrename /a /b replace\n\
         rename /a /b noreplace\ncreate /d 16877 0\ncreate /e 16877 0\nrename /d /e replace\n\
         rename /e /e/x replace\nrename /e /a replace\nrename /a /e replace\n\
         rename /a /e exchange\ncreate /a/in 33188 0\ncrash\nrename /a/in /in replace\nremount",
        // Directories have one name: no other one, not in themselves, nor after their end.
        "create /d 16877 0\nlink /d /e\nlink /d /d/in\nlink /d /d\nlink / /d/up\n\
         create /f 33188 0\nlink /d /f\nlink /d /f/in\nopen /d 0\nlink @0 /d\nrmdir /d\n\
         link @0 /again\nlink @0 /f\nlink /f /g\ncrash",
        // A file that is open when its last name goes, then a crash.
        "create /f 33188 0\nwrite /f 0 10000 1\nopen /f 0\nunlink /f\nread @0 4000 200\n\
         append @0 300 2\nsetattr @0 size=5000\ncreate /f 33188 0\nclose 0\ncrash",
        // Size cut and grown again: the cut bytes must be zeros, not what they were.
        "create /f 33188 0\nwrite /f 0 4096 1\nsetattr /f size=100\nsetattr /f size=4096\n\
         read /f 0 4096\nsetattr /f size=50\nwrite /f 3000 10 2\ncrash\nread /f 0 4096",
        // A journalled overwrite, then a hole over all of its page but the edges: the pages
        // of the journal are in use or free after a clean remount, not lost.
        "create /f 33188 0\nwrite /f 0 12288 1\nwrite /f 3322 17 2\nfallocate /f punch 132 8192\n\
         remount",
    ];
    for text in sequences {
        let ops = parse(text).unwrap();
        check(Pools::default(), 0, &ops, &Rules { tree_every: 1, ..Rules::default() });
    }
}

/// Journalled overwrites of huge pages that a truncation takes away, all or in part: their
/// pages are not lost with a clean remount.
#[test]
fn pages_of_journalled_overwrites_cut_off_are_free_after_a_remount() {
    let text = "create /f 33188 0\nappend /f 9000 1\nfallocate /f punch 4094 6955\n\
                setattr /f size=1865\nremount\nappend /f 30000 2\nwrite /f 100 20000 3\n\
                setattr /f size=6000\nremount\nwrite /f 200 5500 4\ncrash\nsetattr /f size=4\nremount";
    let pools = Pools { class: PageClass::Huge, ..Pools::default() };
    check(pools, 0, &parse(text).unwrap(), &Rules { tree_every: 1, ..Rules::default() });
}

/// `LODE_OPS` names a file of operations (as failures print them) to run.
#[test]
fn operations_from_a_file_equal_the_model() {
    let Ok(path) = std::env::var("LODE_OPS") else {
        return;
    };
    let ops = parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    check(Pools::default(), 0, &ops, &Rules { tree_every: 1, ..Rules::default() });
}

/// `LODE_SEEDS=FROM..TO` runs more seeds than there is time for each day.
#[test]
fn more_seeds_equal_the_model() {
    let Ok(range) = std::env::var("LODE_SEEDS") else {
        return;
    };
    let (from, to) = range.split_once("..").unwrap();
    let shape = Shape { remount_every: 40, maintain_every: 60, ..Shape::default() };
    let seeds = from.parse().unwrap()..to.parse().unwrap();
    random(Pools::default(), &shape, seeds, 800, &Rules::default());
}

#[test]
fn a_failure_prints_operations_that_can_be_run_again() {
    let ops = Generator::new(5, Shape::default()).take(20);
    let failure = Failure { step: 19, what: "just so".into(), ops: ops.clone() };
    let text = failure.to_string();
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(parse(&lines.join("\n")).unwrap(), ops);
}
