//! Places in the code, and what a mutant leaves out there.

use std::fmt;
use std::panic::Location;

use super::Stored;

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// File, as the compiler names it.
    pub file: &'static str,
    /// Line.
    pub line: u32,
}

impl Site {
    /// What is stored there.
    pub fn stores(&self) -> Stored {
        /// The code that handles the contents of files and attributes, and targets.
        const DATA: [&str; 4] = [
            "engine/src/file/",
            "engine/src/inode/journal.rs",
            "engine/src/namespace/create.rs",
            "testkit/src/maps.rs",
        ];
        let is_data = DATA.iter().any(|code| self.file.starts_with(code));
        if is_data { Stored::Data } else { Stored::Metadata }
    }

    /// The code that called the function this is called in.
    #[track_caller]
    pub(crate) fn of_caller() -> Self {
        let location = Location::caller();
        Self { file: location.file(), line: location.line() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An instruction that a mutant leaves out, wherever the code has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeftOut {
    /// Every fence of a place in the code.
    Fence(Site),
    /// Every write-back of a place in the code.
    WriteBack(Site),
}

impl LeftOut {
    /// The place.
    pub fn site(&self) -> Site {
        let (LeftOut::Fence(site) | LeftOut::WriteBack(site)) = self;
        *site
    }

    /// What is left out, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            LeftOut::Fence(_) => "fence",
            LeftOut::WriteBack(_) => "write-back",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without the {} of {}", self.kind(), self.site())
    }
}
