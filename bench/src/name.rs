//! Paths that are ready before the clock runs: neither a number is printed nor memory taken
//! for one while something is measured.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path below the directory that is measured, without a `/` at its front.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name(CString);

impl Name {
    /// The path `text`, which has no zero byte.
    ///
    /// # Errors
    /// Where it has one.
    pub fn new(text: &str) -> io::Result<Self> {
        Ok(Self(CString::new(text)?))
    }

    /// The same for each number below `count`.
    ///
    /// # Errors
    /// As [`Name::new`].
    pub fn each(count: usize, text: impl Fn(usize) -> String) -> io::Result<Vec<Self>> {
        (0..count).map(|number| Self::new(&text(number))).collect()
    }

    /// As system calls take it.
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// As the standard library takes it.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.0.to_bytes()))
    }
}
