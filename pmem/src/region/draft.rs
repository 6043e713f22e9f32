//! New files for regions: made beside the place they are meant for, and moved there when
//! they are finished.
//!
//! What this file guarantees: what is there already stays as it is, and locked, until the
//! new file takes its place, and for good if that does not come about. A file that was
//! made and not published is removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kind::Source;
use super::lock::{self, Locked};
use super::open::{OPEN_FLAGS, check, map_new, open_locked};
use super::{Mapped, RegionError, RegionOptions};

/// Only the owner may look at what is in a new file.
const MODE: u32 = 0o600;

/// The drafts of this process.
static DRAFTS: Mutex<Drafts> =
    Mutex::new(Drafts { unfinished: Vec::new(), published: 0, ended: false });

struct Drafts {
    /// Neither published nor removed.
    unfinished: Vec<PathBuf>,
    published: usize,
    /// The program is about to end: no more are made.
    ended: bool,
}

impl Drafts {
    /// Whether the draft at `path` was still one of the unfinished ones.
    fn forget(&mut self, path: &Path) -> bool {
        let before = self.unfinished.len();
        self.unfinished.retain(|other| other != path);
        self.unfinished.len() < before
    }
}

fn drafts() -> MutexGuard<'static, Drafts> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What became of the drafts of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DraftsLeft {
    /// Removed, unfinished: what they were to replace is as it was.
    pub removed: usize,
    /// Those that took their place before.
    pub published: usize,
}

/// A new file on its way to the place it is meant for. Dropped before it is
/// [published](Draft::publish), it is removed.
///
/// What can't be moved is no draft, and used where it is: a device, or a file without a
/// name.
#[derive(Debug)]
pub struct Draft {
    /// Where it is now.
    path: PathBuf,
    /// Where it is to be; `None` if it is there.
    target: Option<PathBuf>,
    /// What it replaces, kept from others until then.
    old: Option<Locked>,
}

impl Draft {
    /// Makes a file of `bytes` bytes (rounded up to whole pages, huge ones in hugetlbfs),
    /// with all of its space, that is to be at `path`, and opens it as a region of zeros.
    ///
    /// What exists already is replaced if `force` says so, and not in use; the new file
    /// gets its owner and permissions. Without that only its owner may use a new file. A
    /// device exists always; it keeps its contents, and `bytes` may be 0 for all of it.
    pub fn create(
        path: impl AsRef<Path>,
        bytes: u64,
        options: &RegionOptions,
        force: bool,
    ) -> Result<(Mapped, Self), RegionError> {
        let path = path.as_ref();
        if options.read_only {
            return Err(RegionError::CreateReadOnly);
        }
        let guard = check(options)?;
        let Some(old) = existing(path, force)? else {
            let draft = Self { path: beside(path), target: Some(path.to_owned()), old: None };
            let file = draft.make(path)?;
            return Ok((map_new(file, path, bytes, options, guard)?, draft));
        };
        let is_device = Source::of(old.file(), path, options.sysfs_root())?.is_device;
        let io = |source| RegionError::io("looking at", path, source);
        if is_device || old.file().metadata().map_err(io)?.nlink() == 0 {
            let draft = Self { path: path.to_owned(), target: None, old: None };
            return Ok((map_new(old, path, bytes, options, guard)?, draft));
        }
        // Where a symbolic link leads, not the link, is replaced.
        let target = fs::canonicalize(path).map_err(io)?;
        let draft = Self { path: beside(&target), target: Some(target), old: Some(old) };
        let file = draft.make(path)?;
        draft.take_over_owner(file.file(), path)?;
        Ok((map_new(file, path, bytes, options, guard)?, draft))
    }

    /// Where the file is until it is published.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the file to its place. Once this returns, that is durable.
    pub fn publish(mut self) -> Result<(), RegionError> {
        let Some(target) = self.target.take() else {
            return Ok(());
        };
        // Whoever removes the unfinished ones finds it either still there or in its place.
        let mut all = drafts();
        let moved = if self.old.is_some() {
            fs::rename(&self.path, &target)
        } else {
            rename_to_new(&self.path, &target)
        };
        if moved.is_ok() {
            all.forget(&self.path);
            all.published += 1;
        }
        drop(all);
        if let Err(source) = moved {
            self.target = Some(target.clone());
            return Err(match source.kind() {
                ErrorKind::AlreadyExists => RegionError::Exists { path: target },
                _ => RegionError::io("moving the new file to", &target, source),
            });
        }
        sync_directory(&target)
            .map_err(|source| RegionError::io("making durable the name", &target, source))
    }

    /// Removes all drafts of this process that are not published, and has no more made: for a
    /// program that is about to end without dropping them.
    pub fn remove_unfinished() -> DraftsLeft {
        let mut all = drafts();
        all.ended = true;
        let removed = all.unfinished.len();
        for path in all.unfinished.drain(..) {
            // What can't be removed stays; nobody is left to tell.
            fs::remove_file(path).ok();
        }
        DraftsLeft { removed, published: all.published }
    }

    /// Makes the file; `path` is for errors.
    fn make(&self, path: &Path) -> Result<Locked, RegionError> {
        let mut all = drafts();
        if all.ended {
            return Err(RegionError::io("creating", path, ErrorKind::Interrupted.into()));
        }
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(MODE)
            .custom_flags(OPEN_FLAGS)
            .open(&self.path);
        let file = made.map_err(|source| RegionError::io("creating", path, source))?;
        all.unfinished.push(self.path.clone());
        drop(all);
        lock::lock(file, path, false)
    }

    /// Gives the new file the owner and the permissions of the old.
    fn take_over_owner(&self, new: &File, path: &Path) -> Result<(), RegionError> {
        let Some(old) = &self.old else { return Ok(()) };
        let io = |source| RegionError::io("keeping the owner and permissions of", path, source);
        let (is, was) = (new.metadata().map_err(io)?, old.file().metadata().map_err(io)?);
        if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
            fchown(new, Some(was.uid()), Some(was.gid())).map_err(io)?;
        }
        new.set_permissions(Permissions::from_mode(was.mode() & 0o7777)).map_err(io)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.target.is_some() && drafts().forget(&self.path) {
            // What went wrong first is what the caller needs to know.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// What is at `path`, locked.
fn existing(path: &Path, force: bool) -> Result<Option<Locked>, RegionError> {
    match fs::metadata(path) {
        Ok(_) if !force => Err(RegionError::Exists { path: path.to_owned() }),
        Ok(_) => open_locked(path, false).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => Err(RegionError::DanglingLink { path: path.to_owned(), target }),
            Err(_) => Ok(None),
        },
        Err(error) => Err(RegionError::io("looking at", path, error)),
    }
}

/// A name for a draft in the directory of `target`.
fn beside(target: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    directory_of(target).join(format!(".lode-new-{}-{number}", std::process::id()))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Moves `from` to `to`, where nothing is.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (old, new) = (text(from)?, text(to)?);
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
    // SAFETY: takes strings that end in zero, and numbers.
    if unsafe { libc::renameat2(here, old.as_ptr(), here, new.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
        return Err(error);
    }
    // A file system that can't: a second name never replaces anything either.
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Makes the name of a new file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(directory_of(path))?.sync_all() {
        // A file system that has no such thing as a durable name.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        outcome => outcome,
    }
}
