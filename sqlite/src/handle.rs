//! An open file, and opening one.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libsqlite3_sys as ffi;
use lode::{File, Metadata, OpenOptions, Pool};

use crate::body::Body;
use crate::error::{Outcome, code};
use crate::frames::Frames;
use crate::node::{Databases, Member};
use crate::paths;

/// Permissions of new databases, less the umask: what SQLite gives them elsewhere.
const PERMISSIONS: u32 = 0o644;

/// An open file. Calls may come from several threads at a time.
pub(crate) struct Handle {
    // Dropped first: the inode is its own as long as the file is open.
    /// What the connections to a database share; other files have none.
    pub(crate) member: Option<Member>,
    pub(crate) body: Body,
    /// The databases' pool, and the name it was opened by.
    place: (Arc<Databases>, Option<PathBuf>),
    /// Bytes beside those that are written do not change, so far as SQLite wants to know.
    pub(crate) powersafe: AtomicBool,
    /// The log stays when the last connection leaves.
    pub(crate) keep_log: AtomicBool,
}

// SQLite may sort with several threads, which share a file.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Handle>();
};

impl Handle {
    /// Opens a file as `flags` say. Returns them as they came true.
    pub(crate) fn open(
        databases: &Arc<Databases>,
        path: Option<&Path>,
        flags: c_int,
    ) -> Outcome<(Self, c_int)> {
        let pool = &databases.pool;
        let (body, ino, flags) = match path {
            Some(path) => {
                let (body, ino, writable) = named(pool, path, flags)?;
                let lost = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
                let read_only = flags & !lost | ffi::SQLITE_OPEN_READONLY;
                (body, ino, if writable { flags } else { read_only })
            }
            None => (nameless(pool)?, None, flags),
        };
        // Journals and logs are their databases' matter.
        let beside = ffi::SQLITE_OPEN_MAIN_JOURNAL
            | ffi::SQLITE_OPEN_TEMP_JOURNAL
            | ffi::SQLITE_OPEN_SUBJOURNAL
            | ffi::SQLITE_OPEN_SUPER_JOURNAL
            | ffi::SQLITE_OPEN_WAL;
        let member = ino.filter(|_| flags & beside == 0).map(|ino| databases.join(ino));
        let handle = Self {
            member,
            body,
            place: (Arc::clone(databases), path.map(Path::to_owned)),
            powersafe: AtomicBool::new(true),
            keep_log: AtomicBool::new(false),
        };
        Ok((handle, flags))
    }

    /// Whether the name it was opened by leads to another file now, or to none.
    pub(crate) fn has_moved(&self) -> bool {
        let (databases, Some(path)) = &self.place else { return false };
        let Some(member) = &self.member else { return false };
        databases.pool.metadata(path).map_or(true, |found| found.ino() != member.ino())
    }

    /// What SQLite may rely on.
    pub(crate) fn characteristics(&self) -> c_int {
        let powersafe =
            if self.powersafe.load(Relaxed) { ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE } else { 0 };
        CHARACTERISTICS | powersafe
    }
}

/// What SQLite may rely on, of every file.
///
/// * *Sequential*: what a call wrote is durable when it returns, or with what is written next, so not after what is
///   written later.
/// * *Safe append*: the size grows in the same step in which the data is there.
/// * *Atomic*, up to 2 KiB: every write is one step, except that where there is no room for all of it
///   its beginning is written. Within an aligned 2 KiB there is no such cut.
/// * *Subpage read*: a page can be read in part.
///
/// Not *undeletable when open*: an open file can be removed, and is there until it is closed.
const CHARACTERISTICS: c_int = ffi::SQLITE_IOCAP_SEQUENTIAL
    | ffi::SQLITE_IOCAP_SAFE_APPEND
    | ffi::SQLITE_IOCAP_ATOMIC512
    | ffi::SQLITE_IOCAP_ATOMIC1K
    | ffi::SQLITE_IOCAP_ATOMIC2K
    | ffi::SQLITE_IOCAP_SUBPAGE_READ;

/// A temporary file. What can't be in the pool is in memory.
fn nameless(pool: &Pool) -> Outcome<Body> {
    match pool.temporary("/") {
        Ok(file) => Ok(Body::Pool(file)),
        Err(error) if error.errno() == libc::EROFS => Ok(Body::Memory(Default::default())),
        Err(error) => Err(code(&error, ffi::SQLITE_CANTOPEN)),
    }
}

/// A file with a name. Returns its inode, too, and whether it can be written.
fn named(pool: &Pool, path: &Path, flags: c_int) -> Outcome<(Body, Option<u64>, bool)> {
    let writes = flags & ffi::SQLITE_OPEN_READWRITE != 0;
    let mut options = OpenOptions::new();
    options.read(true);
    if flags & ffi::SQLITE_OPEN_NOFOLLOW != 0 {
        options.custom_flags(libc::O_NOFOLLOW);
    }
    if writes {
        match writable(pool, path, flags, options.clone()) {
            // Then it is read.
            Err(error) if error.errno() == libc::EROFS => {}
            Err(error) => return Err(open_code(&error)),
            Ok((file, ino)) if flags & ffi::SQLITE_OPEN_WAL != 0 => {
                return Ok((Body::Log(Frames::new(file)), Some(ino), true));
            }
            Ok((file, ino)) => return Ok((Body::Pool(file), Some(ino), true)),
        }
    }
    match pool.open_with(path, &options) {
        Ok(file) => {
            let found = file.metadata().map_err(|error| open_code(&error))?;
            if found.is_dir() {
                return Err(ffi::SQLITE_CANTOPEN_ISDIR);
            }
            Ok((Body::Pool(file), Some(found.ino()), false))
        }
        // There is nothing in the log of a database that has none: it can be read all the same.
        Err(error) if writes && flags & ffi::SQLITE_OPEN_WAL != 0 && paths::is_absence(&error) => {
            Ok((Body::Nothing, None, false))
        }
        Err(error) => Err(open_code(&error)),
    }
}

/// Opens a file to write it, too. Returns its inode.
fn writable(
    pool: &Pool,
    path: &Path,
    flags: c_int,
    mut options: OpenOptions,
) -> lode::Result<(File, u64)> {
    let creates = flags & ffi::SQLITE_OPEN_CREATE != 0;
    let exclusive = creates && flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0;
    options.write(true).create(creates).create_new(exclusive);
    let like = if creates { database_of(pool, path, flags) } else { None };
    let permissions = like.as_ref().map_or(PERMISSIONS, |like| like.permissions().mode() & 0o777);
    let file = pool.open_with(path, options.mode(permissions))?;
    let found = file.metadata()?;
    if let (Some(like), 0) = (like, found.len()) {
        // Who may read the database may read what stands beside it, and nobody else.
        if found.permissions().mode() & 0o777 != permissions {
            file.set_permissions(PermissionsExt::from_mode(permissions))?;
        }
        if (found.uid(), found.gid()) != (like.uid(), like.gid()) {
            file.chown(Some(like.uid()), Some(like.gid()))?;
        }
    }
    if flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0 {
        pool.remove_file(path)?;
    }
    Ok((file, found.ino()))
}

/// The database that a journal or a log stands beside.
fn database_of(pool: &Pool, path: &Path, flags: c_int) -> Option<Metadata> {
    if flags & (ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL) == 0 {
        return None;
    }
    let bytes = path.as_os_str().as_bytes();
    let dash = bytes.iter().rposition(|byte| *byte == b'-')?;
    pool.metadata(std::ffi::OsStr::from_bytes(bytes.get(..dash)?)).ok()
}

fn open_code(error: &lode::Error) -> c_int {
    match error.errno() {
        libc::EISDIR => ffi::SQLITE_CANTOPEN_ISDIR,
        libc::ELOOP => ffi::SQLITE_CANTOPEN_SYMLINK,
        _ => code(error, ffi::SQLITE_CANTOPEN),
    }
}
