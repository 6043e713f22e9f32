//! `lode block attach` and `detach`: volumes of a mount as loop devices, by losetup(8) of util-linux.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lode_fuse::mountpoint::{Life, Mounted};

use super::taken::Taken;
use super::volumes::{mount_of, with};
use super::{AttachArgs, DetachArgs, refused};
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::output::Output;
use crate::report::{VolumeAttached, VolumeDetached};

/// The program.
const LOSETUP: &str = "losetup";
/// How long those who look into every device of the machine may take to be done with one.
const PATIENCE: Duration = Duration::from_secs(1);

/// The mount that is meant.
fn mount_at(dir: &Path) -> Result<Mounted> {
    let clean = mounts::clean_path(dir)?;
    mount_of(dir, &clean)?.ok_or_else(|| {
        Failure::new(Kind::NotMounted, "the pool is not mounted")
            .at(dir)
            .advise("mount it first: the kernel's loop devices are of files. One whose mount is gone is ended by `losetup --detach /dev/loopN`")
    })
}

/// The file of a volume in a mount, and bytes of its sectors.
fn file_of(dir: &Path, name: &OsStr, output: &Output) -> Result<(PathBuf, u64)> {
    let mount = mount_at(dir)?;
    let all = with(dir, true, output, |volumes| volumes.list())?;
    let found = all.into_iter().find(|one| one.name_bytes == name.as_bytes());
    let found = found.ok_or_else(|| refused(dir, name, &lode_block::Error::NotFound))?;
    Ok((mount.point.join(lode_block::PATH).join(name), found.sector))
}

/// What losetup prints.
fn losetup(dir: &Path, args: &[&OsStr]) -> Result<String> {
    let ran = Command::new(LOSETUP).args(args).output().map_err(|error| {
        Failure::io("running losetup", dir, &error)
            .advise("it is in Debian's package mount, and part of util-linux")
    })?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    let (kind, advice) = match rustix::process::geteuid().is_root() {
        true => (Kind::Failed, "`losetup --list` shows which loop devices there are"),
        false => (Kind::Denied, "only root may make and end loop devices"),
    };
    Err(Failure::new(kind, said).at(dir).advise(advice))
}

pub(super) fn attach(args: &AttachArgs, output: &Output) -> Result<()> {
    let AttachArgs { dir, name, read_only, partscan } = args;
    let (file, sector) = file_of(dir, name, output)?;
    // (Held until there is a device: who attaches it at the same time sees that one.)
    let _taken = Taken::to_attach(&file)?;
    must_be_only(dir, &file, *read_only)?;
    let sector = sector.to_string();
    let mut words = ["--find", "--show", "--sector-size", sector.as_str()].map(OsStr::new).to_vec();
    words.extend(read_only.then_some(OsStr::new("--read-only")));
    words.extend(partscan.then_some(OsStr::new("--partscan")));
    words.push(file.as_os_str());
    let device = losetup(dir, &words)?;
    output.print(&VolumeAttached { file: file.display().to_string(), device })
}

pub(super) fn detach(args: &DetachArgs, output: &Output) -> Result<()> {
    let DetachArgs { dir, name } = args;
    let mount = mount_at(dir)?;
    // (Its files can't be asked for, then.)
    let is_dead = mounts::life(&mount) == Life::Dead;
    let file = match is_dead {
        // (Not all loop devices of the machine.)
        true if !lode_block::is_name(name.as_bytes()) => {
            return Err(refused(dir, name, &lode_block::Error::NotFound));
        }
        true => mount.point.join(lode_block::PATH).join(name),
        false => file_of(dir, name, output)?.0,
    };
    let all = || match is_dead {
        true => Ok(mounts::loops_of(&file)),
        false => Ok(loops_of(dir, &file)?.into_iter().map(|one| one.device).collect()),
    };
    let devices = all()?;
    if devices.is_empty() {
        return Err(Failure::new(Kind::NotFound, "no loop device is of this volume")
            .at(&file)
            .advise("`losetup --list` shows all of them; one that a mount of before has left is ended by `losetup --detach /dev/loopN`"));
    }
    for device in &devices {
        losetup(dir, &["--detach", device].map(OsStr::new))?;
    }
    ended(&all, &file, &devices)?;
    output.print(&VolumeDetached { file: file.display().to_string(), devices })
}

/// Refuses a second loop device of a file, unless both are only read: each has a cache of its own, and two that are mounted destroy each
/// other's file system.
fn must_be_only(dir: &Path, file: &Path, read_only: bool) -> Result<()> {
    let in_the_way = loops_of(dir, file)?.into_iter().find(|one| !(read_only && one.read_only));
    let Some(Loop { device, .. }) = in_the_way else { return Ok(()) };
    Err(Failure::new(Kind::Busy, format!("the volume is attached already, as {device}"))
        .at(file)
        .advise(
            "use that one, or end it with `lode block detach`; more than one may be --read-only",
        ))
}

/// A loop device.
struct Loop {
    device: String,
    read_only: bool,
}

/// The loop devices of a file.
fn loops_of(dir: &Path, file: &Path) -> Result<Vec<Loop>> {
    let words = ["--noheadings", "--output", "NAME,RO", "--associated"].map(OsStr::new);
    let listed = losetup(dir, &[&words[..], &[file.as_os_str()]].concat())?;
    let device_of = |line: &str| {
        let mut words = line.split_whitespace();
        Some(Loop { device: words.next()?.to_owned(), read_only: words.next() == Some("1") })
    };
    Ok(listed.lines().filter_map(device_of).collect())
}

/// Waits a moment for these loop devices to end: the kernel says that they do, and ends them with their last user.
fn ended(all: &dyn Fn() -> Result<Vec<String>>, file: &Path, devices: &[String]) -> Result<()> {
    let began = Instant::now();
    loop {
        let left = all()?;
        let mut left = left.into_iter();
        let Some(busy) = left.find(|one| devices.contains(one)) else { return Ok(()) };
        if began.elapsed() > PATIENCE {
            let what = format!("{busy} is in use, and ends when nobody uses it any more");
            return Err(Failure::new(Kind::Busy, what)
                .at(file)
                .advise("unmount what is mounted of it: `findmnt --source DEVICE` shows where"));
        }
        std::thread::sleep(PATIENCE / 20);
    }
}
