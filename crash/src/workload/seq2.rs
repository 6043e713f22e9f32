//! Every ordered pair of operations on a few shared names.
//!
//! Each pair is numbered: first * operations + second. The set-up of a pair is what the two
//! need, less what keeps one of them from being done; the model says which. Where log pages are
//! short, logs are old enough for both collectors to run.

use std::panic::resume_unwind;
use std::thread;

use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::op::Op;
use lode_testkit::rng::mix;

use crate::case::{Case, Geometry, Trouble};
use crate::explore::Stop;
use crate::workload::aged::aged;
use crate::workload::build::{ALL_LINES, FEW_LINES, operations};

/// What a set-up may have, in the order of making it: its letter, and how it is made.
const THINGS: [(char, &str); 16] = [
    ('d', "mkdir /d"),
    ('e', "mkdir /e"),
    ('s', "mkdir /d/s"),
    ('a', "create /a; write /a 0 5000 1"),
    ('b', "create /b; append /b 100 2"),
    ('c', "create /d/c; append /d/c 4096 3"),
    ('f', "create /e/f; append /e/f 300 4"),
    ('l', "link /a /l"),
    ('y', "symlink /y %=0.100"),
    ('n', "snapshot first"),
    ('j', "write /a 100 200 5"),
    ('x', "setxattr /a user.x 300 6"),
    ('z', "setxattr /d user.z 30 7"),
    ('t', "tmpfile / 1; append @1 5000 9"),
    ('o', "open /a 0"),
    // Takes away the name of what is open.
    ('u', "unlink /a"),
];

/// Things that are files, and those that are directories, in which names are.
const FILES: [char; 4] = ['a', 'b', 'c', 'f'];
const DIRECTORIES: [char; 3] = ['d', 'e', 's'];

/// The operations, and the things that they need.
const OPERATIONS: [(&str, &str); 88] = [
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
    ("snapshot first", ""),
    ("snapshot second", "n"),
    ("drop first", "n"),
    ("rollback first", "n"),
];

/// How many pairs there are.
pub const fn pair_count() -> usize {
    OPERATIONS.len() * OPERATIONS.len()
}

/// The pairs with these numbers: each takes some milliseconds, so all processors make them. When
/// it is time to stop, the rest have no past.
pub fn pairs(numbers: &[usize], stop: &Stop) -> Vec<Case> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let one = |number: &usize| if stop.is_asked() { young(*number).0 } else { pair(*number) };
    let make = |part: &[usize]| part.iter().map(one).collect::<Vec<_>>();
    thread::scope(|scope| {
        let parts = numbers.chunks(numbers.len().div_ceil(workers).max(1));
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || make(part))).collect();
        let made =
            parts.into_iter().map(|part| part.join().unwrap_or_else(|why| resume_unwind(why)));
        made.flatten().collect()
    })
}

/// Share `number` of `of` equal ones, which together are all pairs: spread, and always the same.
pub fn share(number: usize, of: usize) -> Vec<usize> {
    let of = of.max(1) as u64;
    let is_in = |pair: &usize| mix(*pair as u64) % of == number as u64 % of;
    (0..pair_count()).filter(is_in).collect()
}

/// The pair with this number, which is below [`pair_count`].
pub fn pair(number: usize) -> Case {
    let (case, things) = young(number);
    if !case.geometry.has_short_pages() {
        return case;
    }
    let (files, directories) = (paths(&things, &FILES), paths(&things, &DIRECTORIES));
    aged(case, &files, &[&["/"], &directories[..]].concat(), number as u64)
}

/// The pair on a pool that is new, and what is made before it.
fn young(number: usize) -> (Case, Vec<char>) {
    let (first, second) = (number / OPERATIONS.len(), number % OPERATIONS.len());
    let (one, two) = (&OPERATIONS[first], &OPERATIONS[second]);
    let ops = [one, two].map(|(text, _)| operations(text)).concat();
    let things = set_up(one.1, two.1, &ops);
    let case = Case {
        name: format!("pair {first}.{second}: {}, {}", one.0, two.0),
        trouble: Trouble::Power,
        geometry: geometry(number),
        before: make(&things),
        ops,
        beside: Vec::new(),
    };
    (case, things)
}

/// Where those of `things` are that are in `kind`.
fn paths(things: &[char], kind: &[char]) -> Vec<&'static str> {
    let made = THINGS.iter().filter(|(name, _)| things.contains(name) && kind.contains(name));
    made.filter_map(|(_, text)| text.split([' ', ';']).nth(1)).collect()
}

/// Pools take turns: short log pages in most, two lanes in some, data in place now and then, no memory of inodes in
/// some; two copies of metadata in an eighth, half of them with checksums of data.
fn geometry(number: usize) -> Geometry {
    let dice = mix(number as u64 ^ 0x5E02);
    let twice = dice >> 32 & 7 == 0;
    let summed = twice && dice >> 40 & 1 == 0;
    Geometry {
        bytes: if twice { 512 << 10 } else { 128 << 10 },
        dead_zone: twice.then_some(0),
        strip: summed.then_some(512),
        lanes: if dice.is_multiple_of(3) { 2 } else { 1 },
        log_lines: if dice >> 8 & 7 == 0 { ALL_LINES } else { FEW_LINES },
        relaxed: dice >> 16 & 7 == 0 && !summed,
        forgetful: dice >> 24 & 3 == 0,
        ..Geometry::default()
    }
}

/// The things of the largest set-up in which both can be done, or else the first; all that they need if
/// there is none.
fn set_up(first: &str, second: &str, ops: &[Op]) -> Vec<char> {
    let wanted = |name: &char| first.contains(*name) || second.contains(*name);
    let all: Vec<char> = THINGS.iter().map(|(name, _)| *name).filter(wanted).collect();
    let least = |name: &char| first.contains(*name);
    let mut choices = vec![all.clone()];
    choices.extend((0..all.len()).map(|left_out| without(&all, &[left_out])));
    choices.push(all.iter().copied().filter(least).collect());
    for one in 0..all.len() {
        choices.extend((0..one).map(|other| without(&all, &[one, other])));
    }
    let done: Vec<u32> = choices.iter().map(|names| succeed(&make(names), ops)).collect();
    let most = done.iter().max().copied().unwrap_or(0);
    let first_best = choices.into_iter().zip(done).find(|(_, done)| *done == most);
    first_best.map(|(names, _)| names).unwrap_or_default()
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
        if matches!(op, Op::Remount | Op::Crash | Op::Rollback(_)) {
            handles.clear();
            model.release_all();
        }
        match op {
            Op::Rollback(name) => model.rollback(name).is_ok(),
            op => execute(&model, &mut handles, op).is_ok(),
        }
    };
    if !before.iter().all(&mut run) {
        return 0;
    }
    let weights = [3, 2];
    1 + ops.iter().zip(weights).filter(|(op, _)| run(op)).map(|(_, weight)| weight).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::aged::outcome;

    #[test]
    fn in_nearly_every_pair_both_collectors_run() {
        let cases = pairs(&share(5, 16), &Stop::NEVER);
        let run = |case: &&Case| outcome(case).is_ok_and(|outcome| outcome.both());
        let both = cases.iter().filter(run).count();
        let alone = cases.iter().filter(|case| case.ops.len() == 2).filter(run).count();
        println!(
            "both collectors run in {both} of {} pairs, in {alone} by themselves",
            cases.len()
        );
        assert!(both * 100 >= cases.len() * 85, "{both} of {}", cases.len());
    }
}
