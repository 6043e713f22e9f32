//! The version.

use std::ffi::{c_char, c_int};

/// The first number of the version that this header is of.
pub const LODE_VERSION_MAJOR: c_int = 0;
/// The second number.
pub const LODE_VERSION_MINOR: c_int = 1;
/// The third number.
pub const LODE_VERSION_PATCH: c_int = 0;

/// The version of the library that the program runs with, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn lode_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version() {
        let version = [LODE_VERSION_MAJOR, LODE_VERSION_MINOR, LODE_VERSION_PATCH];
        let version = version.map(|number| number.to_string()).join(".");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}
