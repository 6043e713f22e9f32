//! How what is written to a raw region reaches the memory.

use core::fmt;
use core::str::FromStr;

use crate::flush::{CpuFeatures, FlushStrategy, LineStore, WriteBack};
use crate::region::RegionError;

/// How what is written to a [`crate::RawRegion`] reaches the memory (PMBD, section IV.C).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteScheme {
    /// Streamed past the caches, and a fence.
    Nt,
    /// Through the cache, each line written back at once, and a fence; lines may stay in the cache.
    Clwb,
    /// The same by `clflush`, which takes one line after the other out of the cache.
    Clflush,
    /// Through the cache: written back at the next barrier. (PMBD empties the whole cache then, which programs may not.)
    Cached,
}

impl WriteScheme {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nt, Self::Clwb, Self::Clflush, Self::Cached];

    fn name(self) -> &'static str {
        match self {
            Self::Nt => "nt",
            Self::Clwb => "clwb",
            Self::Clflush => "clflush",
            Self::Cached => "cached",
        }
    }

    /// What it does its work by: the best of this CPU, but for what its name says. (Blocks are many lines, and none of them need be durable
    /// in one piece.)
    pub(super) fn instructions(
        self,
        caches_survive: bool,
    ) -> Result<(LineStore, WriteBack), RegionError> {
        let cpu = CpuFeatures::get();
        let FlushStrategy::Instructions { line_store, write_back } =
            FlushStrategy::best(cpu, caches_survive)
        else {
            return Ok((LineStore::Sse2, WriteBack::Clflush));
        };
        let write_back = match self {
            Self::Clwb => WriteBack::Clwb,
            Self::Clflush => WriteBack::Clflush,
            Self::Nt | Self::Cached => write_back,
        };
        let strategy = FlushStrategy::Instructions { line_store, write_back };
        match strategy.missing_on(cpu) {
            Some(missing) => Err(RegionError::NoSuchInstruction { strategy, missing }),
            None => Ok((line_store.of_many(), write_back)),
        }
    }
}

impl fmt::Display for WriteScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`WriteScheme`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownScheme(String);

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = WriteScheme::ALL.map(WriteScheme::name).join(", ");
        write!(f, "no write scheme is called {:?}: it is one of {names}", self.0)
    }
}

impl core::error::Error for UnknownScheme {}

impl FromStr for WriteScheme {
    type Err = UnknownScheme;
    fn from_str(text: &str) -> Result<Self, UnknownScheme> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| UnknownScheme(text.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_stored_as_many_lines_are() {
        for one in WriteScheme::ALL {
            // (A CPU without the instruction has no such scheme.)
            let Ok((line_store, _)) = one.instructions(false) else { continue };
            assert_eq!(line_store, line_store.of_many(), "{one}");
        }
    }

    #[test]
    fn names_read_back() {
        for one in WriteScheme::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        let error = "wbinvd".parse::<WriteScheme>().unwrap_err().to_string();
        assert!(error.contains("\"wbinvd\"") && error.contains("clflush"), "{error}");
    }
}
