//! Opening and closing files.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;

use lode::{File, OpenOptions, Pool};

use crate::border::{Failure, Outcome, call};
use crate::pointers::{handle, path, take};
use crate::pool::{lode_pool, with};

/// An open file, or directory. It keeps its contents, named or not, and the pool open.
pub struct lode_file {
    file: File,
    /// What was asked for: the library makes and empties files for writers only.
    reads: bool,
    writes: bool,
}

/// O_RDONLY.
pub const LODE_O_RDONLY: c_int = 0;
/// O_WRONLY.
pub const LODE_O_WRONLY: c_int = 1;
/// O_RDWR.
pub const LODE_O_RDWR: c_int = 2;
/// O_CREAT.
pub const LODE_O_CREAT: c_int = 0x40;
/// O_EXCL.
pub const LODE_O_EXCL: c_int = 0x80;
/// O_TRUNC.
pub const LODE_O_TRUNC: c_int = 0x200;
/// O_APPEND.
pub const LODE_O_APPEND: c_int = 0x400;
/// O_DIRECTORY.
pub const LODE_O_DIRECTORY: c_int = 0x1_0000;
/// O_NOFOLLOW.
pub const LODE_O_NOFOLLOW: c_int = 0x2_0000;
/// O_NOATIME.
pub const LODE_O_NOATIME: c_int = 0x4_0000;
/// O_TMPFILE.
pub const LODE_O_TMPFILE: c_int = 0x41_0000;

const _: () = assert!(
    LODE_O_RDONLY == libc::O_RDONLY
        && LODE_O_WRONLY == libc::O_WRONLY
        && LODE_O_RDWR == libc::O_RDWR
        && LODE_O_CREAT == libc::O_CREAT
        && LODE_O_EXCL == libc::O_EXCL
        && LODE_O_TRUNC == libc::O_TRUNC
        && LODE_O_APPEND == libc::O_APPEND
        && LODE_O_DIRECTORY == libc::O_DIRECTORY
        && LODE_O_NOFOLLOW == libc::O_NOFOLLOW
        && LODE_O_NOATIME == libc::O_NOATIME
        && LODE_O_TMPFILE == libc::O_TMPFILE
);

/// Flags that [`OpenOptions`] have words for.
const WORDS: c_int = libc::O_ACCMODE | LODE_O_CREAT | LODE_O_EXCL | LODE_O_TRUNC | LODE_O_APPEND;

impl lode_file {
    /// One that is to be read.
    pub(crate) fn to_read(file: File) -> Self {
        Self { file, reads: true, writes: false }
    }

    /// The file, for whatever needs neither right.
    pub(crate) fn any(&self) -> &File {
        &self.file
    }

    /// To be read.
    #[inline]
    pub(crate) fn readable(&self) -> Outcome<&File> {
        if self.reads { Ok(&self.file) } else { Err(Failure::Number(libc::EBADF)) }
    }

    /// To be written.
    #[inline]
    pub(crate) fn writable(&self) -> Outcome<&File> {
        if self.writes { Ok(&self.file) } else { Err(Failure::Number(libc::EBADF)) }
    }
}

/// Calls `work` with a file.
///
/// # Safety
/// As for [`handle`].
#[inline]
pub(crate) unsafe fn with_file<T>(
    file: *mut lode_file,
    failed: T,
    work: impl FnOnce(&lode_file) -> Outcome<T>,
) -> T {
    // SAFETY: the caller's promise is this one.
    call(failed, || work(unsafe { handle(file) }?))
}

/// Opens a file of a pool as open(2) does. Paths begin at the pool's root, whether or not they begin with
/// a slash. `mode` is for a file that is made (less the umask), and counts for nothing else.
///
/// The flags are those of <fcntl.h>, or LODE_O_... if you don't have it; those that ask for what is so anyway
/// (O_SYNC, O_CLOEXEC, O_NONBLOCK, ...) are let through, unknown ones refused (EINVAL). With O_TMPFILE `name` is a
/// directory, and the file has no name until lode_flink() gives it one; with O_EXCL, too, it never gets one (ENOENT).
///
/// Returns NULL with errno as open(2); ENXIO for devices, FIFOs and sockets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_open(
    pool: *mut lode_pool,
    name: *const c_char,
    flags: c_int,
    mode: u32,
) -> *mut lode_file {
    let work = |pool: &Pool| {
        // SAFETY: a string, by C's promise.
        let name = unsafe { path(name) }?;
        let tmpfile = flags & LODE_O_TMPFILE == LODE_O_TMPFILE;
        let file = if tmpfile { open_nameless } else { open_named }(pool, name, flags, mode)?;
        Ok(Box::into_raw(Box::new(file)))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, null_mut(), work) }
}

/// Closes a file. `file` can't be used any more, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_close(file: *mut lode_file) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(file) }?);
        Ok(0)
    })
}

/// Whether flags ask to read, and to write.
fn access(flags: c_int) -> Outcome<(bool, bool)> {
    match flags & libc::O_ACCMODE {
        LODE_O_RDONLY => Ok((true, false)),
        LODE_O_WRONLY => Ok((false, true)),
        LODE_O_RDWR => Ok((true, true)),
        _ => Err(Failure::Argument(libc::EINVAL, "the flags have no access mode")),
    }
}

/// Opens by name, with the combinations of flags that std refuses and the system does not.
fn open_named(pool: &Pool, name: &Path, flags: c_int, mode: u32) -> Outcome<lode_file> {
    let (reads, writes) = access(flags)?;
    let has = |flag| flags & flag != 0;
    let (creates, empties) = (has(LODE_O_CREAT), has(LODE_O_TRUNC));
    let exclusive = creates && has(LODE_O_EXCL);
    let appends = writes && has(LODE_O_APPEND);
    let mut options = OpenOptions::new();
    options.read(reads).write(writes || creates || empties).append(appends);
    options.create(creates).create_new(exclusive).truncate(empties && !appends);
    options.mode(mode & 0o7777).custom_flags(flags & !WORDS);
    let file = match pool.open_with(name, &options) {
        // Who only reads, and would make the file, reads in a read-only pool what is there.
        Err(error) if error.errno() == libc::EROFS && !writes && !exclusive && !empties => {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags & !WORDS);
            pool.open_with(name, &options).map_err(|_| error)?
        }
        opened => opened?,
    };
    if appends && empties && !exclusive {
        file.set_len(0)?;
    }
    Ok(lode_file { file, reads, writes })
}

/// Makes a file without a name. (To empty it is to do nothing.)
fn open_nameless(pool: &Pool, dir: &Path, flags: c_int, mode: u32) -> Outcome<lode_file> {
    let (reads, writes) = access(flags)?;
    if !writes || flags & LODE_O_CREAT != 0 {
        return Err(Failure::Argument(libc::EINVAL, "O_TMPFILE is not for these flags"));
    }
    let mut options = OpenOptions::new();
    options.read(reads).write(true).append(flags & LODE_O_APPEND != 0);
    options.mode(mode & 0o7777).custom_flags(flags & (!WORDS | LODE_O_EXCL));
    Ok(lode_file { file: pool.open_with(dir, &options)?, reads, writes })
}
