//! Random operations, done by the library and by std in a tmpfs: the same values, the same error
//! numbers, the same tree. Paths lead through symbolic links, whatever they lead to.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::common::{pool, scratch, tree};
use lode::{File, FileTimes, Metadata, OpenOptions, Pool, PoolOptions, Result};
use lode_engine::{Fallocate, mode};
use lode_testkit::execute::Value;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Attrs, Fill, Op, Path, Target, print};
use lode_testkit::real::{Can, Directory};

/// The operations, done by the library.
struct Library {
    pool: Pool,
    open: BTreeMap<usize, File>,
}

fn at(path: &Path) -> PathBuf {
    path.0.iter().map(|name| OsStr::from_bytes(name)).collect()
}

/// What std's side says of what is no regular file before it asks the system.
fn invalid<T>() -> Outcome<T> {
    Err(libc::EINVAL)
}

/// A value, or an error number.
type Outcome<T> = std::result::Result<T, i32>;

fn told<T>(done: Result<T>) -> Outcome<T> {
    done.map_err(|error| error.errno())
}

fn value(found: &Metadata) -> Value {
    let device = found.rdev();
    Value::Attr {
        mode: found.mode(),
        links: found.nlink() as u32,
        uid: found.uid(),
        gid: found.gid(),
        rdev: u64::from(rustix::fs::major(device)) << 32 | u64::from(rustix::fs::minor(device)),
        size: if found.is_dir() { 0 } else { found.len() },
    }
}

impl Library {
    fn file(&self, target: &Target) -> Outcome<File> {
        match target {
            Target::Handle(slot) => match self.open.get(slot) {
                Some(file) => told(file.try_clone()),
                None => invalid(),
            },
            Target::Path(path) => {
                if !told(self.pool.symlink_metadata(at(path)))?.is_file() {
                    return invalid();
                }
                let mut options = OpenOptions::new();
                options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
                told(self.pool.open_with(at(path), &options))
            }
        }
    }

    fn stat(&self, target: &Target) -> Outcome<Metadata> {
        match target {
            Target::Path(path) => told(self.pool.symlink_metadata(at(path))),
            Target::Handle(_) => told(self.file(target)?.metadata()),
        }
    }

    fn seen(&self, target: &Target) -> Outcome<Value> {
        Ok(value(&self.stat(target)?))
    }

    fn apply(&mut self, op: &Op) -> Outcome<Value> {
        let pool = &self.pool;
        let done = |done: Result<()>| told(done).map(|()| Value::Done);
        match op {
            Op::Create { path, mode, rdev } => {
                let (major, minor) = ((rdev >> 32) as u32, *rdev as u32);
                let device = rustix::fs::makedev(major, minor);
                match mode & mode::TYPE {
                    mode::DIRECTORY => told(pool.create_dir(at(path)))?,
                    _ => told(pool.mknod(at(path), mode & !0o7000, device))?,
                }
                told(pool.lchown(at(path), Some(3), Some(5)))?;
                let permissions = PermissionsExt::from_mode(mode & 0o777);
                told(pool.set_permissions(at(path), permissions))?;
                self.seen(&Target::Path(path.clone()))
            }
            Op::Symlink { path, target } => {
                told(pool.symlink(OsStr::from_bytes(target), at(path)))?;
                told(pool.lchown(at(path), Some(3), Some(5)))?;
                self.seen(&Target::Path(path.clone()))
            }
            Op::Tmpfile { dir, slot, permissions, .. } => {
                let file = told(pool.temporary(at(dir)))?;
                told(file.chown(Some(3), Some(5)))?;
                told(file.set_permissions(PermissionsExt::from_mode(*permissions)))?;
                self.open.insert(*slot, file);
                self.seen(&Target::Handle(*slot))
            }
            Op::Link { from: Target::Path(from), to } => {
                told(pool.hard_link(at(from), at(to)))?;
                self.seen(&Target::Path(to.clone()))
            }
            Op::Link { from, to } => {
                told(self.file(from)?.link(at(to)))?;
                self.seen(&Target::Path(to.clone()))
            }
            Op::Unlink { path } => done(pool.remove_file(at(path))),
            Op::Rmdir { path } => done(pool.remove_dir(at(path))),
            Op::Rename { from, to, how } => done(pool.rename_with(at(from), at(to), *how)),
            Op::Stat { of } => self.seen(of),
            Op::Readlink { path } => {
                let target = told(pool.read_link(at(path)))?;
                Ok(Value::Bytes(target.into_os_string().into_vec()))
            }
            Op::List { path } => self.list(path),
            Op::Open { path, slot } => {
                let file = self.file(&Target::Path(path.clone()))?;
                self.open.insert(*slot, file);
                Ok(Value::Done)
            }
            Op::Close { slot } => match self.open.remove(slot) {
                Some(_) => Ok(Value::Done),
                None => invalid(),
            },
            _ => self.apply_to_file(op),
        }
    }

    fn apply_to_file(&self, op: &Op) -> Outcome<Value> {
        match op {
            Op::SetAttr { of, attrs } => self.setattr(of, attrs),
            Op::Write { to, offset, data } => {
                told(self.data_file(to)?.write_all_at(&data.bytes(), *offset))?;
                Ok(Value::Done)
            }
            Op::Append { to, data } => {
                told(self.data_file(to)?.append(&data.bytes())).map(Value::Offset)
            }
            Op::Read { from, offset, len } => {
                let mut bytes = vec![0xA5; *len as usize];
                let read = told(self.data_file(from)?.read_at(&mut bytes, *offset))?;
                bytes.truncate(read);
                Ok(Value::Bytes(bytes))
            }
            Op::Fallocate { of, how, offset, len } => {
                let file = self.data_file(of)?;
                told(match *how {
                    Fallocate::Allocate { keep_size } => file.allocate(*offset, *len, keep_size),
                    Fallocate::Punch => file.punch_hole(*offset, *len),
                    Fallocate::Zero { keep_size } => file.zero_range(*offset, *len, keep_size),
                })?;
                Ok(Value::Done)
            }
            Op::Fsync { of } => self.stat(of).map(|_| Value::Done),
            Op::SetXattr { of, name, value, when } => {
                let (file, name) = (self.attributed(of)?, OsStr::from_bytes(name));
                told(match value.as_ref().map(Fill::bytes) {
                    Some(value) => file.set_xattr_when(name, &value, *when),
                    None => file.remove_xattr(name),
                })?;
                Ok(Value::Done)
            }
            Op::GetXattr { of, name } => {
                let value = told(self.attributed(of)?.get_xattr(OsStr::from_bytes(name)))?;
                value.map(Value::Bytes).ok_or(libc::ENODATA)
            }
            _ => invalid(),
        }
    }

    fn data_file(&self, target: &Target) -> Outcome<File> {
        let file = self.file(target)?;
        if told(file.metadata())?.is_file() { Ok(file) } else { invalid() }
    }

    /// Only what can be opened is asked for attributes by this test.
    fn attributed(&self, target: &Target) -> Outcome<File> {
        match target {
            Target::Path(path) => told(self.pool.open_file(at(path))),
            Target::Handle(_) => self.file(target),
        }
    }

    fn setattr(&self, of: &Target, attrs: &Attrs) -> Outcome<Value> {
        let found = self.stat(of)?;
        if let Some(size) = attrs.size {
            told(self.data_file(of)?.set_len(size))?;
        }
        let bits = attrs.mode.filter(|_| !found.is_symlink());
        let permissions = bits.map(PermissionsExt::from_mode);
        let time = |ns: i64| {
            let distance = Duration::from_nanos(ns.unsigned_abs());
            let epoch = SystemTime::UNIX_EPOCH;
            if ns < 0 { epoch - distance } else { epoch + distance }
        };
        let mut times = FileTimes::new();
        times = attrs.atime.map_or(times, |ns| times.set_accessed(time(ns)));
        times = attrs.mtime.map_or(times, |ns| times.set_modified(time(ns)));
        let owner = attrs.uid.is_some() || attrs.gid.is_some();
        match of {
            Target::Path(path) => {
                if let Some(permissions) = permissions {
                    told(self.pool.set_permissions(at(path), permissions))?;
                }
                if owner {
                    told(self.pool.lchown(at(path), attrs.uid, attrs.gid))?;
                }
                told(self.pool.set_times_nofollow(at(path), times))?;
            }
            Target::Handle(_) => {
                let file = self.file(of)?;
                if let Some(permissions) = permissions {
                    told(file.set_permissions(permissions))?;
                }
                if owner {
                    told(file.chown(attrs.uid, attrs.gid))?;
                }
                told(file.set_times(times))?;
            }
        }
        self.seen(of)
    }

    fn list(&self, path: &Path) -> Outcome<Value> {
        if told(self.pool.symlink_metadata(at(path)))?.is_symlink() {
            return Err(libc::ENOTDIR);
        }
        let mut names = Vec::new();
        for entry in told(self.pool.read_dir(at(path)))? {
            let entry = told(entry)?;
            let kind = told(entry.metadata())?.mode() & mode::TYPE;
            names.push((entry.file_name().into_vec(), kind));
        }
        names.sort();
        Ok(Value::Names(names))
    }
}

/// Whether both can be asked.
fn askable(op: &Op, library: &Library) -> bool {
    let opens = |path: &Path| {
        let found = library.pool.metadata(at(path));
        found.is_ok_and(|found| found.is_file() || found.is_dir())
            && library.pool.symlink_metadata(at(path)).is_ok_and(|found| !found.is_symlink())
    };
    match op {
        // The system has no such calls.
        Op::CreateWith { .. } | Op::SetAttrWith { .. } | Op::Tmpfile { xattr: Some(_), .. } => {
            false
        }
        // Above the two roots they have nothing in common.
        Op::Symlink { target, .. } => target.first() != Some(&b'/'),
        Op::SetXattr { of: Target::Path(path), .. }
        | Op::GetXattr { of: Target::Path(path), .. } => opens(path),
        Op::Remount | Op::Crash | Op::Grow | Op::Protect(..) => false,
        Op::Snapshot(_) | Op::Drop(_) | Op::Rollback(_) => false,
        Op::Maintain | Op::Cpus(_) => false,
        _ => true,
    }
}

/// Deep enough that no link leads above it.
const BELOW: &str = "b0/b1/b2/b3/b4/b5/b6/b7";

fn compare(seed: u64, count: usize) {
    let dir = scratch();
    std::fs::create_dir_all(dir.path().join(BELOW)).unwrap();
    let mut library = Library { pool: pool(64), open: BTreeMap::new() };
    library.pool.create_dir_all(BELOW).unwrap();
    let can = Can { zero_range: false, mapped_writes: false };
    let mut directory = Directory::new(dir.path().to_owned(), can);
    let below = Path::of(BELOW);
    let depth = 4;
    let shape = Shape { below, sparse: false, offset_max: 1 << 20, depth, ..Shape::default() };
    let mut generator = Generator::new(seed, shape);
    let mut done = Vec::new();
    for step in 0..count {
        let op = generator.op();
        if !askable(&op, &library) {
            continue;
        }
        done.push(op.clone());
        let wanted = directory.apply(&op).map_err(|error| error.raw_os_error().unwrap_or(0));
        let found = library.apply(&op);
        if found != wanted {
            panic!("{op}: std {wanted:?}, library {found:?}\nseed {seed}\n{}", print(&done));
        }
        if step % 100 == 99 || step + 1 == count {
            let system = tree::of_system(dir.path());
            let differs = tree::difference(&system, &tree::of_pool(&library.pool, "/".as_ref()));
            assert_eq!(differs, None, "seed {seed}\n{}", print(&done));
        }
    }
}

#[test]
fn random_operations_do_what_std_does_on_a_tmpfs() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: owners and devices need root");
        return;
    }
    for seed in 0..40 {
        compare(seed, 500);
    }
}

/// The same tree is there when the pool is opened again, after a close and without one.
#[test]
fn what_random_operations_left_is_there_at_the_next_opening() {
    let file = crate::common::PoolFile::new(64);
    for seed in 100..106 {
        let pool = file.open();
        let mut library = Library { pool, open: BTreeMap::new() };
        let shape = Shape { sparse: false, offset_max: 1 << 20, ..Shape::default() };
        let mut generator = Generator::new(seed, shape);
        for _ in 0..300 {
            let op = generator.op();
            if askable(&op, &library) {
                let _ = library.apply(&op);
            }
        }
        let before = tree::of_pool(&library.pool, "/".as_ref());
        drop(library);
        let pool = PoolOptions::new().read_only(true).open(&file.path).unwrap();
        assert!(pool.opening().unwrap().clean);
        assert!(!before.is_empty() && before == tree::of_pool(&pool, "/".as_ref()), "seed {seed}");
    }
}
