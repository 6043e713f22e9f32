//! What is mounted where, and who uses it, from /proc.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Kind, Result};

/// The type of Lode's mounts in /proc/self/mountinfo.
pub(crate) const FS_TYPE: &[u8] = b"fuse.lode";
/// What a file system without its server answers.
const ENOTCONN: i32 = rustix::io::Errno::NOTCONN.raw_os_error();
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    /// The directory.
    pub(crate) dir: PathBuf,
    /// The type, `fuse.lode` for ours.
    pub(crate) fs_type: Vec<u8>,
    /// What is mounted: the pool's path.
    pub(crate) source: PathBuf,
}

impl Mount {
    /// It is one of ours.
    pub(crate) fn is_lode(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// Its server is gone: every access says so.
    pub(crate) fn is_dead(&self) -> bool {
        let gone = |error: std::io::Error| error.raw_os_error() == Some(ENOTCONN);
        fs::metadata(&self.dir).is_err_and(gone)
    }
}

/// All mounts, the latest last.
///
/// # Errors
/// When /proc can't be read.
pub(crate) fn all() -> Result<Vec<Mount>> {
    let text = fs::read(MOUNTINFO)
        .map_err(|error| Failure::io("reading the mounts", Path::new(MOUNTINFO), &error))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount on top at `dir`, which must be absolute and clean.
///
/// # Errors
/// When /proc can't be read.
pub(crate) fn at(dir: &Path) -> Result<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.dir == dir))
}

/// Our mount of the pool at `pool`, which must be absolute and clean.
///
/// # Errors
/// When /proc can't be read.
pub(crate) fn of_pool(pool: &Path) -> Result<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.is_lode() && mount.source == pool))
}

/// `dir` absolute and clean, even where a dead mount keeps its last part from being looked at.
///
/// # Errors
/// When its parent is not there.
pub(crate) fn clean_path(dir: &Path) -> Result<PathBuf> {
    if let Ok(clean) = dir.canonicalize() {
        return Ok(clean);
    }
    let absolute = std::path::absolute(dir)
        .map_err(|error| Failure::io("looking at the directory", dir, &error))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let parent = parent.canonicalize().map_err(|error| {
        let failure = Failure::io("looking at the directory", dir, &error);
        Failure { advice: Some("check the path".into()), ..failure }
    })?;
    Ok(parent.join(name))
}

/// A directory on our mount or below it: the mount it belongs to.
///
/// # Errors
/// `NotMounted` where no Lode mount is.
pub(crate) fn lode_at(dir: &Path) -> Result<Mount> {
    let clean = clean_path(dir)?;
    match at(&clean)? {
        Some(mount) if mount.is_lode() => Ok(mount),
        Some(mount) => {
            let fs_type = String::from_utf8_lossy(&mount.fs_type).into_owned();
            Err(Failure::new(Kind::NotMounted, format!("a file system of type {fs_type} is mounted here, not Lode"))
                .at(dir)
                .advise("`findmnt -t fuse.lode` lists Lode's mounts"))
        }
        None if !clean.exists() => {
            Err(Failure::new(Kind::NotFound, "no such directory").at(dir).advise("check the path"))
        }
        None => Err(Failure::new(Kind::NotMounted, "no pool is mounted here")
            .at(dir)
            .advise("`findmnt -t fuse.lode` lists Lode's mounts; `lode mount POOL DIR` makes one")),
    }
}

/// Processes that use something at or below `dir`: id and name, best effort.
pub(crate) fn users(dir: &Path) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if uses(&entry.path(), dir) {
            found.push((pid, process_name(pid)));
        }
    }
    found
}

/// The name of a process, or a question mark.
pub(crate) fn process_name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
}

fn uses(process: &Path, dir: &Path) -> bool {
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    if inside(&process.join("cwd")) || inside(&process.join("root")) || inside(&process.join("exe")) {
        return true;
    }
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    if descriptors.flatten().any(|descriptor| inside(&descriptor.path())) {
        return true;
    }
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n').any(|line| {
        let path = line.iter().position(|byte| *byte == b'/').map(|start| &line[start..]);
        path.is_some_and(|path| Path::new(OsStr::from_bytes(path)).starts_with(dir))
    })
}

/// One line of mountinfo; `None` for what is no mount.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let dir = unescape(fields.nth(4)?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = rest.next()?.to_vec();
    let source = unescape(rest.next()?);
    Some(Mount { dir: dir.into(), fs_type, source: source.into() })
}

/// Takes back the octal escapes of mountinfo.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| first == b'\\');
        let value = octal.and_then(|octal| std::str::from_utf8(octal).ok());
        match value.and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes_and_optional_fields() {
        let line = b"36 25 0:32 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse.lode /dev/shm/p\\134q rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/dev/shm/p\\q"));
        assert!(mount.is_lode());
        assert_eq!(parse(b"36 25 0:32 /"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn this_process_uses_its_directory() {
        let here = std::env::current_dir().unwrap();
        assert!(users(&here).iter().any(|(pid, _)| *pid == std::process::id()));
    }
}
