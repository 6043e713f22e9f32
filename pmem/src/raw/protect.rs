//! What keeps others out of a raw region between accesses.

use core::fmt;
use core::str::FromStr;

/// What keeps stray stores, and with some stray loads, out of a [`crate::RawRegion`] (PMBD, section IV.B).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtectIo {
    /// Nothing: the mapping is open all the time.
    None,
    /// A memory protection key: who writes may store, for as long as that takes; anybody may load.
    Key,
    /// The same, and loads are kept out, too.
    KeyRw,
    /// `mprotect` of the pages that are written, before and after: while one is written, the whole process may store there.
    Mprotect,
    /// Nothing is mapped but the pages that are read or written, for as long as that takes, at an address of their own.
    /// (A store to memory that has failed kills the process, as no mapping is there to be mended.)
    PrivateMap,
}

impl ProtectIo {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Key, Self::KeyRw, Self::Mprotect, Self::PrivateMap];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Key => "key",
            Self::KeyRw => "key-rw",
            Self::Mprotect => "mprotect",
            Self::PrivateMap => "private-map",
        }
    }
}

impl fmt::Display for ProtectIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`ProtectIo`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownProtectIo(String);

impl fmt::Display for UnknownProtectIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ProtectIo::ALL.map(ProtectIo::name).join(", ");
        write!(f, "no protection is called {:?}: it is one of {names}", self.0)
    }
}

impl core::error::Error for UnknownProtectIo {}

impl FromStr for ProtectIo {
    type Err = UnknownProtectIo;
    fn from_str(text: &str) -> Result<Self, UnknownProtectIo> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| UnknownProtectIo(text.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for one in ProtectIo::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        let error = "pkey".parse::<ProtectIo>().unwrap_err().to_string();
        assert!(error.contains("\"pkey\"") && error.contains("key-rw"), "{error}");
    }
}
