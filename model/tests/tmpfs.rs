//! The model does what a real tmpfs does: the same random operations give the same values,
//! error numbers, trees, contents and changes of time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use lode_model::Model;
use lode_testkit::execute::{Handles, execute, resolve};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Path, print};
use lode_testkit::real::{Can, Directory, askable, difference, model_tree, real_tree, same};

/// A directory of a tmpfs; gone when dropped.
struct Tmpfs {
    root: PathBuf,
    directory: Directory,
}

impl Tmpfs {
    /// `None` where there is no tmpfs to write to, or no right to change owners and make devices.
    fn new(name: &str) -> Option<Self> {
        let root = PathBuf::from(format!("/dev/shm/lode-model-{name}-{}", std::process::id()));
        if !std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0) {
            println!("skipped: owners and devices need root");
            return None;
        }
        let _ = std::fs::remove_dir_all(&root);
        let can = Can { zero_range: false, mapped_writes: false };
        match std::fs::create_dir(&root) {
            Ok(()) => Some(Self { directory: Directory::new(root.clone(), can), root }),
            Err(error) => {
                println!("skipped: no /dev/shm to write to ({error})");
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
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
        let wanted = tmpfs.directory.apply(&op);
        let found = execute(&model, &mut handles, &op);
        let text = || format!("seed {seed}\n{}", print(&done));
        assert!(same(&found, &wanted), "{op}: tmpfs {wanted:?}, model {found:?}\n{}", text());
        if step % 50 == 49 || step + 1 == count {
            let (wanted, found) = (real_tree(&tmpfs.directory), model_tree(&model));
            let differs = difference(&wanted.unwrap(), &found.unwrap());
            assert_eq!(differs, None, "{}", text());
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
    for path in model_tree(model).unwrap().into_keys().chain([Path::root()]) {
        let found = std::fs::symlink_metadata(tmpfs.directory.at(&path)).unwrap();
        let time = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let mtime = time(found.mtime(), found.mtime_nsec());
        let ctime = time(found.ctime(), found.ctime_nsec());
        real.insert(path.clone(), (found.ino(), mtime, ctime));
        let attr = model.getattr(resolve(model, &path).unwrap()).unwrap();
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
        let wanted = tmpfs.directory.apply(&op);
        let found = execute(&model, &mut handles, &op);
        assert!(same(&found, &wanted), "{op}: tmpfs {wanted:?}, model {found:?}");
        let after = moments(&tmpfs, &model);
        for path in after.0.keys() {
            let loose = model.loose(resolve(&model, path).unwrap());
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
