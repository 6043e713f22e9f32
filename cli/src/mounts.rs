//! What is mounted where, and who uses it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lode_fuse::MountError;
use lode_fuse::control::{Client, place};
use lode_fuse::mountpoint::{self, FS_TYPE, Life, Mounted};

use crate::failure::{Failure, Kind, Result};

/// How long a server may take to say that it lives.
const PATIENCE: Duration = Duration::from_secs(5);

/// `path` absolute and clean, even where a dead mount keeps its last part from being looked at.
///
/// # Errors
/// When something on the way is not there.
pub(crate) fn clean_path(path: &Path) -> Result<PathBuf> {
    mountpoint::canonical(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Kind::NotFound, "no such file or directory")
            .at(path)
            .advise("check the path"),
        _ => Failure::io("looking at the path", path, &error),
    })
}

/// The topmost mount at exactly `dir`, a clean path, if it is one of ours.
///
/// # Errors
/// When /proc can't be read.
pub(crate) fn at(dir: &Path) -> Result<Option<Mounted>> {
    let top = mountpoint::mounted_at(dir).map_err(|error| unreadable(&error))?;
    Ok(top.filter(|mount| mount.fs_type == FS_TYPE))
}

/// Our mount of the pool at `pool`, a clean path.
///
/// # Errors
/// When /proc can't be read.
pub(crate) fn of_pool(pool: &Path) -> Result<Option<Mounted>> {
    let all = mountpoint::mounts().map_err(|error| unreadable(&error))?;
    Ok(all.into_iter().rfind(|mount| mount.fs_type == FS_TYPE && mount.source == pool))
}

/// Whether the pool at `pool`, a clean path, is served without a mount, by this user.
pub(crate) fn is_served(pool: &Path) -> bool {
    let record = place::read_record(&place::socket(&place::directory(), pool));
    record.is_some_and(|record| record.mount == record.pool && is_running(record.pid))
}

/// Where else the same mount is to be seen: `mount --bind` has put it there, all or part of it.
///
/// # Errors
/// When /proc can't be read.
pub(crate) fn elsewhere(mount: &Mounted) -> Result<Vec<PathBuf>> {
    let all = mountpoint::mounts().map_err(|error| unreadable(&error))?;
    let same = |other: &Mounted| other.device == mount.device && other.point != mount.point;
    Ok(all.into_iter().filter(same).map(|other| other.point).collect())
}

/// Where a pool was mounted that is now to be seen at another place.
pub(crate) struct FirstPlace {
    /// The place.
    pub(crate) point: PathBuf,
    /// It is to be seen there, too.
    pub(crate) still_there: bool,
}

/// Where `mount` was first, if that is another place and its server lives: its record tells.
pub(crate) fn first_place(mount: &Mounted) -> Option<FirstPlace> {
    let records = place::records_of_pool(&place::directory(), &mount.source);
    let record = records.into_iter().find(|record| is_running(record.pid))?;
    let point = PathBuf::from(record.mount);
    let there = at(&point).ok().flatten();
    let still_there = there.is_some_and(|there| there.device == mount.device);
    (point != mount.point).then_some(FirstPlace { point, still_there })
}

/// Whether there is a process of this id.
pub(crate) fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::io("reading the mounts", Path::new("/proc/self/mountinfo"), error)
}

/// Our mount that `path`, a clean path, lies in, below where it is mounted.
pub(crate) fn around(path: &Path) -> Option<Mounted> {
    let above = path.ancestors().skip(1);
    let nearest = above.filter_map(|dir| mountpoint::mounted_at(dir).ok().flatten()).next()?;
    (nearest.fs_type == FS_TYPE).then_some(nearest)
}

/// The Lode mount at `dir`.
///
/// # Errors
/// `NotFound`, or `NotMounted` with what is there instead.
pub(crate) fn lode_at(dir: &Path) -> Result<Mounted> {
    let clean = clean_path(dir)?;
    if let Some(mount) = at(&clean)? {
        return Ok(mount);
    }
    let other = mountpoint::mounted_at(&clean).map_err(|error| unreadable(&error))?;
    if other.is_none()
        && let Some(mount) = around(&clean)
    {
        let whole = mount.point.display();
        let what = format!("this is inside the mount at {whole}, which is asked for as a whole");
        return Err(Failure::new(Kind::NotMounted, what)
            .at(dir)
            .advise(format!("name {whole} instead")));
    }
    let what = match other {
        Some(other) => format!("a file system of type {} is mounted here, not Lode", other.fs_type),
        None => "no pool is mounted here".to_owned(),
    };
    Err(Failure::new(Kind::NotMounted, what)
        .at(dir)
        .advise("`findmnt -t fuse.lode` lists Lode's mounts; `lode mount POOL DIR` makes one"))
}

/// Whether the server of a mount of ours answers. It is asked on its socket where that can be: who
/// asks the mount itself can't be ended while a server that is stopped has the question.
pub(crate) fn life(mount: &Mounted) -> Life {
    by_socket(mount, PATIENCE).unwrap_or_else(|| mountpoint::life_of_lode(&mount.point))
}

/// Whether the server of a mount of ours is there and says nothing for so long.
pub(crate) fn is_silent(mount: &Mounted, patience: Duration) -> bool {
    by_socket(mount, patience) == Some(Life::Silent)
}

/// What the socket tells of it: none where nobody is there or the answer is no plain yes.
fn by_socket(mount: &Mounted, patience: Duration) -> Option<Life> {
    let mut server = Client::for_mount(&mount.point).ok()?;
    server.set_patience(patience).ok()?;
    match server.ask("ping") {
        Ok(_) => Some(Life::Alive),
        Err(MountError::Control { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
            Some(Life::Silent)
        }
        Err(_) => None,
    }
}

/// The server of a mount of ours answers.
///
/// # Errors
/// What to say of it if it does not.
pub(crate) fn must_answer(mount: &Mounted) -> Result<()> {
    match life(mount) {
        Life::Alive => Ok(()),
        Life::Dead => Err(gone(mount)),
        Life::Silent => Err(silent(mount)),
    }
}

/// What to say of a mount whose server is there and says nothing.
pub(crate) fn silent(mount: &Mounted) -> Failure {
    let socket = place::socket(&place::directory(), &mount.point);
    let who = match place::read_record(&socket) {
        Some(record) => format!("the server (process {})", record.pid),
        None => "the server".to_owned(),
    };
    Failure::new(Kind::Busy, format!("{who} does not answer; it is stopped or very busy"))
        .at(&mount.point)
        .advise(
            "wait for it, or let it go on (kill -CONT); `lode umount --lazy` detaches the mount",
        )
}

/// What to say of a mount whose server is gone.
fn gone(mount: &Mounted) -> Failure {
    let (pool, dir) = (mount.source.display(), mount.point.display());
    Failure::new(Kind::NotMounted, "the server of this mount is gone")
        .at(&mount.point)
        .advise(format!("`lode mount {pool} {dir}` mounts the pool again and recovers it"))
}

/// The loop devices whose file is this one, or below this directory, as the kernel tells of all of them to everybody.
pub(crate) fn loops_of(place: &Path) -> Vec<String> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().filter_map(io::Result::ok);
    let of = all.filter(|device| {
        let backing = fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        // (A line's end is behind it; spaces there are the name's own.)
        let file = backing.strip_suffix(b"\n").unwrap_or(&backing);
        Path::new(OsStr::from_bytes(file)).starts_with(place)
    });
    of.map(|device| format!("/dev/{}", device.file_name().display())).collect()
}

/// Processes that use something at or below `dir`: id and name, best effort.
pub(crate) fn users(dir: &Path) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
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

/// The user of a process, where that is not this one's.
pub(crate) fn other_user(pid: u32) -> Option<u32> {
    let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    (user != rustix::process::geteuid().as_raw()).then_some(user)
}

/// The name of a process, or a question mark.
pub(crate) fn process_name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
}

fn uses(process: &Path, dir: &Path) -> bool {
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    if inside(&process.join("cwd")) || inside(&process.join("root")) || inside(&process.join("exe"))
    {
        return true;
    }
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    if descriptors.flatten().any(|descriptor| inside(&descriptor.path())) {
        return true;
    }
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n').any(|line| {
        let path = line.iter().position(|byte| *byte == b'/').and_then(|start| line.get(start..));
        path.is_some_and(|path| Path::new(OsStr::from_bytes(path)).starts_with(dir))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_directory() {
        let here = std::env::current_dir().unwrap();
        assert!(users(&here).iter().any(|(pid, _)| *pid == std::process::id()));
    }
}
