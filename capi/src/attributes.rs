//! Permissions, owners and times.

use std::ffi::{c_char, c_int};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use lode::{FileTimes, Pool};

use crate::border::{Failure, Outcome};
use crate::open::{lode_file, with_file};
use crate::pointers::path;
use crate::pool::{lode_pool, with, with_path};
use crate::stat::lode_timespec;

/// In `nsec`: the time is now. UTIME_NOW.
pub const LODE_UTIME_NOW: i64 = 0x3fff_ffff;
/// In `nsec`: the time stays. UTIME_OMIT.
pub const LODE_UTIME_OMIT: i64 = 0x3fff_fffe;
/// Of a symbolic link itself: AT_SYMLINK_NOFOLLOW.
pub const LODE_NOFOLLOW: c_int = 0x100;
/// The owner or group stays.
pub const LODE_KEEP_ID: u32 = 0xffff_ffff;

const _: () = assert!(
    LODE_UTIME_NOW == libc::UTIME_NOW
        && LODE_UTIME_OMIT == libc::UTIME_OMIT
        && LODE_NOFOLLOW == libc::AT_SYMLINK_NOFOLLOW
        && LODE_KEEP_ID == u32::MAX
);

/// Sets permissions, with the set-id and sticky bits, as chmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_chmod(pool: *mut lode_pool, name: *const c_char, mode: u32) -> c_int {
    let permissions = Permissions::from_mode(mode);
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.set_permissions(name, permissions)) }
}

/// The same of an open file, as fchmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fchmod(file: *mut lode_file, mode: u32) -> c_int {
    let permissions = Permissions::from_mode(mode);
    let work = |file: &lode_file| Ok(file.any().set_permissions(permissions).map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Sets owner and group, but for LODE_KEEP_ID ((uid_t) -1), as chown(2). A file loses its set-id bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_chown(
    pool: *mut lode_pool,
    name: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let (uid, gid) = (id(uid), id(gid));
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.chown(name, uid, gid)) }
}

/// The same; of a symbolic link itself, as lchown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_lchown(
    pool: *mut lode_pool,
    name: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let (uid, gid) = (id(uid), id(gid));
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.lchown(name, uid, gid)) }
}

/// The same of an open file, as fchown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fchown(file: *mut lode_file, uid: u32, gid: u32) -> c_int {
    let work = |file: &lode_file| Ok(file.any().chown(id(uid), id(gid)).map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Sets the times of the last reading, `times[0]`, and of the last change of contents, `times[1]`, as utimensat(2):
/// `nsec` may be LODE_UTIME_NOW or LODE_UTIME_OMIT, and `times` NULL: both now. `flags` is 0 or LODE_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_utimens(
    pool: *mut lode_pool,
    name: *const c_char,
    times: *const lode_timespec,
    flags: c_int,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: a string, and two times, by C's promise.
        let (name, times) = unsafe { (path(name)?, file_times(times)?) };
        let Some(times) = times else { return Ok(0) };
        match flags {
            0 => pool.set_times(name, times)?,
            LODE_NOFOLLOW => pool.set_times_nofollow(name, times)?,
            _ => return Err(Failure::Argument(libc::EINVAL, "no such flags for times")),
        }
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same of an open file, as futimens(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_futimens(file: *mut lode_file, times: *const lode_timespec) -> c_int {
    let work = |file: &lode_file| {
        // SAFETY: two times, by C's promise.
        let Some(times) = unsafe { file_times(times) }? else { return Ok(0) };
        Ok(file.any().set_times(times).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

fn id(given: u32) -> Option<u32> {
    (given != LODE_KEEP_ID).then_some(given)
}

/// The times to be set, if any.
///
/// # Safety
/// NULL, or there are two times.
unsafe fn file_times(given: *const lode_timespec) -> Outcome<Option<FileTimes>> {
    if given.is_null() {
        let now = SystemTime::now();
        return Ok(Some(FileTimes::new().set_accessed(now).set_modified(now)));
    }
    // SAFETY: it is not NULL; that there are two is the caller's promise.
    let [accessed, modified] = unsafe { given.cast::<[lode_timespec; 2]>().read_unaligned() };
    let mut times = FileTimes::new();
    let (accessed, modified) = (time(accessed)?, time(modified)?);
    if accessed.is_none() && modified.is_none() {
        return Ok(None);
    }
    if let Some(accessed) = accessed {
        times = times.set_accessed(accessed);
    }
    if let Some(modified) = modified {
        times = times.set_modified(modified);
    }
    Ok(Some(times))
}

fn time(given: lode_timespec) -> Outcome<Option<SystemTime>> {
    let nsec = match given.nsec {
        LODE_UTIME_NOW => return Ok(Some(SystemTime::now())),
        LODE_UTIME_OMIT => return Ok(None),
        nsec => u64::try_from(nsec).ok().filter(|nsec| *nsec < 1_000_000_000),
    };
    let distance = Duration::from_secs(given.sec.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let second =
        if given.sec < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    let time = nsec.and_then(|nsec| second?.checked_add(Duration::from_nanos(nsec)));
    time.map(Some).ok_or(Failure::Argument(libc::EINVAL, "there is no such time"))
}
