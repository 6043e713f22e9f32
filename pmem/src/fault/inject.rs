//! Bad memory on request, for tests: lines that a region refuses to load, and pages that the kernel does.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::Medium;
use crate::region::Mapped;

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_POISON: libc::c_ulong = 0xc020_aa08;
const FEATURE_POISON: u64 = 1 << 14;
const REGISTER_MISSING: u64 = 1;
const PAGE: usize = 4096;
/// How often a page is tried that others touch meanwhile.
const TRIES_MAX: u32 = 1000;

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioPoison {
    start: u64,
    len: u64,
    mode: u64,
    updated: i64,
}

/// The process's own, which is never closed: the poison goes with it.
fn userfaultfd() -> io::Result<libc::c_int> {
    static OPENED: Mutex<Option<libc::c_int>> = Mutex::new(None);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(fd) = *opened {
        return Ok(fd);
    }
    let mut api = UffdioApi { api: UFFD_API, features: FEATURE_POISON, ioctls: 0 };
    // SAFETY: the struct is the one that the call takes.
    let outcome = unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as libc::c_int;
        if fd < 0 || libc::ioctl(fd, UFFDIO_API, &mut api) != 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(fd)
        }
    };
    *opened = outcome.as_ref().ok().copied();
    outcome
}

impl Mapped {
    /// For tests: from now on the lines that `at .. at + len` touches can't be loaded, until they are stored as wholes.
    ///
    /// # Errors
    /// Where the region has no file or no such bytes, or too many pages are bad already.
    pub fn inject_bad_lines(&self, at: u64, len: u64) -> io::Result<()> {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.bytes);
        let noted = self.bad.as_ref().is_some_and(|bad| is_inside && bad.note_range(at, len));
        if noted { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// For tests: from now on the page at `at` is poisoned in this mapping: the kernel answers each access by SIGBUS. (So it stays
    /// until it is mapped anew; the file's own bytes are as they were.)
    ///
    /// # Errors
    /// Of the system, where it makes no poison.
    pub fn inject_poison(&self, at: u64) -> io::Result<()> {
        let is_inside = at.is_multiple_of(PAGE as u64) && at < self.bytes;
        if !is_inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = self.as_ptr() as u64 + at;
        let check = |outcome: libc::c_int| match outcome {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        let mut register =
            UffdioRegister { start, len: PAGE as u64, mode: REGISTER_MISSING, ioctls: 0 };
        let fd = userfaultfd()?;
        // SAFETY: the structs are those that the calls take. A page of a shared mapping that is dropped comes back from
        // its file.
        unsafe {
            check(libc::ioctl(fd, UFFDIO_REGISTER, &mut register))?;
            for _ in 0..TRIES_MAX {
                check(libc::madvise(start as *mut libc::c_void, PAGE, libc::MADV_DONTNEED))?;
                let mut poison = UffdioPoison { start, len: PAGE as u64, mode: 0, updated: 0 };
                match check(libc::ioctl(fd, UFFDIO_POISON, &mut poison)) {
                    // It is poisoned already, or somebody has touched it between the two.
                    Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                        if self.load_word(at).is_err() {
                            return Ok(());
                        }
                    }
                    outcome => return outcome,
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}
