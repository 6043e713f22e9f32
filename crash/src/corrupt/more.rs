//! Operations that are done on a pool that has a past: while one is cut off, or while damage comes.

use lode_engine::{XattrWhen, mode};
use lode_testkit::op::{Attrs, Fill, Op, Path, Target};
use lode_testkit::rng::Rng;

use super::tree::{Node, Tree};

/// An operation on what a tree has.
pub(super) fn one_more(tree: &Tree, rng: &mut Rng) -> Op {
    let live = live(tree);
    let some = |rng: &mut Rng| live[rng.below(live.len() as u64) as usize];
    let (one, other) = (some(rng), some(rng));
    let files: Vec<_> = live.iter().filter(|node| node.kind == mode::FILE).collect();
    let path = match files.len() {
        0 => one.path.clone(),
        many => files[rng.below(many as u64) as usize].path.clone(),
    };
    let to = Target::Path(path.clone());
    let directory = |node: &Node| match node.kind {
        mode::DIRECTORY => node.path.clone(),
        _ => Path(node.path.0.split_last().map_or(Vec::new(), |(_, above)| above.to_vec())),
    };
    let fresh = directory(other).join(format!("new {}", rng.below(1000)).as_bytes());
    let data = Fill { len: 1 + rng.below(6000), fill: rng.below(1000) };
    match rng.below(9) {
        0 | 1 => Op::Write { to, offset: rng.below(12_000), data },
        2 => {
            let data = Fill { len: 1 + rng.below(700), ..data };
            Op::Write { to, offset: rng.below(6000), data }
        }
        3 => Op::Append { to, data },
        4 => {
            let size = Some(rng.below(15_000));
            Op::SetAttr { of: to, attrs: Attrs { size, ..Attrs::default() } }
        }
        5 => Op::Create { path: fresh, mode: mode::FILE | 0o640, rdev: 0 },
        6 => Op::Unlink { path },
        7 => Op::Rename { from: path, to: fresh, how: lode_engine::RenameMode::Replace },
        _ => Op::SetAttr {
            of: Target::Path(one.path.clone()),
            attrs: Attrs { uid: Some(rng.below(9) as u32), ..Attrs::default() },
        },
    }
}

/// One of the kinds that [`one_more`] has not: of attributes.
pub(super) fn rarer(tree: &Tree, rng: &mut Rng) -> Op {
    let live = live(tree);
    let of = Target::Path(live[rng.below(live.len() as u64) as usize].path.clone());
    let (name, when) = (b"user.later".to_vec(), XattrWhen::Always);
    let value = Fill { len: 1 + rng.below(3000), fill: rng.below(1000) };
    Op::SetXattr { of, name, value: (!rng.once_in(3)).then_some(value), when }
}

/// What there is now, and no snapshot's.
fn live(tree: &Tree) -> Vec<&Node> {
    let is_now = |node: &&Node| node.path.0.first().is_none_or(|name| name != b".lode");
    tree.nodes.iter().filter(is_now).collect()
}
