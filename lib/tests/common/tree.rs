//! A whole tree as a value, of std and of the library.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lode::Pool;

/// What is compared of a name: mode, links, owner and group, size, contents or target.
pub type Seen = (u32, u64, (u32, u32), u64, Vec<u8>);

pub type Tree = BTreeMap<PathBuf, Seen>;

/// What is below a directory.
pub fn of_system(root: &Path) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![root.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let content = match found.file_type() {
                kind if kind.is_file() => fs::read(&path).unwrap(),
                kind if kind.is_symlink() => bytes(fs::read_link(&path).unwrap(), root),
                _ => Vec::new(),
            };
            let size = if found.is_dir() { 0 } else { content.len() as u64 };
            let owner = (found.uid(), found.gid());
            let seen = (found.mode(), found.nlink(), owner, size, content);
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
            if found.is_dir() {
                todo.push(path);
            }
        }
    }
    tree
}

/// What is below a directory of a pool.
pub fn of_pool(pool: &Pool, root: &Path) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![root.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in pool.read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let (path, found) = (entry.path(), entry.metadata().unwrap());
            assert_eq!(entry.file_type(), found.file_type(), "{path:?}");
            assert_eq!(entry.ino(), found.ino(), "{path:?}");
            assert_eq!(pool.symlink_metadata(&path).unwrap(), found, "{path:?}");
            let content = match found.file_type() {
                kind if kind.is_file() => pool.read(&path).unwrap(),
                kind if kind.is_symlink() => bytes(pool.read_link(&path).unwrap(), Path::new("/")),
                _ => Vec::new(),
            };
            let size = if found.is_dir() { 0 } else { found.len() };
            assert!(found.is_symlink() || size == content.len() as u64, "{path:?}");
            let size = content.len() as u64;
            let owner = (found.uid(), found.gid());
            let seen = (found.mode(), found.nlink(), owner, size, content);
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
            if found.is_dir() {
                todo.push(path);
            }
        }
    }
    tree
}

/// A link's target, as it would be if the root were `/`.
fn bytes(target: PathBuf, root: &Path) -> Vec<u8> {
    let text = target.to_str().unwrap_or_default();
    match text.strip_prefix(root.to_str().unwrap()) {
        Some(rest) if root != Path::new("/") => rest.as_bytes().to_vec(),
        _ => target.into_os_string().into_encoded_bytes(),
    }
}

/// The first difference of two trees.
pub fn difference(system: &Tree, pool: &Tree) -> Option<String> {
    let names = system.keys().chain(pool.keys());
    let differs = names.into_iter().find(|name| system.get(*name) != pool.get(*name))?;
    Some(format!("{differs:?}: {:?} in std, {:?} here", system.get(differs), pool.get(differs)))
}
