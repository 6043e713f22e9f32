//! Every ordered pair of operations on a few shared names.
//!
//! Each pair is numbered: first * operations + second. The set-up of a pair is what the two
//! need, less what keeps one of them from being done; the model says which.

use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::op::Op;
use lode_testkit::rng::mix;

use crate::case::{Case, Geometry, Trouble};
use crate::workload::build::{ALL_LINES, FEW_LINES, operations};

/// What a set-up may have, in the order of making it: its letter, and how it is made.
const THINGS: [(char, &str); 15] = [
    ('d', "mkdir /d"),
    ('e', "mkdir /e"),
    ('s', "mkdir /d/s"),
    ('a', "create /a; write /a 0 5000 1"),
    ('b', "create /b; append /b 100 2"),
    ('c', "create /d/c; append /d/c 4096 3"),
    ('f', "create /e/f; append /e/f 300 4"),
    ('l', "link /a /l"),
    ('y', "symlink /y %=0.100"),
    ('j', "write /a 100 200 5"),
    ('x', "setxattr /a user.x 300 6"),
    ('z', "setxattr /d user.z 30 7"),
    ('t', "tmpfile / 1; append @1 5000 9"),
    ('o', "open /a 0"),
    // Takes away the name of what is open.
    ('u', "unlink /a"),
];

/// The operations, and the things that they need.
const OPERATIONS: [(&str, &str); 84] = [
    ("create /a", ""),
    ("create /b", ""),
    ("create /d/c", "d"),
    ("create /e/%=0.60", "e"),
    ("mkdir /d", ""),
    ("mkdir /e", ""),
    ("mkdir /d/s", "d"),
    ("mknod /a fifo", ""),
    ("symlink /y b", ""),
    ("symlink /d/c %=1.130", "d"),
    ("link /a /l", "a"),
    ("link /a /b", "a"),
    ("link /b /d/c", "bd"),
    ("link @0 /b", "ao"),
    ("unlink /a", "a"),
    ("unlink /b", "b"),
    ("unlink /l", "al"),
    ("unlink /d/c", "dc"),
    ("unlink /y", "y"),
    ("rmdir /d", "d"),
    ("rmdir /e", "e"),
    ("rmdir /d/s", "ds"),
    ("rename /a /b", "ab"),
    ("rename /a /b", "a"),
    ("rename /b /a", "ab"),
    ("rename /a /d/c", "adc"),
    ("rename /d/c /a", "dca"),
    ("rename /d/c /e/f", "dcef"),
    ("rename /e/f /d/c", "ef d"),
    ("rename /a /l", "al"),
    ("rename /l /b", "alb"),
    ("rename /d /e", "de"),
    ("rename /e /d/s", "eds"),
    ("rename /d/s /e", "dse"),
    ("rename /d/s /e/s", "dse"),
    ("rename /a /b exchange", "ab"),
    ("rename /a /d exchange", "ad"),
    ("rename /d/s /e exchange", "dse"),
    ("rename /d/c /e/f exchange", "dcef"),
    ("rename /a /b noreplace", "a"),
    ("rename /d/c /b noreplace", "dc"),
    ("write /a 0 100 11", "a"),
    ("write /a 4090 17 12", "a"),
    ("write /a 0 4096 13", "a"),
    ("write /a 100 200 14", "aj"),
    ("write /a 150 300 15", "aj"),
    ("write /a 9000 5000 16", "a"),
    ("write /b 50 7 17", "b"),
    ("write /d/c 0 8192 18", "dc"),
    ("write @0 60 9 19", "ao"),
    ("append /a 100 21", "a"),
    ("append /a 4096 22", "a"),
    ("append /b 4100 23", "b"),
    ("append @0 3000 24", "aou"),
    ("truncate /a 0", "a"),
    ("truncate /a 120", "aj"),
    ("truncate /a 4096", "a"),
    ("truncate /a 20000", "a"),
    ("truncate /b 3", "b"),
    ("allocate /a 0 12288", "a"),
    ("fallocate /b allocate-keep 0 8192", "b"),
    ("punch /a 50 4500", "a"),
    ("zero /a 110 50", "aj"),
    ("fallocate /a zero-keep 0 9000", "a"),
    ("setattr /a mode=0o600 mtime=5", "a"),
    ("setattr /d uid=7 gid=8 atime=9", "d"),
    ("open /a 0", "a"),
    ("close 0", "aou"),
    ("fsync /a", "a"),
    ("maintain", ""),
    ("remount", ""),
    ("crash", ""),
    ("unlink /a", "ao"),
    ("setxattr /a user.x 20 31", "ax"),
    ("setxattr /a user.x 5000 32", "ax"),
    ("setxattr /d user.y 100 33", "d"),
    ("removexattr /a user.x", "ax"),
    ("removexattr /d user.z", "dz"),
    ("create-with /d/c 0o100640 user.v 60 34", "d"),
    ("setattr-with /a user.x 44 35 mode=0o604", "ax"),
    ("tmpfile /d 1 0o600 user.x 40 36", "d"),
    ("link @1 /b", "t"),
    ("append @1 3000 37", "t"),
    ("close 1", "t"),
];

/// How many pairs there are.
pub const fn pair_count() -> usize {
    OPERATIONS.len() * OPERATIONS.len()
}

/// All pairs.
pub fn seq2() -> Vec<Case> {
    (0..pair_count()).map(pair).collect()
}

/// Share `number` of `of` equal ones, which together are all pairs: spread, and always the same.
pub fn share(number: usize, of: usize) -> Vec<Case> {
    share_numbers(number, of).into_iter().map(pair).collect()
}

/// The numbers of the pairs of a [`share`].
pub fn share_numbers(number: usize, of: usize) -> Vec<usize> {
    let of = of.max(1) as u64;
    let is_in = |pair: &usize| mix(*pair as u64) % of == number as u64 % of;
    (0..pair_count()).filter(is_in).collect()
}

/// The pair with this number, which is below [`pair_count`].
pub fn pair(number: usize) -> Case {
    let (first, second) = (number / OPERATIONS.len(), number % OPERATIONS.len());
    let (one, two) = (&OPERATIONS[first], &OPERATIONS[second]);
    let ops = [one, two].map(|(text, _)| operations(text)).concat();
    Case {
        name: format!("pair {first}.{second}: {}, {}", one.0, two.0),
        trouble: Trouble::Power,
        geometry: geometry(number),
        before: set_up(one.1, two.1, &ops),
        ops,
        beside: Vec::new(),
    }
}

/// Pools take turns: short log pages in most, two lanes in some, data in place now and then.
fn geometry(number: usize) -> Geometry {
    let dice = mix(number as u64 ^ 0x5E02);
    Geometry {
        bytes: 128 << 10,
        lanes: if dice.is_multiple_of(3) { 2 } else { 1 },
        log_lines: if dice >> 8 & 3 == 0 { ALL_LINES } else { FEW_LINES },
        relaxed: dice >> 16 & 7 == 0,
        ..Geometry::default()
    }
}

/// The largest set-up in which both can be done, or else the first; all that they need if
/// there is none.
fn set_up(first: &str, second: &str, ops: &[Op]) -> Vec<Op> {
    let wanted = |name: &char| first.contains(*name) || second.contains(*name);
    let all: Vec<char> = THINGS.iter().map(|(name, _)| *name).filter(wanted).collect();
    let least = |name: &char| first.contains(*name);
    let mut choices = vec![all.clone()];
    choices.extend((0..all.len()).map(|left_out| without(&all, &[left_out])));
    choices.push(all.iter().copied().filter(least).collect());
    for one in 0..all.len() {
        choices.extend((0..one).map(|other| without(&all, &[one, other])));
    }
    let made: Vec<Vec<Op>> = choices.iter().map(|names| make(names)).collect();
    let done: Vec<u32> = made.iter().map(|before| succeed(before, ops)).collect();
    let most = done.iter().max().copied().unwrap_or(0);
    let first_best = made.into_iter().zip(done).find(|(_, done)| *done == most);
    first_best.map(|(before, _)| before).unwrap_or_default()
}

fn without(names: &[char], left_out: &[usize]) -> Vec<char> {
    let kept = names.iter().enumerate().filter(|(index, _)| !left_out.contains(index));
    kept.map(|(_, name)| *name).collect()
}

fn make(names: &[char]) -> Vec<Op> {
    let made = THINGS.iter().filter(|(name, _)| names.contains(name));
    made.flat_map(|(_, text)| operations(text)).collect()
}

/// How many of `ops` the model does after `before`; the first counts for more than the second.
/// 0 if `before` itself can't be done.
fn succeed(before: &[Op], ops: &[Op]) -> u32 {
    let (model, mut handles) = (Model::new(), Handles::new());
    let mut run = |op: &Op| {
        if matches!(op, Op::Remount | Op::Crash) {
            handles.clear();
            model.release_all();
        }
        execute(&model, &mut handles, op).is_ok()
    };
    if !before.iter().all(&mut run) {
        return 0;
    }
    let weights = [3, 2];
    1 + ops.iter().zip(weights).filter(|(op, _)| run(op)).map(|(_, weight)| weight).sum::<u32>()
}
