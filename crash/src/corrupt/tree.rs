//! All that a file system shows, byte by byte, taken from the model.

use std::collections::HashMap;

use lode_engine::{Ino, mode};
use lode_testkit::execute::Value;
use lode_testkit::fs::Fs;
use lode_testkit::op::Path;

/// One name, and what is behind it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// For people; in a snapshot it begins with `.lode`.
    pub(super) path: Path,
    pub(super) name: Vec<u8>,
    /// Number in the model.
    pub(super) model_ino: Ino,
    pub(super) attr: Value,
    pub(super) kind: u32,
    /// Access, modification, change and birth time; `None` where POSIX leaves it open.
    pub(super) times: [Option<i64>; 4],
    pub(super) data: Vec<u8>,
    /// By name.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) target: Vec<u8>,
    /// Children by their place in the tree, in the order of their names.
    pub(super) children: Vec<usize>,
    /// Directory that it is in.
    pub(super) parent: usize,
}

/// A file system: what it is now, and its snapshots.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Snapshots by name, the oldest first, each with its root's place.
    pub(super) snapshots: Vec<(Vec<u8>, usize)>,
}

/// The numbers that inodes of the model have in the pool.
pub(super) type Numbers = HashMap<Ino, Ino>;

impl Tree {
    /// That of the model. (Its root is the first node.)
    pub(super) fn of(model: &dyn Fs) -> Result<Self, String> {
        let mut tree = Tree::default();
        tree.below(model, Path::root(), model.root())?;
        let kept = model.snapshots().map_err(|error| format!("the model: {error:?}"))?;
        for (name, root) in kept {
            let place = tree.below(model, Path::of(".lode").join(&name), root)?;
            tree.snapshots.push((name, place));
        }
        Ok(tree)
    }

    fn below(&mut self, fs: &dyn Fs, path: Path, ino: Ino) -> Result<usize, String> {
        let root = self.nodes.len();
        self.nodes.push(node(fs, path, Vec::new(), ino, root)?);
        let mut todo = vec![root];
        while let Some(dir) = todo.pop() {
            if self.nodes[dir].kind != mode::DIRECTORY {
                continue;
            }
            let mut names = Vec::new();
            let listed = fs.readdir(self.nodes[dir].model_ino, 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.ino));
                true
            });
            listed.map_err(|error| format!("the model: listing: {error:?}"))?;
            names.sort();
            for (name, child) in names {
                let path = self.nodes[dir].path.join(&name);
                let place = self.nodes.len();
                self.nodes.push(node(fs, path, name, child, dir)?);
                self.nodes[dir].children.push(place);
                todo.push(place);
            }
        }
        Ok(root)
    }

    /// Which numbers a pool has for what the model has, where the pool shows this tree.
    pub(super) fn numbers(&self, pool: &dyn Fs) -> Result<Numbers, String> {
        let mut numbers = Numbers::new();
        let mut places = vec![0; self.nodes.len()];
        let kept = pool.snapshots().map_err(|error| format!("snapshots: {error:?}"))?;
        let roots = self.snapshots.iter().map(|(_, place)| *place);
        for (place, (_, root)) in roots.zip(kept) {
            places[place] = root;
        }
        places[0] = pool.root();
        for (place, node) in self.nodes.iter().enumerate() {
            if node.parent != place {
                let found = pool.lookup(places[node.parent], &node.name);
                places[place] = found.map_err(|error| format!("{}: {error:?}", node.path))?.ino;
            }
            numbers.insert(node.model_ino, places[place]);
        }
        Ok(numbers)
    }
}

fn node(fs: &dyn Fs, path: Path, name: Vec<u8>, ino: Ino, parent: usize) -> Result<Node, String> {
    let fail = |error: lode_engine::Error| format!("the model: {path}: {error:?}");
    let attr = fs.getattr(ino).map_err(fail)?;
    let (loose, kind) = (fs.loose(ino), attr.mode & mode::TYPE);
    let mut data = Vec::new();
    if kind == mode::FILE {
        data.resize(attr.size as usize, 0);
        fs.read(ino, 0, &mut data).map_err(fail)?;
    }
    let mut xattrs = Vec::new();
    for name in fs.listxattr(ino).map_err(fail)? {
        let value = fs.getxattr(ino, &name).map_err(fail)?;
        xattrs.push((name, value));
    }
    xattrs.sort();
    let target = if kind == mode::SYMLINK { fs.readlink(ino).map_err(fail)? } else { Vec::new() };
    let times = [
        Some(attr.atime_ns),
        (!loose.mtime).then_some(attr.mtime_ns),
        (!loose.ctime).then_some(attr.ctime_ns),
        Some(attr.btime_ns),
    ];
    let (attr, children) = (Value::of(&attr), Vec::new());
    Ok(Node {
        path,
        name,
        model_ino: ino,
        attr,
        kind,
        times,
        data,
        xattrs,
        target,
        children,
        parent,
    })
}
