//! Everything that can be seen of a file system, as a value that can be compared.

use std::collections::{BTreeMap, HashMap};

use lode_engine::{Error, Ino, mode};

use crate::execute::Value;
use crate::fs::{Fs, is_gone};
use crate::op::Path;

const PAGE: u64 = 4096;
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
/// Files up to this size are read as a whole; larger ones where data is said or known to be.
const READ_WHOLE: u64 = 1 << 20;

/// What is seen of one name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seen {
    /// Type, permissions, links, owner, size.
    pub attr: Value,
    /// Access, modification, change and birth time; `None` where they must not be compared.
    pub times: [Option<i64>; 4],
    /// Hashes of the pages that are not all zeros, by offset.
    pub pages: BTreeMap<u64, u32>,
    /// Extended attributes: length and hash of the value, by name.
    pub xattrs: BTreeMap<Vec<u8>, (usize, u32)>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// The first path of the same inode.
    pub same_as: Path,
}

/// A tree, by path.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Snapshot(pub BTreeMap<Path, Seen>);

impl Snapshot {
    /// Whether a file is so large that what is looked at of it depends on the hint.
    pub fn has_large_files(&self) -> bool {
        let large =
            |seen: &Seen| matches!(seen.attr, Value::Attr { size, .. } if size > READ_WHOLE);
        self.0.values().any(large)
    }
}

/// Which times a snapshot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Modification, change and birth times.
    pub changes: bool,
    /// Access times.
    pub access: bool,
}

impl Times {
    /// All of them.
    pub const ALL: Times = Times { changes: true, access: true };
    /// None of them.
    pub const NONE: Times = Times { changes: false, access: false };
}

/// Looks at everything. `hint` is a snapshot of what should be there: the pages it knows of
/// are looked at even where `seek` says that there is nothing.
pub fn snapshot(fs: &dyn Fs, times: Times, hint: Option<&Snapshot>) -> Result<Snapshot, String> {
    let mut found = snapshot_from(fs, fs.root(), times, hint)?;
    let kept = fs.snapshots().map_err(|error| format!("snapshots: {error} ({error:?})"))?;
    for (number, (name, root)) in kept.into_iter().enumerate() {
        // (Their order is seen, too.)
        let place = Path::of(&format!(".lode/{number}")).join(&name);
        let below = |hint: &Snapshot| {
            let inside = |(path, seen): (&Path, &Seen)| {
                Some((Path(path.0.strip_prefix(place.0.as_slice())?.to_vec()), seen.clone()))
            };
            Snapshot(hint.0.iter().filter_map(inside).collect())
        };
        let tree = snapshot_from(fs, root, times, hint.map(below).as_ref())
            .map_err(|what| format!("{place}: {what}"))?;
        found.0.extend(
            tree.0
                .into_iter()
                .map(|(path, seen)| (Path(place.0.iter().cloned().chain(path.0).collect()), seen)),
        );
    }
    Ok(found)
}

/// The same of what is below a directory that is its own parent.
pub fn snapshot_from(
    fs: &dyn Fs,
    root: Ino,
    times: Times,
    hint: Option<&Snapshot>,
) -> Result<Snapshot, String> {
    let mut found = Snapshot::default();
    let mut firsts: HashMap<Ino, Path> = HashMap::new();
    let mut inodes = Vec::new();
    let mut todo = vec![(Path::root(), root)];
    while let Some((path, ino)) = todo.pop() {
        let fail = |what: &str, error: Error| format!("{path}: {what}: {error} ({error:?})");
        let seen = look(fs, &path, ino, times, hint)?;
        if let Value::Attr { mode, .. } = seen.attr
            && mode & mode::TYPE == mode::DIRECTORY
        {
            let mut children = children(fs, &path, ino)?;
            children.sort();
            for (name, child) in children.into_iter().rev() {
                let parent = if mode & mode::TYPE == mode::DIRECTORY { ino } else { child };
                let attr =
                    fs.lookup(parent, &name).map_err(|e| fail("lookup of a listed name", e))?;
                if attr.ino != child {
                    return Err(format!("{path}: listing and lookup differ in the inode"));
                }
                todo.push((path.join(&name), child));
            }
        }
        firsts.entry(ino).or_insert_with(|| path.clone());
        inodes.push((path.clone(), ino));
        found.0.insert(path, seen);
    }
    // Paths are visited in order, so the first path of an inode is the least one.
    for (path, ino) in inodes {
        if let (Some(seen), Some(first)) = (found.0.get_mut(&path), firsts.get(&ino)) {
            seen.same_as.clone_from(first);
        }
    }
    Ok(found)
}

fn children(fs: &dyn Fs, path: &Path, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, String> {
    let mut children: Vec<(Vec<u8>, Ino)> = Vec::new();
    let mut kinds = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        children.push((entry.name.to_vec(), entry.ino));
        kinds.push(entry.kind);
        true
    })
    .map_err(|error| format!("{path}: listing: {error:?}"))?;
    resumed(fs, dir, &children).map_err(|what| format!("{path}: {what}"))?;
    for ((name, ino), kind) in children.iter().zip(kinds) {
        let attr = fs.getattr(*ino).map_err(|e| format!("{path}: child {name:?}: {e:?}"))?;
        if attr.mode & mode::TYPE != kind {
            return Err(format!("{path}: kind of {name:?} is wrong in the listing"));
        }
        if kind == mode::DIRECTORY {
            let parent = fs.parent(*ino).map_err(|e| format!("{path}: parent: {e:?}"))?;
            let dotdot = fs.lookup(*ino, b"..").map_err(|e| format!("{path}: ..: {e:?}"))?;
            if parent != dir || dotdot.ino != dir {
                return Err(format!("{path}: parent of {name:?} is {parent}, not {dir}"));
            }
        }
    }
    Ok(children)
}

/// A listing that stops in the middle and goes on from its cookie gives the same names.
fn resumed(fs: &dyn Fs, dir: Ino, all: &[(Vec<u8>, Ino)]) -> Result<(), String> {
    let (mut cookie, mut seen) = (0, 0);
    let half = all.len().div_ceil(2);
    let first_half = fs.readdir(dir, 0, &mut |entry| {
        (cookie, seen) = (entry.cookie, seen + 1);
        seen < half
    });
    first_half.map_err(|error| format!("half a listing: {error:?}"))?;
    let mut found = Vec::new();
    let second_half = fs.readdir(dir, cookie, &mut |entry| {
        found.push((entry.name.to_vec(), entry.ino));
        true
    });
    second_half.map_err(|error| format!("the other half of a listing: {error:?}"))?;
    let right = found == all[half..];
    right.then_some(()).ok_or("a listing that goes on from its middle gives other names".into())
}

fn look(
    fs: &dyn Fs,
    path: &Path,
    ino: Ino,
    times: Times,
    hint: Option<&Snapshot>,
) -> Result<Seen, String> {
    let fail = |error: Error| format!("{path}: {error} ({error:?})");
    let attr = fs.getattr(ino).map_err(fail)?;
    let loose = fs.loose(ino);
    let kind = attr.mode & mode::TYPE;
    let mut seen = Seen {
        attr: Value::of(&attr),
        times: [
            times.access.then_some(attr.atime_ns),
            (times.changes && !loose.mtime).then_some(attr.mtime_ns),
            (times.changes && !loose.ctime).then_some(attr.ctime_ns),
            times.changes.then_some(attr.btime_ns),
        ],
        pages: BTreeMap::new(),
        xattrs: xattrs(fs, ino, attr.xattrs as usize).map_err(|e| format!("{path}: {e}"))?,
        target: Vec::new(),
        same_as: Path::root(),
    };
    if kind == mode::FILE {
        let hints = hint.and_then(|all| all.0.get(path)).map(|seen| &seen.pages);
        seen.pages = contents(fs, ino, attr.size, hints).map_err(|e| format!("{path}: {e}"))?;
    } else if kind == mode::SYMLINK {
        seen.target = fs.readlink(ino).map_err(fail)?;
    }
    Ok(seen)
}

fn xattrs(fs: &dyn Fs, ino: Ino, count: usize) -> Result<BTreeMap<Vec<u8>, (usize, u32)>, String> {
    if count == 0 {
        return Ok(BTreeMap::new());
    }
    let names = fs.listxattr(ino).map_err(|e| format!("attributes: {e:?}"))?;
    if names.len() != count {
        return Err(format!("{count} extended attributes, but {} are listed", names.len()));
    }
    let mut found = BTreeMap::new();
    for name in names {
        let value = fs.getxattr(ino, &name).map_err(|e| format!("attribute {name:?}: {e:?}"))?;
        if found.insert(name, (value.len(), lode_pmem::crc32c(0, &value))).is_some() {
            return Err("an extended attribute is listed twice".to_owned());
        }
    }
    Ok(found)
}

/// Hashes of the pages of a file that are not all zeros.
///
/// # Errors
/// Reads that fail or are short, and data where `seek` says that there is none.
pub fn contents(
    fs: &dyn Fs,
    ino: Ino,
    size: u64,
    hints: Option<&BTreeMap<u64, u32>>,
) -> Result<BTreeMap<u64, u32>, String> {
    let data = data_pages(fs, ino, size)?;
    let mut offsets: Vec<u64> = data.clone();
    if size <= READ_WHOLE {
        offsets = (0..size.div_ceil(PAGE)).map(|page| page * PAGE).collect();
    } else {
        offsets.extend(hints.iter().flat_map(|pages| pages.keys()).filter(|&&at| at < size));
        offsets.push((size - 1) / PAGE * PAGE);
        offsets.sort_unstable();
        offsets.dedup();
    }
    let mut pages = BTreeMap::new();
    let mut buffer = vec![0; PAGE as usize];
    for at in offsets {
        let want = (size - at).min(PAGE) as usize;
        buffer.fill(0xA5);
        let got = fs.read(ino, at, &mut buffer).map_err(|e| format!("read at {at}: {e:?}"))?;
        if got != want {
            return Err(format!("read at {at} of a file of {size} bytes gave {got} bytes"));
        }
        if buffer[..got] != ZEROS[..got] {
            if data.binary_search(&at).is_err() {
                return Err(format!("seek calls the page at {at} a hole, but it holds data"));
            }
            pages.insert(at, lode_pmem::crc32c(0, &buffer[..got]));
        }
    }
    Ok(pages)
}

/// Offsets of the pages that `seek` calls data.
fn data_pages(fs: &dyn Fs, ino: Ino, size: u64) -> Result<Vec<u64>, String> {
    let mut pages = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match fs.seek(ino, at, true) {
            Ok(start) => start,
            Err(error) if is_gone(error) => break,
            Err(error) => return Err(format!("seek of data from {at}: {error:?}")),
        };
        let end = fs.seek(ino, start, false).map_err(|e| format!("seek of hole: {e:?}"))?;
        if start < at || end <= start || end > size {
            return Err(format!("seek from {at} of {size}: data from {start} to {end}"));
        }
        pages.extend((start / PAGE..end.div_ceil(PAGE)).map(|page| page * PAGE));
        at = end;
    }
    pages.dedup();
    Ok(pages)
}

/// The first few differences, as text; `None` if there are none.
pub fn difference(wanted: &Snapshot, found: &Snapshot) -> Option<String> {
    let mut lines = Vec::new();
    for (path, want) in &wanted.0 {
        match found.0.get(path) {
            None => lines.push(format!("{path} is missing")),
            // (Nearly all are equal.)
            Some(have) if want == have => (),
            Some(have) => lines.extend(differences(path, want, have)),
        }
    }
    let extra = found.0.keys().filter(|path| !wanted.0.contains_key(*path));
    lines.extend(extra.map(|path| format!("{path} should not be there")));
    lines.truncate(8);
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn differences(path: &Path, want: &Seen, have: &Seen) -> Vec<String> {
    let mut lines = Vec::new();
    let mut differ = |what: &str, want: String, have: String| {
        lines.push(format!("{path}: {what}: {want} expected, {have} found"));
    };
    if want.attr != have.attr {
        let attributes = want.attr.attributes().into_iter().zip(have.attr.attributes());
        for ((name, want), (_, have)) in attributes.filter(|(want, have)| want != have) {
            differ(name, want, have);
        }
    }
    for (name, index) in [("atime", 0), ("mtime", 1), ("ctime", 2), ("btime", 3)] {
        if let (Some(want), Some(have)) = (want.times[index], have.times[index])
            && want != have
        {
            differ(name, want.to_string(), have.to_string());
        }
    }
    if want.target != have.target {
        differ("target", format!("{:?}", want.target), format!("{:?}", have.target));
    }
    if want.xattrs != have.xattrs {
        differ("extended attributes", format!("{:?}", want.xattrs), format!("{:?}", have.xattrs));
    }
    if want.same_as != have.same_as {
        differ("hard link of", want.same_as.to_string(), have.same_as.to_string());
    }
    let all = want.pages.keys().chain(have.pages.keys());
    if let Some(at) = all.filter(|at| want.pages.get(at) != have.pages.get(at)).min() {
        let show = |page: Option<&u32>| page.map_or("zeros".into(), |crc| format!("{crc:08x}"));
        let what = format!("page at {at}");
        differ(&what, show(want.pages.get(at)), show(have.pages.get(at)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32, size: u64) -> Seen {
        Seen {
            attr: Value::Attr { mode, links: 1, uid: 0, gid: 0, rdev: 0, size },
            times: [None; 4],
            pages: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            target: Vec::new(),
            same_as: Path::of("/a"),
        }
    }

    #[test]
    fn each_attribute_that_differs_is_named_as_people_write_it() {
        let tree = |seen: Seen| Snapshot([(Path::of("/a"), seen)].into());
        let told = difference(&tree(file(0o100_600, 7)), &tree(file(0o100_644, 9)));
        let mode = "/a: mode: 0o100600 expected, 0o100644 found";
        assert_eq!(told.unwrap(), format!("{mode}; /a: size: 7 expected, 9 found"));
        assert_eq!(difference(&tree(file(0o100_600, 7)), &tree(file(0o100_600, 7))), None);
    }
}
