//! What the two can both be asked, and whether they are equal.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStringExt;

use lode_engine::{Error, mode};
use lode_model::Model;
use lode_pmem::crc32c;

use super::directory::{Directory, kind_of, value};
use crate::execute::{Value, resolve};
use crate::op::{Op, Path, Target};

/// Outcomes are equal.
pub fn same(model: &Result<Value, Error>, real: &io::Result<Value>) -> bool {
    match (model, real) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => other.raw_os_error() == Some(one.errno()),
        _ => false,
    }
}

/// What the two can both be asked: no handles to anything but files, no modes of symbolic
/// links.
pub fn askable(op: &Op, model: &Model) -> bool {
    let kind = |path: &Path| {
        let ino = resolve(model, path).ok()?;
        model.getattr(ino).ok().map(|attr| attr.mode & mode::TYPE)
    };
    let allowed = match op {
        // Linux has no such calls: it is a server that does both in one.
        Op::CreateWith { .. } | Op::SetAttrWith { .. } | Op::Tmpfile { xattr: Some(_), .. } => {
            false
        }
        // A kernel follows a link to the directory that the file is for.
        Op::Tmpfile { dir, .. } => kind(dir) != Some(mode::SYMLINK),
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
            let attr = resolve(model, &above).ok().and_then(|ino| model.getattr(ino).ok());
            attr.is_some_and(|attr| attr.mode & mode::TYPE == mode::SYMLINK)
        })
    };
    op.paths().iter().any(|(path, _)| through_symlink(path))
}

/// What is seen of one path: what `stat` says, the checksum of the contents, and the extended
/// attributes.
type Seen = (Value, u32, Vec<(Vec<u8>, Vec<u8>)>);

/// All paths below the root.
pub type Tree = BTreeMap<Path, Seen>;

/// The tree in a directory.
///
/// # Errors
/// Those of the system calls, with the path.
pub fn real_tree(directory: &Directory) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut todo = vec![Path::root()];
    while let Some(path) = todo.pop() {
        let seen = look(directory, &path, &mut todo).map_err(|error| format!("{path}: {error}"))?;
        tree.insert(path, seen);
    }
    tree.remove(&Path::root());
    Ok(tree)
}

fn look(directory: &Directory, path: &Path, todo: &mut Vec<Path>) -> io::Result<Seen> {
    let at = directory.at(path);
    let metadata = std::fs::symlink_metadata(&at)?;
    let content = match kind_of(&metadata.file_type()) {
        mode::FILE => std::fs::read(&at)?,
        mode::SYMLINK => std::fs::read_link(&at)?.into_os_string().into_vec(),
        mode::DIRECTORY => {
            todo.extend(directory.list(path)?.iter().map(|(name, _)| path.join(name)));
            Vec::new()
        }
        _ => Vec::new(),
    };
    Ok((value(&metadata), crc32c(0, &content), directory.xattrs(path)?))
}

/// The tree in a model.
///
/// # Errors
/// Those of the model.
pub fn model_tree(model: &Model) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    let mut todo = vec![(Path::root(), model.root())];
    while let Some((path, ino)) = todo.pop() {
        let attr = model.getattr(ino)?;
        let content = match attr.mode & mode::TYPE {
            mode::FILE => {
                let mut bytes = vec![0xA5; attr.size as usize];
                assert_eq!(model.read(ino, 0, &mut bytes)?, bytes.len());
                bytes
            }
            mode::SYMLINK => model.readlink(ino)?,
            mode::DIRECTORY => {
                let mut visit = |entry: lode_engine::DirEntry<'_>| {
                    todo.push((path.join(entry.name), entry.ino));
                    true
                };
                model.readdir(ino, 0, &mut visit)?;
                Vec::new()
            }
            _ => Vec::new(),
        };
        let mut xattrs = Vec::new();
        for name in model.listxattr(ino)? {
            let value = model.getxattr(ino, &name)?;
            xattrs.push((name, value));
        }
        tree.insert(path, (Value::of(&attr), crc32c(0, &content), xattrs));
    }
    tree.remove(&Path::root());
    Ok(tree)
}

/// The first path at which two trees differ, and how.
pub fn difference(wanted: &Tree, found: &Tree) -> Option<String> {
    for (path, want) in wanted {
        let Some(have) = found.get(path) else {
            return Some(format!("{path} is missing"));
        };
        if want.0 != have.0 {
            return Some(format!("{path}: {:?} expected, {:?} found", want.0, have.0));
        }
        if want.1 != have.1 {
            return Some(format!("{path}: contents differ"));
        }
        if want.2 != have.2 {
            return Some(format!("{path}: extended attributes differ"));
        }
    }
    let more = found.keys().find(|path| !wanted.contains_key(*path));
    more.map(|path| format!("{path} should not be there"))
}
