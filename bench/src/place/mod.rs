//! The run's own directory: mounts, loop devices and files that are taken away whatever happens.
//!
//! What this file guarantees: everything that a run makes is below one directory, which is
//! locked while the run lives, from before it has its name. Dropping the [`Place`] takes it away;
//! what a killed run left is found by its directory, whose lock is free, and taken away by the
//! next run: by one of them, which has the lock meanwhile.

mod clean;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, mount};

use crate::error::{BenchError, Result};

pub use clean::take_away;
pub(crate) use clean::take_off_unused;

/// What the directories of runs begin with.
const PREFIX: &str = "lode-bench-";
/// The file in one that is locked while its run lives.
const LOCK: &str = "lock";
/// What the name of one ends with that has yet to be locked.
const UNLOCKED: &str = ".new";
/// A directory without a lock may be about to get one, or be taken away by somebody, for so long.
const YOUNG: Duration = Duration::from_secs(60);

/// A run's directory.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    root: bool,
    /// Pools and images lie in memory mapped by pages of 2 MiB, if that could be had.
    pools: PathBuf,
    _lock: File,
}

impl Place {
    /// A directory in `base`, or where memory is; takes away what killed runs left there.
    ///
    /// # Errors
    /// Where the system does not allow it.
    pub fn new(base: Option<&Path>, bytes_max: u64) -> Result<Self> {
        let base = base.map_or_else(usual, Path::to_owned);
        // A whole name: mounts are found by theirs, and programs are run in other directories.
        let base =
            fs::canonicalize(&base).map_err(|error| BenchError::io("looking for", &base, error))?;
        take_away_leftovers(&base)?;
        let (dir, lock) = make_locked(&base)?;
        let root = rustix::process::geteuid().is_root();
        let mut place = Self { pools: dir.clone(), dir, root, _lock: lock };
        if root {
            // Without huge pages, where the kernel has none: an option it does not know is an error.
            let huge = format!("huge=always,size={bytes_max}");
            let plain = format!("size={bytes_max}");
            let pools = place.tmpfs("pools", &huge).or_else(|_| place.tmpfs("pools", &plain));
            place.pools = pools?;
        }
        Ok(place)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where pools and images are made: in memory, mapped by large pages where that can be had.
    pub fn pools(&self) -> &Path {
        &self.pools
    }

    /// Whether something can be mounted by the system call.
    pub fn is_root(&self) -> bool {
        self.root
    }

    /// A new directory of this name.
    ///
    /// # Errors
    /// Where there is one, and those of the system.
    pub fn new_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)
            .map_err(|error| BenchError::io("making the directory", &dir, error))?;
        Ok(dir)
    }

    /// A new tmpfs of this name.
    ///
    /// # Errors
    /// Those of the system.
    pub fn tmpfs(&self, name: &str, options: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        if !dir.is_dir() {
            self.new_dir(name)?;
        }
        let data = std::ffi::CString::new(options).unwrap_or_default();
        mount("lode-bench", &dir, "tmpfs", MountFlags::empty(), data.as_c_str())
            .map_err(|error| BenchError::io("mounting a tmpfs at", &dir, error))?;
        Ok(dir)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = take_away(&self.dir) {
            eprintln!("lode bench: {error}; the next run takes it away");
        }
    }
}

/// Where memory is a directory, if the machine has that.
pub fn usual() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}

/// Makes the run's directory in `base`. Under its name nobody ever finds it without a lock that is held.
fn make_locked(base: &Path) -> Result<(PathBuf, File)> {
    let dir = base.join(format!("{PREFIX}{}", std::process::id()));
    let young = dir.with_extension(UNLOCKED.trim_start_matches('.'));
    let failed = |error| BenchError::io("making the directory", &dir, error);
    DirBuilder::new().mode(0o700).create(&young).map_err(failed)?;
    let made =
        lock(&young).and_then(|lock| fs::rename(&young, &dir).map(|()| lock).map_err(failed));
    if made.is_err() {
        // What stays is found by its name, later.
        let _ = fs::remove_dir_all(&young);
    }
    made.map(|lock| (dir, lock))
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK);
    let failed = |error: std::io::Error| BenchError::io("locking", &path, error);
    let file = File::create(&path).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    Ok(file)
}

/// Takes away what runs that were killed have left in `base`; returns how many did.
///
/// # Errors
/// Where something is in use.
pub fn take_away_leftovers(base: &Path) -> Result<usize> {
    let entries = fs::read_dir(base).map_err(|error| BenchError::io("reading", base, error))?;
    let mut count = 0;
    for entry in entries.flatten() {
        if !is_of_a_run(&entry.file_name()) {
            continue;
        }
        let Some(left) = left_over(&entry.path()) else { continue };
        match take_away(&entry.path()) {
            // Somebody else has done it.
            Err(BenchError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            done => {
                done?;
                count += 1;
            }
        }
        drop(left);
    }
    Ok(count)
}

fn is_of_a_run(name: &OsStr) -> bool {
    name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|number| {
        let number = number.strip_suffix(UNLOCKED).unwrap_or(number);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// What a killed run has left. While this is there, nobody else takes it away.
struct LeftOver {
    _lock: Option<File>,
}

/// The directory, if it is of a run of this user that no longer lives.
fn left_over(dir: &Path) -> Option<LeftOver> {
    // Not through links: anybody may put one where memory is a directory for all.
    let found = fs::symlink_metadata(dir).ok()?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let is_old = || found.modified().ok()?.elapsed().ok().filter(|age| *age > YOUNG);
    let path = dir.join(LOCK);
    let Ok(file) = File::open(&path) else { return is_old().map(|_| LeftOver { _lock: None }) };
    if dir.extension().is_some() {
        // Not under its name yet: it may be about to be locked.
        is_old()?;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // Its directory may be gone by now, and another run's have its name.
    let (locked, there) = (file.metadata().ok()?, fs::symlink_metadata(&path).ok()?);
    let same = (locked.dev(), locked.ino()) == (there.dev(), there.ino());
    same.then_some(LeftOver { _lock: Some(file) })
}

/// Runs a program to its end; what it says is told where it fails.
///
/// # Errors
/// Where it can't be started, or ends with another status than 0.
pub(crate) fn run_program(command: &mut Command) -> Result<()> {
    told_by(command, 0).map(drop)
}

/// The same, of a program that is to end with `status`; returns what it prints.
///
/// # Errors
/// Where it can't be started, or ends with another status.
pub(crate) fn told_by(command: &mut Command, status: i32) -> Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let arguments: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let line = format!("{program} {}", arguments.join(" "));
    let failed = |said: String| BenchError::Program { program: line.clone(), said };
    let done = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    if done.status.code() == Some(status) {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = [done.stderr, done.stdout].concat();
    Err(failed(format!("{}: {}", done.status, String::from_utf8_lossy(&said).trim())))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_place_is_there_while_its_run_lives_and_no_longer() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(Some(base.path()), 16 << 20).unwrap();
        let dir = place.dir().to_owned();
        fs::write(place.pools().join("image"), [1; 4096]).unwrap();
        assert_eq!(take_away_leftovers(base.path()).unwrap(), 0, "the lock is held");
        assert!(dir.join("lock").exists());
        drop(place);
        assert!(!dir.exists(), "with its mounts");
    }

    #[test]
    fn what_a_killed_run_left_is_taken_away_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        for name in
            ["lode-bench-4194304", "lode-bench-x", "lode-bench-", "lode-bench-.new", "other"]
        {
            fs::create_dir(base.path().join(name)).unwrap();
            fs::write(base.path().join(name).join("lock"), "").unwrap();
        }
        std::os::unix::fs::symlink(base.path().join("other"), base.path().join("lode-bench-7"))
            .unwrap();
        let left = base.path().join("lode-bench-4194304");
        if rustix::process::geteuid().is_root() {
            fs::create_dir(left.join("pools")).unwrap();
            mount("test", left.join("pools"), "tmpfs", MountFlags::empty(), c"size=1M").unwrap();
            fs::write(left.join("pools/image"), "").unwrap();
        }
        assert_eq!(take_away_leftovers(base.path()).unwrap(), 1);
        assert!(!left.exists());
        for name in ["lode-bench-x", "lode-bench-", "lode-bench-.new", "other/lock", "lode-bench-7"]
        {
            assert!(base.path().join(name).exists(), "{name}");
        }
    }

    /// Whoever asks what is mounted is told such a name, and programs are run in other directories.
    #[test]
    fn a_place_has_a_whole_name_without_links_whatever_name_its_base_has() {
        let base = tempfile::tempdir().unwrap();
        let whole = fs::canonicalize(base.path()).unwrap();
        std::os::unix::fs::symlink(&whole, whole.join("link")).unwrap();
        let up: PathBuf =
            std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
        for name in [whole.join("link"), up.join(whole.strip_prefix("/").unwrap())] {
            let place = Place::new(Some(&name), 16 << 20).unwrap();
            assert_eq!(place.dir().parent().unwrap(), whole, "{}", name.display());
        }
    }

    #[test]
    fn a_directory_that_is_about_to_be_locked_is_let_alone() {
        let base = tempfile::tempdir().unwrap();
        let young = base.path().join("lode-bench-1");
        fs::create_dir(&young).unwrap();
        let locking = base.path().join("lode-bench-2.new");
        fs::create_dir(&locking).unwrap();
        fs::write(locking.join(LOCK), "").unwrap();
        assert_eq!(take_away_leftovers(base.path()).unwrap(), 0);
        assert!(young.exists() && locking.exists());
        // Who was killed then has left it.
        let long_ago = SystemTime::now() - 2 * YOUNG;
        for dir in [&young, &locking] {
            File::open(dir).unwrap().set_modified(long_ago).unwrap();
        }
        assert_eq!(take_away_leftovers(base.path()).unwrap(), 2);
    }

    #[test]
    fn a_place_that_is_being_made_is_not_taken_for_a_leftover() {
        let base = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        let failed = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    assert_eq!(take_away_leftovers(base.path()).unwrap(), 0);
                }
            });
            let make = |_| {
                let place = Place::new(Some(base.path()), 1 << 20);
                place.map(|place| assert!(place.dir().join(LOCK).exists())).err()
            };
            let failed = (0..300).find_map(make);
            done.store(true, Relaxed);
            failed
        });
        assert!(failed.is_none(), "{failed:?}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_left_is_taken_away_once_by_several_that_come_at_once() {
        const LEFT: usize = 300;
        let base = tempfile::tempdir().unwrap();
        for number in 0..LEFT {
            let dir = base.path().join(format!("{PREFIX}{number}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(LOCK), "").unwrap();
        }
        let taken: usize = thread::scope(|scope| {
            let take = || scope.spawn(|| take_away_leftovers(base.path()).unwrap());
            [take(), take(), take()].map(|one| one.join().unwrap()).into_iter().sum()
        });
        assert_eq!(taken, LEFT);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn programs_that_fail_are_told_with_what_they_said() {
        run_program(&mut Command::new("true")).unwrap();
        let mut command = Command::new("sh");
        let error = run_program(command.args(["-c", "echo no; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no") && text.contains('3'), "{text}");
        assert!(run_program(&mut Command::new("/no/such/program")).is_err());
    }
}
