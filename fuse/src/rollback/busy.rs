//! Who uses a mount so that it would be wrong to change all under them: files that are open for writing or mapped,
//! and what is mounted inside.
//!
//! As far as this process may look at others: a user's server sees that user's processes alone. Nothing depends on its
//! being complete, but that people are asked before.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde_json::{Value, json};

use crate::mountpoint;

/// The most uses that are named, in an answer of bounded length.
const NAMED_MAX: usize = 20;
/// Bytes of a path that are told, at most.
const PATH_MAX: usize = 4096;

/// Uses of the mount at `point`, some of them where there are very many: each with `path` and `how`, and `pid` and `command` where
/// it is a process.
///
/// # Errors
/// Those of reading what is mounted.
pub fn users(point: &Path) -> io::Result<Vec<Value>> {
    let mounts = mountpoint::mounts()?;
    let Some(mount) = mounts.iter().rfind(|mount| mount.point == point) else {
        return Ok(Vec::new());
    };
    let inside = mounts.iter().filter(|one| one.point != point && one.point.starts_with(point));
    let mut users: Vec<Value> = inside.map(|one| used(&one.point, "mount")).collect();
    let own = std::process::id();
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if pid != own && users.len() < NAMED_MAX {
            of_process(pid, &process.path(), &mount.device, &mut users);
        }
    }
    users.truncate(NAMED_MAX);
    Ok(users)
}

fn used(path: &Path, how: &str) -> Value {
    let bytes = path.as_os_str().as_bytes();
    let shown = bytes.get(..PATH_MAX).unwrap_or(bytes);
    json!({ "path": String::from_utf8_lossy(shown), "how": how })
}

/// What a process does to files of this device. What it does not let us see, or has ended, does nothing.
fn of_process(pid: u32, dir: &Path, device: &str, users: &mut Vec<Value>) {
    let mut found = written(dir, device);
    found.extend(mapped(dir, device));
    if found.is_empty() {
        return;
    }
    let command = fs::read(dir.join("comm")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).trim_end().to_owned();
    for mut one in found {
        if let Some(one) = one.as_object_mut() {
            one.insert("pid".to_owned(), pid.into());
            one.insert("command".to_owned(), command.as_str().into());
        }
        users.push(one);
    }
}

/// Files of this device that a process has open for writing.
fn written(dir: &Path, device: &str) -> Vec<Value> {
    let open = fs::read_dir(dir.join("fd")).into_iter().flatten().filter_map(Result::ok);
    let written = open.filter(|file| {
        let number = file.file_name();
        device_of(&file.path()).as_deref() == Some(device)
            && is_written(&dir.join("fdinfo").join(number))
    });
    written.filter_map(|file| Some(used(&fs::read_link(file.path()).ok()?, "write"))).collect()
}

/// The device of an open file, as `major:minor`. Nothing else is asked of its file system, which may be our own
/// or one that does not answer.
fn device_of(file: &Path) -> Option<String> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, file, flags, StatxFlags::empty()).ok()?;
    Some(format!("{}:{}", found.stx_dev_major, found.stx_dev_minor))
}

/// Whether an open file may be written, by what the kernel tells of it.
fn is_written(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags
        .is_some_and(|flags| flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Files of this device that a process has mapped, each once.
fn mapped(dir: &Path, device: &str) -> Vec<Value> {
    let text = fs::read(dir.join("maps")).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let mut paths: Vec<&Path> = lines.filter_map(|line| mapped_file(line, device)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.into_iter().map(|path| used(path, "map")).collect()
}

/// The path in a line of `maps`, if it is of a file of this device.
fn mapped_file<'a>(line: &'a [u8], device: &str) -> Option<&'a Path> {
    // from-to rights offset major:minor inode   path
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let of = std::str::from_utf8(fields.nth(3)?).ok()?;
    let path = fields.nth(1)?.trim_ascii_start();
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (major, minor) = of.split_once(':')?;
    let of = format!("{}:{}", hex(major)?, hex(minor)?);
    (of == device).then(|| Path::new(std::ffi::OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_as_the_kernel_writes_them() {
        let line =
            b"7f0c8a000000-7f0c8a021000 rw-s 00001000 00:2b 17                         /m/a b c";
        assert_eq!(mapped_file(line, "0:43"), Some(Path::new("/m/a b c")));
        assert_eq!(mapped_file(line, "0:44"), None);
        let none =
            b"7ffd0c000000-7ffd0c021000 rw-p 00000000 00:00 0                          [stack]";
        assert_eq!(mapped_file(none, "0:43"), None);
        assert_eq!(mapped_file(b"", "0:43"), None);
    }

    #[test]
    fn what_a_process_has_open_for_writing_is_found_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (written_to, read) = (dir.path().join("written"), dir.path().join("read"));
        fs::write(&read, "").unwrap();
        let open = (fs::File::create(&written_to).unwrap(), fs::File::open(&read).unwrap());
        let process = Path::new("/proc/self");
        let device = device_of(&written_to).unwrap();
        let found = written(process, &device);
        let has = |path: &Path| found.contains(&used(path, "write"));
        assert!(has(&written_to) && !has(&read), "{found:?}");
        assert_eq!(written(process, "0:0"), Vec::<Value>::new());
        drop(open);
    }
}
