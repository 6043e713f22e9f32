//! Random cases, by number.

use lode_engine::PageClass;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Op, Path};
use lode_testkit::rng::Rng;

use crate::case::{Case, Geometry, Trouble};
use crate::workload::build::{ALL_LINES, FEW_LINES, HUGE_POOL};

/// Keeps the numbers of cases apart from other seeds.
const SALT: u64 = 0x00C0_FFEE;
/// Keeps the cases of seeds apart.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The random case with this number of those that a seed gives: a short sequence, and where it runs.
pub fn random_case(number: u64, seed: u64) -> Case {
    let name = format!("random {number}");
    let number = number ^ seed.wrapping_sub(1).wrapping_mul(SPREAD);
    let mut rng = Rng::new(number ^ SALT);
    let geometry = Geometry { forgetful: number % 4 == 3, ..geometry(&mut rng) };
    let shape = shape(&mut rng, &geometry);
    let mut generator = Generator::new(number, shape);
    let quiet = rng.pick(&[0, 5, 20, 60, 200]);
    let mut before = generator.take(quiet);
    let count = 2 + rng.below(11) as usize;
    let mut ops = generator.take(count);
    if geometry.lanes > 1 && rng.once_in(4) {
        other_cpus(&mut rng, &mut before, &mut ops);
    }
    if rng.once_in(3) {
        snapshots(&mut rng, &mut before, &mut ops);
    }
    Case { name, trouble: Trouble::Power, geometry, before, ops, beside: Vec::new() }
}

fn geometry(rng: &mut Rng) -> Geometry {
    let huge = rng.once_in(8);
    let twins = !huge && rng.once_in(4);
    let strips = twins && rng.once_in(2);
    Geometry {
        bytes: match (huge, twins) {
            (true, _) => HUGE_POOL,
            (_, true) => rng.pick(&[384, 512, 1024, 2048]) << 10,
            _ => rng.pick(&[128, 192, 256, 512, 1024, 2048]) << 10,
        },
        made: None,
        lanes: rng.pick(&[1, 1, 2, 2, 4]),
        log_lines: rng.pick(&[FEW_LINES, FEW_LINES, ALL_LINES]),
        class: if huge { PageClass::Huge } else { PageClass::Small },
        relaxed: rng.once_in(6),
        mapped: false,
        atime: rng.once_in(8),
        forgetful: false,
        dead_zone: twins.then_some(0),
        strip: strips.then(|| rng.pick(&[512, 512, 1024, 2048])),
        nonces: None,
        side_by_side: !twins && rng.once_in(6),
        held: false,
        lossy: false,
    }
}

fn shape(rng: &mut Rng, geometry: &Geometry) -> Shape {
    Shape {
        below: Path::root(),
        names: rng.pick(&[2, 4, 8]),
        odd_names: true,
        name_max: if geometry.log_lines == ALL_LINES { 256 } else { 136 },
        depth: rng.pick(&[1, 2, 3]),
        offset_max: rng.pick(&[200, 5000, 20_000]),
        len_max: rng.pick(&[20, 600, 5000, 9000]),
        sparse: rng.once_in(3),
        slots: 2,
        remount_every: rng.pick(&[0, 10, 30]),
        maintain_every: rng.pick(&[6, 12, 40]),
        privileged: true,
    }
}

/// The host has another number of CPUs in a later session.
fn other_cpus(rng: &mut Rng, before: &mut Vec<Op>, ops: &mut Vec<Op>) {
    before.push(Op::Cpus(rng.pick(&[1, 2, 3, 4])));
    ops.insert(0, if rng.once_in(2) { Op::Remount } else { Op::Crash });
}

/// Snapshots are made, end, and become what there is, among the other operations.
fn snapshots(rng: &mut Rng, before: &mut Vec<Op>, ops: &mut Vec<Op>) {
    for number in 0..2 + rng.below(3) {
        let name = rng.pick(&[&b"s"[..], b"t"]).to_vec();
        let op = match rng.below(6) {
            _ if number == 0 => Op::Snapshot(name),
            0..3 => Op::Snapshot(name),
            3 | 4 => Op::Drop(name),
            _ => Op::Rollback(name),
        };
        let list = if rng.once_in(3) { &mut *before } else { &mut *ops };
        list.insert(rng.below(list.len() as u64 + 1) as usize, op);
    }
}
