//! Mount points: what is mounted where, whether it lives, and taking it off.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount_remount};

use crate::apart;
use crate::error::{MountError, Result};

/// The kernel's name for mounts of this crate.
pub const FS_TYPE: &str = "fuse.lode";
/// How long a mount may take to say that it lives.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the kernel tells of its connections to servers.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// How long what is written out may be on its way.
const WRITTEN_OUT_IN: Duration = Duration::from_secs(1);
/// How long this mount's own requests are waited for.
const ANSWERED_IN: Duration = Duration::from_secs(10);

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The kernel's number of the device, `major:minor`.
    pub device: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system.
    pub fs_type: String,
    /// What is mounted: of a Lode mount, the pool's path.
    pub source: PathBuf,
    /// Who mounted it: told of FUSE mounts alone.
    pub owner: Option<u32>,
    /// Changes, access times, set-user-id bits, devices and programs: what of it does not work.
    pub flags: MountFlags,
}

/// What the mount at a path does when it is asked something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It answers.
    Alive,
    /// Its server is gone.
    Dead,
    /// No answer in time: a server that hangs or is stopped.
    Silent,
}

/// All mounts that this process sees, in the order they were made.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The topmost mount at exactly `point`, a canonical path.
pub fn mounted_at(point: &Path) -> io::Result<Option<Mounted>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.point == point))
}

fn parse(line: &[u8]) -> Option<Mounted> {
    // id parent major:minor root point options [optional..] - type source superblock's
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let point = unescape(fields.nth(1)?);
    let flags = parse_flags(fields.next()?);
    fields.find(|field| field == b"-")?;
    let fs_type = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let source = unescape(fields.next()?);
    let owner = fields.next().and_then(parse_owner);
    Some(Mounted { device, point, fs_type, source, owner, flags })
}

fn parse_owner(options: &[u8]) -> Option<u32> {
    let mut options = std::str::from_utf8(options).ok()?.split(',');
    options.find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
}

fn parse_flags(options: &[u8]) -> MountFlags {
    let flag = |option: &[u8]| match option {
        b"ro" => MountFlags::RDONLY,
        b"noatime" => MountFlags::NOATIME,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        _ => MountFlags::empty(),
    };
    options.split(|byte| *byte == b',').map(flag).collect()
}

/// Gives a mount other flags, at once; files that are open stay so.
///
/// # Errors
/// `EPERM` for all but root; `EBUSY` where files are open for writing and no more changes are wanted.
pub fn remount(point: &Path, flags: MountFlags) -> io::Result<()> {
    Ok(mount_remount(point, flags, c"")?)
}

/// The kernel writes blanks, tabs, line ends and backslashes as `\ooo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (byte, value) {
            (b'\\', Some(value)) => {
                bytes.push(value);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The canonical path of a directory, even if a dead mount covers it.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let name = path.file_name().ok_or(error)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
        }
        other => other,
    }
}

/// Makes sure that something can be mounted at `path`: takes off what a server that
/// died left there. Returns the canonical path.
pub fn prepare(path: &Path) -> Result<PathBuf> {
    let fail = |source| MountError::MountPoint { path: path.into(), source };
    let point = canonical(path).map_err(fail)?;
    // More than one can lie there; never more than somebody has mounted by hand.
    for _ in 0..64 {
        let Some(top) = mounted_at(&point).map_err(fail)? else {
            break;
        };
        let life = life(&point);
        match (top.fs_type == FS_TYPE, life) {
            (true, Life::Alive | Life::Silent) => return Err(MountError::Busy(path.into())),
            (true, Life::Dead) => {
                tracing::info!(point = %point.display(), "taking off a mount whose server is gone");
                detach(&point)
                    .map_err(|source| MountError::DeadMount { path: path.into(), source })?;
            }
            (false, Life::Dead) => {
                let source = io::Error::from_raw_os_error(libc::ENOTCONN);
                return Err(MountError::DeadMount { path: path.into(), source });
            }
            (false, _) => break,
        }
    }
    if !fs::metadata(&point).map_err(fail)?.is_dir() {
        return Err(MountError::NotADirectory(path.into()));
    }
    Ok(point)
}

/// Asks for the space of the file system: the one question that is never answered
/// from the kernel's caches.
fn life(point: &Path) -> Life {
    let asked = point.to_owned();
    let answer = apart::within(PATIENCE, move || apart::statfs(&asked));
    let code = answer.map(|answer| answer.err().and_then(|error| error.raw_os_error()));
    match code {
        // (ECANCELED: its requests came by io_uring.)
        Some(Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED)) => Life::Dead,
        Some(_) => Life::Alive,
        None => Life::Silent,
    }
}

/// Whether a mount of Lode at `point` answers.
pub fn answers(point: &Path) -> bool {
    life_of_lode(point) == Life::Alive
}

/// What a mount of Lode at `point` does when it is asked something; one that is not
/// there is dead. Waits up to 5 s for it.
pub fn life_of_lode(point: &Path) -> Life {
    let ours = || mounted_at(point).ok().flatten().filter(|top| top.fs_type == FS_TYPE);
    // Looked at twice: a dead mount may be taken off, and what it covered answer instead.
    let before = ours();
    if before.is_none() {
        return Life::Dead;
    }
    let life = life(point);
    if ours() == before { life } else { Life::Dead }
}

/// Takes a mount out of the tree at once; it ends when its last user does.
pub fn detach(point: &Path) -> io::Result<()> {
    unmount_with(point, UnmountFlags::DETACH, &["-u", "-z"])
}

/// Has the kernel write out what was stored through mappings of the mount at `point`.
///
/// The kernel sends all of it, but does not wait for the server to have taken it, as it does with other file systems (a server may never
/// answer). So this waits until nothing is on its way, of this mount or another file system, for a second at most; for ten, while the
/// mount has requests that are not answered. Says whether all of it has arrived, as far as that is known.
pub fn sync(point: &Path) -> io::Result<bool> {
    apart::sync(point)?;
    let begun = Instant::now();
    while is_on_its_way(point) {
        let waited = begun.elapsed();
        if waited > WRITTEN_OUT_IN {
            let ours = requests(point);
            if ours.is_none_or(|ours| ours == 0) || waited > ANSWERED_IN {
                return Ok(ours == Some(0));
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// Whether pages are being written out. Each processor counts some dozens of pages for itself before the kernel's
/// counts have them; root may have these counted in first. Who may not goes by the requests of the mount, too.
fn is_on_its_way(point: &Path) -> bool {
    let is_exact = fs::read("/proc/sys/vm/stat_refresh").is_ok();
    fs::read_to_string("/proc/vmstat").is_ok_and(|counts| is_writing(&counts))
        || !is_exact && requests(point).is_some_and(|requests| requests > 0)
}

/// How many requests of the mount at `point` are not answered, as the kernel says to who mounted it where its file
/// system for that is mounted.
fn requests(point: &Path) -> Option<u64> {
    let device = mounted_at(point).ok()??.device;
    let (_, minor) = device.split_once(':')?;
    let waiting = Path::new(CONNECTIONS).join(minor).join("waiting");
    fs::read_to_string(waiting).ok()?.trim().parse().ok()
}

/// Whether pages are being written out, by the counts of the kernel's memory.
fn is_writing(counts: &str) -> bool {
    let of = |name: &str| {
        let line = counts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    // (The second is of FUSE alone, in kernels before 6.16.)
    of("nr_writeback") + of("nr_writeback_temp") > 0
}

/// Takes a mount out of the tree if nobody uses it.
pub fn unmount(point: &Path) -> io::Result<()> {
    unmount_with(point, UnmountFlags::empty(), &["-u"])
}

/// Ends the connection of a mount to its server, whoever uses it, and takes it out of
/// the tree. Who has a file open gets ENOTCONN.
pub fn cut_off(point: &Path) -> io::Result<()> {
    unmount_with(point, UnmountFlags::DETACH | UnmountFlags::FORCE, &["-u", "-z"])
}

fn unmount_with(point: &Path, flags: UnmountFlags, helper: &[&str]) -> io::Result<()> {
    match apart::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => fusermount(point, helper),
        other => other,
    }
}

/// Unmounts by the helper that may, where this user may not.
fn fusermount(point: &Path, arguments: &[&str]) -> io::Result<()> {
    let helper = helper_program();
    let output = Command::new(helper)
        .args(arguments)
        .arg("--")
        .arg(point)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{helper}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let busy = said.contains("busy");
    Err(if busy { io::Error::from_raw_os_error(libc::EBUSY) } else { io::Error::other(said) })
}

/// The helper of the fuse packages.
pub(crate) fn helper_program() -> &'static str {
    let there = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
    };
    if !there("fusermount3") && there("fusermount") { "fusermount" } else { "fusermount3" }
}

/// Lets the kernel read ahead up to `kib` KiB of a file; only root may, and nothing
/// depends on it.
pub fn set_read_ahead(device: &str, kib: u32) {
    let plain = device.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    if !plain || device.is_empty() {
        return;
    }
    let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&file, kib.to_string()) {
        tracing::debug!(%file, %error, "read-ahead stays as it is");
    }
}

/// A stable number for a canonical path.
pub fn path_hash(path: &Path) -> u64 {
    // FNV-1a: short, and the same in every build.
    path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_out_is_known_by_the_kernels_counts() {
        assert!(!is_writing("nr_dirty 7\nnr_writeback 0\nnr_writeback_temp 0\n"));
        assert!(is_writing("nr_writeback 3\n") && is_writing("nr_writeback_temp 1\n"));
        assert!(!is_writing("") && !is_writing("nr_writeback_temp x\n"));
    }

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line =
            b"36 35 0:45 / /mnt/a\\040b\\134c rw,noatime shared:1 master:2 - fuse.lode /p\\011q rw,user_id=7";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.device, "0:45");
        assert_eq!(mounted.point, Path::new("/mnt/a b\\c"));
        assert_eq!(mounted.fs_type, FS_TYPE);
        assert_eq!(mounted.source, Path::new("/p\tq"));
        assert_eq!(mounted.owner, Some(7));
    }

    #[test]
    fn nonsense_is_no_mount() {
        for line in [&b""[..], b"1 2 3", b"36 35 0:45 / /mnt rw shared:1", b"a - b"] {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(b"a\\9zz\\"), Path::new("a\\9zz\\"));
    }

    #[test]
    fn proc_is_mounted_and_lives() {
        let proc = mounted_at(Path::new("/proc")).unwrap().unwrap();
        assert_eq!(proc.fs_type, "proc");
        assert_eq!(life(Path::new("/proc")), Life::Alive);
        assert!(!answers(Path::new("/proc")), "alive, but not Lode");
    }

    #[test]
    fn only_directories_are_mount_points() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(prepare(&file), Err(MountError::NotADirectory(_))));
        assert!(matches!(prepare(&dir.path().join("no")), Err(MountError::MountPoint { .. })));
        assert_eq!(prepare(dir.path()).unwrap(), fs::canonicalize(dir.path()).unwrap());
    }
}
