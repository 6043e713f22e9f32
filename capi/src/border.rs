//! The way out: values that say "failed", `errno`, and the text of the last error. No panic goes past.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
pub(crate) enum Failure {
    /// The library said so.
    Library(lode::Error),
    /// The system's number says it all.
    Number(i32),
    /// An argument can't be right.
    Argument(i32, &'static str),
    /// The call panicked.
    Panicked,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    fn errno(&self) -> i32 {
        match self {
            Self::Library(error) => error.errno(),
            Self::Number(number) | Self::Argument(number, _) => *number,
            Self::Panicked => libc::EIO,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error) => error.fmt(f),
            Self::Number(number) => io::Error::from_raw_os_error(*number).fmt(f),
            Self::Argument(_, text) => f.write_str(text),
            Self::Panicked => f.write_str("the call panicked: this is an error of the library's"),
        }
    }
}

impl From<lode::Error> for Failure {
    fn from(error: lode::Error) -> Self {
        Self::Library(error)
    }
}

/// Of std's traits, which the library's files have.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if let Some(number) = error.raw_os_error() {
            return Self::Number(number);
        }
        error.downcast().map_or(Self::Number(libc::EIO), Self::Library)
    }
}

/// What went wrong last in a thread.
struct Last {
    failure: Option<Failure>,
    /// Its text, once somebody has asked.
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { failure: None, text: None }) };
}

/// Does the work of a call; returns `failed`, with `errno` set, if it fails or panics.
#[inline]
pub(crate) fn call<T>(failed: T, work: impl FnOnce() -> Outcome<T>) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            // Whatever it is, dropping it might panic again.
            std::mem::forget(payload);
            Failure::Panicked
        }
    };
    fail(failure);
    failed
}

#[cold]
fn fail(failure: Failure) {
    let number = failure.errno();
    // A thread that is at its end has no place for texts any more.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = Last { failure: Some(failure), text: None };
        }
    });
    // Last: what was dropped may have set it.
    set_errno(number);
}

/// Sets `errno`.
pub(crate) fn set_errno(number: i32) {
    // SAFETY: the address is this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = number };
}

/// What went wrong when a call of this thread failed last, as a sentence without an end: with the paths
/// it was about, and for a damaged pool what is damaged, which `errno` can't say. Empty if none
/// has failed. It is valid until this thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn lode_last_error() -> *const c_char {
    let text = LAST.try_with(|last| {
        let mut last = last.try_borrow_mut().ok()?;
        let Last { failure, text } = &mut *last;
        let failure = failure.as_ref()?;
        // C's strings end at the first NUL; none is in it but by a path of the library's own.
        let made = text.get_or_insert_with(|| {
            CString::new(failure.to_string().replace('\0', "\u{fffd}")).unwrap_or_default()
        });
        Some(made.as_ptr())
    });
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn errno() -> i32 {
        io::Error::last_os_error().raw_os_error().unwrap()
    }

    fn text() -> String {
        // SAFETY: the text is valid until this thread's next call that fails.
        unsafe { CStr::from_ptr(lode_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_an_error_and_goes_no_further() {
        assert_eq!(call(-1, || -> Outcome<i32> { panic!("on purpose") }), -1);
        assert_eq!(errno(), libc::EIO);
        assert!(text().contains("panicked"), "{}", text());
    }

    #[test]
    fn a_panic_whose_payload_panics_goes_no_further() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        assert_eq!(call(-1, || std::panic::panic_any(Bomb)), -1);
        assert_eq!(errno(), libc::EIO);
    }

    #[test]
    fn each_thread_has_its_last_error_until_the_next_one() {
        assert_eq!(text(), "");
        call(0, || Err(Failure::Argument(libc::EINVAL, "first")));
        let first = lode_last_error();
        assert_eq!(call(7, || Ok(8)), 8);
        assert_eq!((text().as_str(), lode_last_error()), ("first", first));
        std::thread::spawn(|| assert_eq!(text(), "")).join().unwrap();
        call(0, || Err(Failure::Number(libc::ENOENT)));
        assert_eq!(errno(), libc::ENOENT);
        assert!(text().contains("No such file"), "{}", text());
    }

    #[test]
    fn errors_by_way_of_std_keep_their_number_and_text() {
        let pool = lode::PoolOptions::new().in_memory(16 << 20).unwrap();
        let error = || pool.open_file("gone").unwrap_err();
        let plain = Failure::from(io::Error::from(error()));
        assert_eq!(plain.errno(), libc::ENOENT);
        let carried = Failure::from(io::Error::other(error()));
        assert_eq!((carried.errno(), carried.to_string()), (libc::ENOENT, error().to_string()));
        assert_eq!(Failure::from(io::Error::other("foreign")).errno(), libc::EIO);
    }
}
