//! Names as SQLite gives them, and paths from the pool's root.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libsqlite3_sys as ffi;
use lode::Pool;

use crate::error::{Outcome, code};

/// Symbolic links that lead to a file that is not there yet, at most.
const LINKS: usize = 40;

/// Whether there is nothing of a name, rather than something that can't be told.
pub(crate) fn is_absence(error: &lode::Error) -> bool {
    matches!(error.errno(), libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG)
}

/// The path from the root to what `path` leads to or would make, and whether a symbolic link was on the
/// way. A database that is opened by a link so has its journal beside itself, not beside the link.
pub(crate) fn full(pool: &Pool, path: &Path) -> Outcome<(PathBuf, bool)> {
    let mut path = Path::new("/").join(path);
    let mut linked = false;
    for _ in 0..LINKS {
        match pool.canonicalize(&path) {
            Ok(found) => {
                linked |= found != plain(&path);
                return Ok((found, linked));
            }
            Err(error) if !is_absence(&error) => return Err(code(&error, ffi::SQLITE_CANTOPEN)),
            Err(_) => {}
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { break };
        if let Ok(target) = pool.read_link(&path) {
            linked = true;
            path = above.join(target);
            continue;
        }
        // It is not there, or not even its directory: opening will say so.
        let above = match pool.canonicalize(above) {
            Ok(found) => {
                linked |= found != plain(above);
                found
            }
            Err(_) => plain(above),
        };
        return Ok((above.join(name), linked));
    }
    Err(ffi::SQLITE_CANTOPEN)
}

/// A path from the root without `.` and `..`, as text.
fn plain(path: &Path) -> PathBuf {
    use std::path::Component::{CurDir, Normal, ParentDir, Prefix, RootDir};
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Normal(name) => plain.push(name),
            ParentDir => drop(plain.pop()),
            CurDir | Prefix(_) | RootDir => {}
        }
    }
    plain
}

/// What SQLite asks of a name: whether it is there, or can be written.
pub(crate) fn access(pool: &Pool, path: &Path, wanted: c_int) -> Outcome<bool> {
    let failed = |error: &lode::Error| code(error, ffi::SQLITE_IOERR_ACCESS);
    let found = match pool.metadata(path) {
        Ok(found) => found,
        Err(error) if is_absence(&error) => return Ok(false),
        Err(error) => return Err(failed(&error)),
    };
    match wanted {
        ffi::SQLITE_ACCESS_READWRITE => Ok(!pool.is_read_only().map_err(|error| failed(&error))?),
        ffi::SQLITE_ACCESS_READ => Ok(true),
        // An empty journal is none.
        _ => Ok(!found.is_file() || found.len() > 0),
    }
}

/// Removes a file.
pub(crate) fn delete(pool: &Pool, path: &Path) -> Outcome<()> {
    pool.remove_file(path).map_err(|error| match error.errno() {
        libc::ENOENT => ffi::SQLITE_IOERR_DELETE_NOENT,
        _ => code(&error, ffi::SQLITE_IOERR_DELETE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lode::PoolOptions;

    #[test]
    fn full_paths_begin_at_the_root_and_follow_links() {
        let pool = PoolOptions::new().in_memory(16 << 20).unwrap();
        pool.create_dir_all("a/b").unwrap();
        pool.write("a/b/db", "x").unwrap();
        pool.symlink("b/db", "a/link").unwrap();
        pool.symlink("/a/b", "dir").unwrap();
        pool.symlink("new", "a/dangling").unwrap();
        pool.symlink("loop", "loop").unwrap();
        let cases = [
            ("a/b/db", "/a/b/db", false),
            ("/a/./b/../b/db", "/a/b/db", false),
            ("a/link", "/a/b/db", true),
            ("dir/db", "/a/b/db", true),
            ("dir/other", "/a/b/other", true),
            ("a/dangling", "/a/new", true),
            ("a/../none", "/none", false),
            ("no/where", "/no/where", false),
            ("", "/", false),
        ];
        for (path, wanted, linked) in cases {
            let found = full(&pool, Path::new(path)).unwrap();
            assert_eq!(found, (PathBuf::from(wanted), linked), "{path}");
        }
        assert_eq!(full(&pool, Path::new("loop")).unwrap_err(), ffi::SQLITE_CANTOPEN);
    }

    #[test]
    fn an_empty_file_is_none_and_a_read_only_one_is_there() {
        let pool = PoolOptions::new().in_memory(16 << 20).unwrap();
        pool.write("empty", "").unwrap();
        pool.write("full", "x").unwrap();
        pool.create_dir("dir").unwrap();
        let asked = |path: &str, wanted| access(&pool, Path::new(path), wanted).unwrap();
        assert!(!asked("empty", ffi::SQLITE_ACCESS_EXISTS));
        assert!(asked("empty", ffi::SQLITE_ACCESS_READWRITE));
        assert!(asked("full", ffi::SQLITE_ACCESS_EXISTS));
        assert!(asked("dir", ffi::SQLITE_ACCESS_EXISTS));
        assert!(!asked("none", ffi::SQLITE_ACCESS_EXISTS));
        assert!(!asked("full/none", ffi::SQLITE_ACCESS_EXISTS));
        let none = delete(&pool, Path::new("none")).unwrap_err();
        assert_eq!(none, ffi::SQLITE_IOERR_DELETE_NOENT);
        assert_eq!(delete(&pool, Path::new("dir")).unwrap_err(), ffi::SQLITE_IOERR_DELETE);
    }
}
