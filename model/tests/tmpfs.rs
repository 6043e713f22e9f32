//! The model does what a real tmpfs does: the same random operations give the same values,
//! error numbers, trees, contents and changes of time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod real;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lode_engine::{Error, mode};
use lode_model::Model;
use lode_testkit::execute::{Handles, Value, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Op, Path, Target, print};
use real::{Tmpfs, kind_of, value};

/// Outcomes are equal. That a directory is not linked is enough: why has no number of its own
/// in the engine.
fn same(op: &Op, model: &Result<Value, Error>, real: &io::Result<Value>) -> bool {
    match (model, real) {
        (Ok(one), Ok(other)) => one == other,
        (Err(Error::Invalid), Err(_)) if matches!(op, Op::Link { .. }) => true,
        (Err(one), Err(other)) => other.raw_os_error() == Some(one.errno()),
        _ => false,
    }
}

/// What the two can both be asked: no handles to anything but files, no modes of symbolic
/// links.
fn askable(op: &Op, model: &Model) -> bool {
    let kind = |path: &Path| {
        let ino = lodge(model, path)?;
        model.getattr(ino).ok().map(|attr| attr.mode & mode::TYPE)
    };
    let allowed = match op {
        // Linux has no such calls: it is a server that does both in one.
        Op::CreateWith { .. } | Op::SetAttrWith { .. } | Op::Tmpfile { xattr: Some(_), .. } => {
            false
        }
        // A kernel looks at the length of the target before it looks at the path.
        Op::Symlink { target, .. } => target.len() <= 4095,
        Op::Open { path, .. } => matches!(kind(path), None | Some(mode::FILE)),
        Op::SetAttr { of: Target::Path(path), attrs } => {
            kind(path) != Some(mode::SYMLINK) || (attrs.mode.is_none() && attrs.size.is_none())
        }
        _ => true,
    };
    allowed && !short_of_a_path(op, model)
}

/// A kernel looks a path's names up before it looks at the other arguments of some calls, and
/// resolves `symlink/..` through the link: such paths are left out.
fn short_of_a_path(op: &Op, model: &Model) -> bool {
    let through_symlink = |path: &Path| {
        (1..path.0.len()).any(|len| {
            let above = Path(path.0[..len].to_vec());
            let attr = lodge(model, &above).and_then(|ino| model.getattr(ino).ok());
            attr.is_some_and(|attr| attr.mode & mode::TYPE == mode::SYMLINK)
        })
    };
    paths(op).iter().any(|path| through_symlink(path))
}

fn paths(op: &Op) -> Vec<&Path> {
    match op {
        Op::Create { path, .. }
        | Op::Symlink { path, .. }
        | Op::Unlink { path }
        | Op::Rmdir { path }
        | Op::Readlink { path }
        | Op::List { path }
        | Op::Open { path, .. } => vec![path],
        Op::Rename { from, to, .. } => vec![from, to],
        Op::Link { from: Target::Path(from), to } => vec![from, to],
        Op::SetAttr { of: Target::Path(path), .. }
        | Op::SetXattr { of: Target::Path(path), .. }
        | Op::GetXattr { of: Target::Path(path), .. }
        | Op::Write { to: Target::Path(path), .. }
        | Op::Append { to: Target::Path(path), .. }
        | Op::Read { from: Target::Path(path), .. }
        | Op::Fallocate { of: Target::Path(path), .. }
        | Op::Fsync { of: Target::Path(path) }
        | Op::Stat { of: Target::Path(path) } => vec![path],
        _ => Vec::new(),
    }
}

fn lodge(model: &Model, path: &Path) -> Option<u64> {
    lode_testkit::execute::resolve(model, path).ok()
}

/// All paths with what `stat` says, the files' contents, and all extended attributes.
type Tree = BTreeMap<Path, (Value, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

fn real_tree(tmpfs: &Tmpfs) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![Path::root()];
    while let Some(path) = todo.pop() {
        let at = tmpfs.at(&path);
        let metadata = std::fs::symlink_metadata(&at).unwrap();
        let content = match kind_of(&metadata.file_type()) {
            mode::FILE => std::fs::read(&at).unwrap(),
            mode::SYMLINK => std::fs::read_link(&at).unwrap().into_os_string().into_vec(),
            mode::DIRECTORY => {
                todo.extend(tmpfs.list(&path).unwrap().iter().map(|(name, _)| path.join(name)));
                Vec::new()
            }
            _ => Vec::new(),
        };
        tree.insert(path.clone(), (value(&metadata), content, tmpfs.xattrs(&path).unwrap()));
    }
    tree.remove(&Path::root());
    tree
}

fn model_tree(model: &Model) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(Path::root(), model.root())];
    while let Some((path, ino)) = todo.pop() {
        let attr = model.getattr(ino).unwrap();
        let content = match attr.mode & mode::TYPE {
            mode::FILE => {
                let mut bytes = vec![0xA5; attr.size as usize];
                assert_eq!(model.read(ino, 0, &mut bytes).unwrap(), bytes.len());
                bytes
            }
            mode::SYMLINK => model.readlink(ino).unwrap(),
            mode::DIRECTORY => {
                let mut visit = |entry: lode_engine::DirEntry<'_>| {
                    todo.push((path.join(entry.name), entry.ino));
                    true
                };
                model.readdir(ino, 0, &mut visit).unwrap();
                Vec::new()
            }
            _ => Vec::new(),
        };
        let names = model.listxattr(ino).unwrap().into_iter();
        let xattrs = names.map(|name| (name.clone(), model.getxattr(ino, &name).unwrap()));
        tree.insert(path, (Value::of(&attr), content, xattrs.collect()));
    }
    tree.remove(&Path::root());
    tree
}

fn compare(seed: u64, count: usize) {
    let Some(mut tmpfs) = Tmpfs::new(&format!("random{seed}")) else {
        return;
    };
    let model = Model::new();
    let shape = Shape { sparse: false, offset_max: 3 << 20, depth: 4, ..Shape::default() };
    let mut generator = Generator::new(seed, shape);
    let (mut handles, mut done) = (Handles::new(), Vec::new());
    for step in 0..count {
        let op = generator.op();
        if !askable(&op, &model) {
            continue;
        }
        done.push(op.clone());
        let wanted = tmpfs.apply(&op);
        let found = execute(&model, &mut handles, &op);
        let text = || format!("seed {seed}\n{}", print(&done));
        assert!(same(&op, &found, &wanted), "{op}: tmpfs {wanted:?}, model {found:?}\n{}", text());
        if step % 50 == 49 || step + 1 == count {
            let (wanted, found) = (real_tree(&tmpfs), model_tree(&model));
            for (path, want) in &wanted {
                assert!(found.get(path) == Some(want), "{path} differs\n{}", text());
            }
            assert_eq!(found.len(), wanted.len(), "{}", text());
        }
    }
}

#[test]
fn random_operations_do_what_a_tmpfs_does() {
    for seed in 0..40 {
        compare(seed, 400);
    }
}

/// Longer than the kernel's clock takes to move.
const TICK: Duration = Duration::from_millis(11);

/// Inode, modification and change time by path, in a real tree and in the model's.
type Moments = BTreeMap<Path, (u64, i128, i128)>;

fn moments(tmpfs: &Tmpfs, model: &Model) -> (Moments, Moments) {
    let (mut real, mut modelled) = (Moments::new(), Moments::new());
    for path in model_tree(model).into_keys().chain([Path::root()]) {
        let found = std::fs::symlink_metadata(tmpfs.at(&path)).unwrap();
        let time = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let mtime = time(found.mtime(), found.mtime_nsec());
        let ctime = time(found.ctime(), found.ctime_nsec());
        real.insert(path.clone(), (found.ino(), mtime, ctime));
        let attr = model.getattr(lodge(model, &path).unwrap()).unwrap();
        modelled.insert(path, (attr.ino, attr.mtime_ns.into(), attr.ctime_ns.into()));
    }
    (real, modelled)
}

/// Whether the times of the inode under a path moved; `None` if it is another one now.
fn moved(before: &Moments, after: &Moments, path: &Path) -> Option<(bool, bool)> {
    let (before, after) = (before.get(path)?, after.get(path)?);
    (before.0 == after.0).then_some((before.1 != after.1, before.2 != after.2))
}

#[test]
fn the_same_times_move_as_in_a_tmpfs() {
    let Some(mut tmpfs) = Tmpfs::new("times") else {
        return;
    };
    let model = Model::new();
    let shape = Shape { sparse: false, depth: 3, names: 3, odd_names: false, ..Shape::default() };
    let mut generator = Generator::new(7, shape);
    let (mut handles, mut done) = (Handles::new(), Vec::new());
    let mut before = moments(&tmpfs, &model);
    for step in 0..500 {
        let op = generator.op();
        if !askable(&op, &model) {
            continue;
        }
        done.push(op.clone());
        std::thread::sleep(TICK);
        model.set_now(1_000 + step);
        let wanted = tmpfs.apply(&op);
        let found = execute(&model, &mut handles, &op);
        assert!(same(&op, &found, &wanted), "{op}: tmpfs {wanted:?}, model {found:?}");
        let after = moments(&tmpfs, &model);
        for path in after.0.keys() {
            let loose = model.loose(lodge(&model, path).unwrap());
            let wanted = moved(&before.0, &after.0, path);
            let found = moved(&before.1, &after.1, path);
            if let (Some(wanted), Some(found)) = (wanted, found) {
                let mtime = loose.mtime || wanted.0 == found.0;
                let ctime = loose.ctime || wanted.1 == found.1;
                let text = || print(&done);
                assert!(mtime, "{op}: mtime of {path} moved: {}\n{}", wanted.0, text());
                assert!(ctime, "{op}: ctime of {path} moved: {}\n{}", wanted.1, text());
            }
        }
        before = after;
    }
}
