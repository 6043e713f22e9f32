//! What can go wrong.

use core::fmt;

/// Result of a call of a heap.
pub type Result<T, E> = core::result::Result<T, Error<E>>;

/// Why a call of a heap failed; `E` is the error of its memory. Where nothing else is said, nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error<E> {
    /// The memory could not be used, or has no space left.
    Memory(E),
    /// What is there is no heap.
    NotAHeap,
    /// A heap of another version of the format.
    Version(u32),
    /// The memory ends before the heap does: bytes that there are, and that there should be.
    CutShort {
        /// That there are.
        bytes: u64,
        /// That the heap has in use.
        wanted: u64,
    },
    /// What is there is not what was stored.
    Damaged {
        /// Where.
        at: u64,
        /// What.
        what: Damage,
    },
    /// No word of a block, nor the root, is at this offset.
    NoPlace(u64),
    /// No block begins at this offset.
    NoBlock(u64),
    /// More than one change can have, or a size that no heap has room for.
    TooLarge,
    /// A former call could not store what it had begun: the heap has to be opened again.
    Failed,
}

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The heap's first line.
    Header,
    /// Records of the last changes.
    Records,
    /// What a page is used for.
    Page,
    /// Which slots of a page are in use.
    Slots,
    /// The root, which names no block.
    Root,
}

impl Damage {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Header => "the heap's header",
            Self::Records => "a record of a change",
            Self::Page => "what says what a page is used for",
            Self::Slots => "what says which slots of a page are used",
            Self::Root => "the root, which names no block",
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::NotAHeap => f.write_str("there is no heap"),
            Self::Version(version) => write!(f, "a heap of version {version}, which is not known"),
            Self::CutShort { bytes, wanted } => {
                write!(f, "the heap has {wanted} bytes, of which only {bytes} are there")
            }
            Self::Damaged { at, what } => write!(f, "damaged at offset {at}: {}", what.words()),
            Self::NoPlace(at) => write!(f, "no word of a block is at offset {at}"),
            Self::NoBlock(at) => write!(f, "no block begins at offset {at}"),
            Self::TooLarge => f.write_str("no heap has so large a block, or so long a change"),
            Self::Failed => f.write_str("a former change of the heap failed: open it again"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for Error<E> {}
