//! A moment at which the power may fail: what is durable for certain, and what may be.

use std::fmt;
use std::str::FromStr;

use lode_pmem::LINE_BYTES;

use super::{Pages, Site};

/// What a crash is: which stores survive it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Profile {
    /// Power fails, caches are lost (ADR): of each line some prefix of its cached stores, of
    /// streamed lines any of their words.
    #[default]
    Adr,
    /// Power fails, caches are saved (eADR, GPF): everything up to some store, in their order.
    Eadr,
    /// The kernel crashes or power fails over an ordinary file: each dirty 512-byte sector as it
    /// was after any of the stores since the last `msync`.
    File,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 3] = [Profile::Adr, Profile::Eadr, Profile::File];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Adr => "adr",
            Profile::Eadr => "eadr",
            Profile::File => "file",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == text);
        found.ok_or(format!("no profile is called {text:?}: it is adr, eadr or file"))
    }
}

/// How a store goes to the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the cache.
    Cached,
    /// Past the cache, each 8-byte word by itself.
    Words,
    /// Past the cache, in one piece.
    Whole,
}

/// A store that is not certain to be durable.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Position among all stores.
    pub number: u64,
    /// Offset of its line.
    pub line: u64,
    /// Its bytes in the line, one bit each.
    pub mask: u64,
    /// The line's bytes, where `mask` names them.
    pub bytes: [u8; LINE_BYTES],
    /// How it goes to the memory.
    pub way: Way,
    /// The code that stored it.
    pub site: Site,
    /// The thread that stored it.
    pub(super) thread: u64,
    /// The threads that started its line's write-back since.
    pub(super) written_back_by: u64,
}

/// A moment at which the power may fail.
#[derive(Clone, Debug)]
pub struct Point {
    /// The fence that was just about to take effect; `None` where there is none.
    pub fence: Option<Site>,
    /// What is durable for certain.
    pub durable: Pages,
    /// What may be, in the order of the stores.
    pub pending: Vec<Pending>,
    /// What [`super::Simulated::set_progress`] said last.
    pub progress: [usize; 2],
}
