//! Errors: of this library, and as SQLite's codes.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libsqlite3_sys as ffi;

/// Why a pool could not be registered.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The name of a VFS is empty or has a NUL.
    #[error("{0:?} can't be the name of a VFS")]
    BadName(String),
    /// There is a VFS of this name.
    #[error("there is a VFS {0:?} already")]
    Taken(String),
    /// The pool is opened `relaxed`: overwrites may be torn by a crash, those of journals too.
    #[error("a pool that is opened relaxed can't have databases: overwrites may be torn there")]
    Relaxed,
    /// The pool can't be used.
    #[error(transparent)]
    Pool(#[from] lode::Error),
    /// SQLite refused.
    #[error("SQLite refused the VFS with code {0}")]
    Refused(i32),
}

/// Result of a call for SQLite: else one of its codes.
pub(crate) type Outcome<T> = Result<T, c_int>;

thread_local! {
    /// Error number of the last call that failed.
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// The error number of this thread's last call that failed.
pub(crate) fn last_errno() -> i32 {
    LAST.get()
}

/// The code for an error; `otherwise` where no code says more than what was tried.
#[cold]
pub(crate) fn code(error: &lode::Error, otherwise: c_int) -> c_int {
    LAST.set(error.errno());
    let code = match error.errno() {
        libc::ENOSPC | libc::EDQUOT => ffi::SQLITE_FULL,
        libc::ENOMEM => ffi::SQLITE_IOERR_NOMEM,
        _ if error.corruption().is_some() => ffi::SQLITE_IOERR_CORRUPTFS,
        _ => otherwise,
    };
    if otherwise != ffi::SQLITE_CANTOPEN && code != ffi::SQLITE_FULL {
        log(code, &error.to_string());
    }
    code
}

/// Says something to who listens to SQLite (`SQLITE_CONFIG_LOG`).
fn log(code: c_int, text: &str) {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the format takes one string, which lives as long as the call.
    unsafe { ffi::sqlite3_log(code, c"lode: %s".as_ptr(), text.as_ptr()) };
}

/// Answers SQLite: a panic must not cross into C, and is an error there.
#[inline]
pub(crate) fn answer(panicked: c_int, work: impl FnOnce() -> Outcome<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => ffi::SQLITE_OK,
        Ok(Err(code)) => code,
        Err(_) => panicked,
    }
}

/// A path as SQLite gives it.
pub(crate) fn path(name: &CStr) -> &std::path::Path {
    std::ffi::OsStr::from_bytes(name.to_bytes()).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_the_call() {
        assert_eq!(answer(ffi::SQLITE_IOERR_READ, || panic!("on purpose")), ffi::SQLITE_IOERR_READ);
        assert_eq!(answer(ffi::SQLITE_IOERR_READ, || Err(ffi::SQLITE_FULL)), ffi::SQLITE_FULL);
        assert_eq!(answer(ffi::SQLITE_IOERR_READ, || Ok(())), ffi::SQLITE_OK);
    }
}
