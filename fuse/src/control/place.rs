//! Where control sockets are, and what is known of them.
//!
//! A directory that only this user may enter holds, for each mount, a socket and a
//! record of what is mounted there. Both are named by a hash of the mount point.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SCHEMA;
use crate::error::{MountError, Result};
use crate::mountpoint::path_hash;

/// What is mounted where, by which process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Version of this record.
    pub schema: u32,
    /// The server's process.
    pub pid: u32,
    /// Canonical path of the pool; lossy where it is not UTF-8.
    pub pool: String,
    /// Canonical mount point; lossy where it is not UTF-8.
    pub mount: String,
    /// The same hash that names the pool's other files: of the exact path.
    pub pool_hash: u64,
}

impl Record {
    /// The record of this process's mount of `pool` at `point`.
    pub fn new(pool: &Path, point: &Path) -> Self {
        Self {
            schema: SCHEMA,
            pid: std::process::id(),
            pool: pool.to_string_lossy().into_owned(),
            mount: point.to_string_lossy().into_owned(),
            pool_hash: path_hash(pool),
        }
    }
}

/// The directory of this user's sockets: `/run/lode` for root, else
/// `$XDG_RUNTIME_DIR/lode`, else `/tmp/lode-UID`.
pub fn directory() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() && Path::new("/run").is_dir() {
        return "/run/lode".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if Path::new(&dir).is_absolute() && !user.is_root() => {
            Path::new(&dir).join("lode")
        }
        _ => format!("/tmp/lode-{}", user.as_raw()).into(),
    }
}

/// Makes `directory`, or checks that the one that is there is this user's alone.
pub fn prepare(directory: &Path) -> Result<()> {
    let fail = |source| MountError::Control { what: "can't make", path: directory.into(), source };
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    check(directory)
}

/// Checks that `directory` is a directory, this user's, and closed to others.
pub fn check(directory: &Path) -> Result<()> {
    let fail =
        |source| MountError::Control { what: "can't look at", path: directory.into(), source };
    let found = fs::symlink_metadata(directory).map_err(fail)?;
    let wrong = |why| Err(MountError::ControlPlace { path: directory.into(), why });
    if !found.is_dir() {
        wrong("it is not a directory")
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        wrong("it belongs to another user")
    } else if found.mode() & 0o077 != 0 {
        wrong("other users may enter it (its mode has to be 0700)")
    } else {
        Ok(())
    }
}

/// The socket of the mount at `point`, a canonical path.
pub fn socket(directory: &Path, point: &Path) -> PathBuf {
    directory.join(format!("{:016x}.sock", path_hash(point)))
}

/// The record beside a socket.
pub fn record_of(socket: &Path) -> PathBuf {
    socket.with_extension("json")
}

/// Writes the record beside a socket; whole or not at all.
pub fn write_record(socket: &Path, record: &Record) -> io::Result<()> {
    let path = record_of(socket);
    let draft = socket.with_extension(format!("new{}", record.pid));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(serde_json::to_string(record)?.as_bytes())?;
    drop(file);
    fs::rename(&draft, &path)
}

/// The record beside a socket, where there is one.
pub fn read_record(socket: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(record_of(socket)).ok()?).ok()
}

/// The records of all mounts of `pool`, a canonical path, whether their servers live or not.
pub fn records_of_pool(directory: &Path, pool: &Path) -> Vec<Record> {
    let sockets = sockets_of_pool(directory, pool).unwrap_or_default();
    sockets.iter().filter_map(|socket| read_record(socket)).collect()
}

/// The sockets whose record says that they serve `pool`, a canonical path.
pub fn sockets_of_pool(directory: &Path, pool: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let record = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if record.is_some_and(|record: Record| record.pool_hash == path_hash(pool)) {
            found.push(path.with_extension("sock"));
        }
    }
    Ok(found)
}

/// Removes what servers that were killed have left in `directory`.
pub fn sweep(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let socket = path.with_extension("sock");
        if is_dead(&path) && UnixStream::connect(&socket).is_err() && is_dead(&path) {
            for left in [path, socket] {
                let _ = fs::remove_file(left);
            }
        }
    }
    Ok(())
}

/// Whether the process that wrote a record is gone.
fn is_dead(record: &Path) -> bool {
    let text = fs::read(record).unwrap_or_default();
    let record: Option<Record> = serde_json::from_slice(&text).ok();
    record.is_some_and(|record| !Path::new(&format!("/proc/{}", record.pid)).exists())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_of_this_user_alone_is_good() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("lode");
        prepare(&place).unwrap();
        prepare(&place).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn open_or_crooked_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("open");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(prepare(&place), Err(MountError::ControlPlace { .. })));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(matches!(prepare(&link), Err(MountError::ControlPlace { .. })));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(prepare(&file), Err(MountError::ControlPlace { .. })));
    }

    #[test]
    fn records_lead_from_pools_to_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let one = socket(dir.path(), Path::new("/mnt/one"));
        let two = socket(dir.path(), Path::new("/mnt/two"));
        assert_ne!(one, two);
        write_record(&one, &Record::new(Path::new("/p1"), Path::new("/mnt/one"))).unwrap();
        write_record(&two, &Record::new(Path::new("/p2"), Path::new("/mnt/two"))).unwrap();
        fs::write(dir.path().join("junk.json"), "{").unwrap();
        assert_eq!(sockets_of_pool(dir.path(), Path::new("/p2")).unwrap(), [two]);
        assert!(sockets_of_pool(dir.path(), Path::new("/p3")).unwrap().is_empty());
    }

    #[test]
    fn only_what_the_dead_left_is_swept_away() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, dead) =
            (socket(dir.path(), Path::new("/a")), socket(dir.path(), Path::new("/b")));
        write_record(&mine, &Record::new(Path::new("/p"), Path::new("/a"))).unwrap();
        let mut gone = Record::new(Path::new("/p"), Path::new("/b"));
        // Above the largest number a process can have.
        gone.pid = 1 << 23;
        write_record(&dead, &gone).unwrap();
        fs::write(&dead, "").unwrap();
        sweep(dir.path()).unwrap();
        assert_eq!(sockets_of_pool(dir.path(), Path::new("/p")).unwrap(), [mine]);
        assert!(!dead.exists());
    }
}
