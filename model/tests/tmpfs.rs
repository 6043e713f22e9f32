//! The model does what a real tmpfs does: the same random operations give the same values,
//! error numbers, trees, contents and changes of time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use lode_engine::{Error, Fallocate, RenameMode, mode};
use lode_model::Model;
use lode_testkit::execute::{Handles, Value, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Attrs, Op, Path, Target, print};
use rustix::fs as sys;

/// A tmpfs directory as the root of a tree.
struct Tmpfs {
    root: PathBuf,
    open: BTreeMap<usize, File>,
}

impl Tmpfs {
    fn new(name: &str) -> Option<Self> {
        let root = PathBuf::from(format!("/dev/shm/lode-model-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        match std::fs::create_dir(&root) {
            Ok(()) => Some(Self {
                root,
                open: BTreeMap::new(),
            }),
            Err(error) => {
                println!("skipped: no /dev/shm to write to ({error})");
                None
            }
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        path.0.iter().fold(self.root.clone(), |at, name| {
            at.join(OsStr::from_bytes(name))
        })
    }

    fn file(&self, target: &Target) -> io::Result<File> {
        match target {
            Target::Path(path) => {
                let path = self.at(path);
                // A symbolic link is not followed, a FIFO does not block: both then fail.
                let flags = sys::OFlags::RDWR | sys::OFlags::NOFOLLOW | sys::OFlags::NONBLOCK;
                let kind = std::fs::symlink_metadata(&path)?.file_type();
                if !kind.is_file() {
                    return Err(io::Error::from_raw_os_error(22));
                }
                Ok(sys::open(&path, flags, sys::Mode::empty())?.into())
            }
            Target::Handle(slot) => {
                let file = self
                    .open
                    .get(slot)
                    .ok_or(io::Error::from_raw_os_error(22))?;
                file.try_clone()
            }
        }
    }

    fn data_file(&self, target: &Target) -> io::Result<File> {
        let file = self.file(target)?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::from_raw_os_error(22))
        }
    }

    fn stat(&self, target: &Target) -> io::Result<Metadata> {
        match target {
            Target::Path(path) => std::fs::symlink_metadata(self.at(path)),
            Target::Handle(_) => self.file(target)?.metadata(),
        }
    }

    fn apply(&mut self, op: &Op) -> io::Result<Value> {
        match op {
            Op::Create { path, mode, rdev } => self.create(path, *mode, *rdev),
            Op::Symlink { path, target } => {
                let at = self.at(path);
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &at)?;
                std::os::unix::fs::lchown(&at, Some(3), Some(5))?;
                self.value(&Target::Path(path.clone()))
            }
            Op::Link {
                from: Target::Path(from),
                to,
            } => {
                let flags = sys::AtFlags::empty();
                sys::linkat(sys::CWD, self.at(from), sys::CWD, self.at(to), flags)?;
                self.value(&Target::Path(to.clone()))
            }
            Op::Unlink { path } => done(sys::unlink(self.at(path))),
            Op::Rmdir { path } => done(sys::rmdir(self.at(path))),
            Op::Rename { from, to, how } => {
                let flags = match how {
                    RenameMode::Replace => sys::RenameFlags::empty(),
                    RenameMode::NoReplace => sys::RenameFlags::NOREPLACE,
                    RenameMode::Exchange => sys::RenameFlags::EXCHANGE,
                };
                done(sys::renameat_with(
                    sys::CWD,
                    self.at(from),
                    sys::CWD,
                    self.at(to),
                    flags,
                ))
            }
            Op::Stat { of } => self.value(of),
            Op::Readlink { path } => Ok(Value::Bytes(
                std::fs::read_link(self.at(path))?
                    .into_os_string()
                    .into_vec(),
            )),
            Op::List { path } => self.list(path).map(Value::Names),
            Op::Open { path, slot } => {
                let file = self.file(&Target::Path(path.clone()))?;
                self.open.insert(*slot, file);
                Ok(Value::Done)
            }
            Op::Close { slot } => {
                self.open
                    .remove(slot)
                    .ok_or(io::Error::from_raw_os_error(22))?;
                Ok(Value::Done)
            }
            _ => self.apply_to_file(op),
        }
    }

    fn create(&self, path: &Path, bits: u32, rdev: u64) -> io::Result<Value> {
        let at = self.at(path);
        let permissions = sys::Mode::from_raw_mode(bits & 0o777);
        match bits & mode::TYPE {
            mode::DIRECTORY => sys::mkdir(&at, permissions)?,
            kind => {
                let kind = sys::FileType::from_raw_mode(kind);
                let device = sys::makedev((rdev >> 32) as u32, rdev as u32);
                sys::mknodat(sys::CWD, &at, kind, permissions, device)?;
            }
        }
        std::os::unix::fs::lchown(&at, Some(3), Some(5))?;
        std::fs::set_permissions(&at, PermissionsExt::from_mode(bits & 0o777))?;
        self.value(&Target::Path(path.clone()))
    }

    fn apply_to_file(&mut self, op: &Op) -> io::Result<Value> {
        match op {
            Op::SetAttr { of, attrs } => self.setattr(of, attrs),
            Op::Write { to, offset, data } => {
                self.data_file(to)?.write_all_at(&data.bytes(), *offset)?;
                Ok(Value::Done)
            }
            Op::Append { to, data } => {
                let file = self.data_file(to)?;
                let size = file.metadata()?.len();
                file.write_all_at(&data.bytes(), size)?;
                Ok(Value::Offset(size))
            }
            Op::Read { from, offset, len } => {
                let mut bytes = vec![0; *len as usize];
                let got = self.data_file(from)?.read_at(&mut bytes, *offset)?;
                bytes.truncate(got);
                Ok(Value::Bytes(bytes))
            }
            Op::Fallocate {
                of,
                how,
                offset,
                len,
            } => {
                let file = self.data_file(of)?;
                self.fallocate(&file, *how, *offset, *len)
                    .map(|()| Value::Done)
            }
            Op::Fsync { of } => self.stat(of).map(|_| Value::Done),
            _ => Err(io::Error::from_raw_os_error(22)),
        }
    }

    /// tmpfs has no FALLOC_FL_ZERO_RANGE: punching and growing is the same.
    fn fallocate(&self, file: &File, how: Fallocate, offset: u64, len: u64) -> io::Result<()> {
        use sys::FallocateFlags as Flags;
        let punch = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
        match how {
            Fallocate::Allocate { keep_size: false } => {
                sys::fallocate(file, Flags::empty(), offset, len)?
            }
            Fallocate::Allocate { keep_size: true } => {
                sys::fallocate(file, Flags::KEEP_SIZE, offset, len)?
            }
            Fallocate::Punch | Fallocate::Zero { keep_size: true } => {
                sys::fallocate(file, punch, offset, len)?
            }
            Fallocate::Zero { keep_size: false } => {
                sys::fallocate(file, punch, offset, len)?;
                if file.metadata()?.len() < offset + len {
                    file.set_len(offset + len)?;
                }
            }
        }
        Ok(())
    }

    fn setattr(&self, of: &Target, attrs: &Attrs) -> io::Result<Value> {
        let at = match of {
            Target::Path(path) => self.at(path),
            Target::Handle(slot) => {
                let file = self
                    .open
                    .get(slot)
                    .ok_or(io::Error::from_raw_os_error(22))?;
                PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
            }
        };
        let metadata = self.stat(of)?;
        if let Some(size) = attrs.size {
            self.data_file(of)?.set_len(size)?;
        }
        // The mode of a symbolic link can't be changed in Linux; the test does not ask.
        if let Some(bits) = attrs.mode
            && !metadata.file_type().is_symlink()
        {
            std::fs::set_permissions(&at, PermissionsExt::from_mode(bits))?;
        }
        let follow = matches!(of, Target::Handle(_));
        if attrs.uid.is_some() || attrs.gid.is_some() {
            let chown = if follow {
                std::os::unix::fs::chown
            } else {
                std::os::unix::fs::lchown
            };
            chown(&at, attrs.uid, attrs.gid)?;
        }
        let time = |ns: Option<i64>| match ns {
            Some(ns) => sys::Timespec {
                tv_sec: ns.div_euclid(1_000_000_000),
                tv_nsec: ns.rem_euclid(1_000_000_000),
            },
            None => sys::Timespec {
                tv_sec: 0,
                tv_nsec: sys::UTIME_OMIT,
            },
        };
        if attrs.atime.is_some() || attrs.mtime.is_some() {
            let times = sys::Timestamps {
                last_access: time(attrs.atime),
                last_modification: time(attrs.mtime),
            };
            let flags = if follow {
                sys::AtFlags::empty()
            } else {
                sys::AtFlags::SYMLINK_NOFOLLOW
            };
            sys::utimensat(sys::CWD, &at, &times, flags)?;
        }
        self.value(of)
    }

    fn value(&self, of: &Target) -> io::Result<Value> {
        Ok(value(&self.stat(of)?))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(Vec<u8>, u32)>> {
        let mut names = Vec::new();
        let at = self.at(path);
        if std::fs::symlink_metadata(&at)?.is_symlink() {
            return Err(io::Error::from_raw_os_error(20));
        }
        for entry in std::fs::read_dir(at)? {
            let entry = entry?;
            names.push((entry.file_name().into_vec(), kind_of(&entry.file_type()?)));
        }
        names.sort();
        Ok(names)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn done(result: rustix::io::Result<()>) -> io::Result<Value> {
    Ok(result.map(|()| Value::Done)?)
}

fn kind_of(kind: &std::fs::FileType) -> u32 {
    match () {
        () if kind.is_dir() => mode::DIRECTORY,
        () if kind.is_symlink() => mode::SYMLINK,
        () if kind.is_fifo() => mode::FIFO,
        () if kind.is_socket() => mode::SOCKET,
        () if kind.is_block_device() => mode::BLOCK,
        () if kind.is_char_device() => mode::CHARACTER,
        () => mode::FILE,
    }
}

fn value(metadata: &Metadata) -> Value {
    let device = metadata.rdev();
    Value::Attr {
        mode: metadata.mode(),
        links: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: (u64::from(sys::major(device)) << 32) | u64::from(sys::minor(device)),
        size: if metadata.is_dir() { 0 } else { metadata.len() },
    }
}

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

/// What the two can both be asked: no links to files by their handle (a capability), no
/// handles to anything but files, no modes of symbolic links.
fn askable(op: &Op, model: &Model) -> bool {
    let kind = |path: &Path| {
        let ino = lodge(model, path)?;
        model.getattr(ino).ok().map(|attr| attr.mode & mode::TYPE)
    };
    let allowed = match op {
        Op::Link {
            from: Target::Handle(_),
            ..
        } => false,
        // A kernel looks at the length of the target before it looks at the path.
        Op::Symlink { target, .. } => target.len() <= 4095,
        Op::Open { path, .. } => matches!(kind(path), None | Some(mode::FILE)),
        Op::SetAttr {
            of: Target::Path(path),
            attrs,
        } => kind(path) != Some(mode::SYMLINK) || (attrs.mode.is_none() && attrs.size.is_none()),
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
        Op::Link {
            from: Target::Path(from),
            to,
        } => vec![from, to],
        Op::SetAttr {
            of: Target::Path(path),
            ..
        }
        | Op::Write {
            to: Target::Path(path),
            ..
        }
        | Op::Append {
            to: Target::Path(path),
            ..
        }
        | Op::Read {
            from: Target::Path(path),
            ..
        }
        | Op::Fallocate {
            of: Target::Path(path),
            ..
        }
        | Op::Fsync {
            of: Target::Path(path),
        }
        | Op::Stat {
            of: Target::Path(path),
        } => vec![path],
        _ => Vec::new(),
    }
}

fn lodge(model: &Model, path: &Path) -> Option<u64> {
    lode_testkit::execute::resolve(model, path).ok()
}

/// All paths with what `stat` says, and the files' contents.
type Tree = BTreeMap<Path, (Value, Vec<u8>)>;

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
                todo.extend(
                    tmpfs
                        .list(&path)
                        .unwrap()
                        .iter()
                        .map(|(name, _)| path.join(name)),
                );
                Vec::new()
            }
            _ => Vec::new(),
        };
        tree.insert(path, (value(&metadata), content));
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
        tree.insert(path, (Value::of(&attr), content));
    }
    tree.remove(&Path::root());
    tree
}

fn compare(seed: u64, count: usize) {
    let Some(mut tmpfs) = Tmpfs::new(&format!("random{seed}")) else {
        return;
    };
    let privileged = rustix::process_is_root();
    if !privileged {
        return println!("skipped: owners and devices need root");
    }
    let model = Model::new();
    let shape = Shape {
        sparse: false,
        offset_max: 3 << 20,
        depth: 4,
        ..Shape::default()
    };
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
        assert!(
            same(&op, &found, &wanted),
            "{op}: tmpfs {wanted:?}, model {found:?}\n{}",
            text()
        );
        if step % 50 == 49 || step + 1 == count {
            let (wanted, found) = (real_tree(&tmpfs), model_tree(&model));
            for (path, want) in &wanted {
                assert!(found.get(path) == Some(want), "{path} differs\n{}", text());
            }
            assert_eq!(found.len(), wanted.len(), "{}", text());
        }
    }
}

mod rustix {
    pub use ::rustix::{fs, io};

    /// Whether this process may change owners and make devices.
    pub fn process_is_root() -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
    }
}

#[test]
fn random_operations_do_what_a_tmpfs_does() {
    for seed in 0..40 {
        compare(seed, 400);
    }
}
