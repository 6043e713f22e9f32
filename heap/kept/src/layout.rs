//! What is where in a heap.
//!
//! ```text
//!      0  header: magic (8), version (4), log2 of the chunk (4), id (8), zeros, seal (8)
//!     64  root
//!    128  chunks in use
//!    192  number of the last change that needs no record any more
//!    256  record of changes with an even number       512  with an odd one
//!   4096  table of the first chunk
//!   8192  pages of it
//! chunk n: its table, then its pages
//! ```
//!
//! A chunk's table has a word for each of its pages: 0 where no block begins there, or what does.

use lode_pmem::crc32c;

use crate::error::Damage;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const LINE: u64 = 64;
pub(crate) const WORD: u64 = 8;

/// Bytes of the pieces that a heap grows by, unless others were asked for.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// The least there are.
pub const CHUNK_BYTES_LEAST: u64 = 1 << CHUNK_SHIFT_LEAST;
/// The most there are: a table is a page.
pub const CHUNK_BYTES_MOST: u64 = CHUNK_BYTES;
const CHUNK_SHIFT_LEAST: u32 = 14;
const CHUNK_SHIFT_MOST: u32 = 21;

/// Where the root is: a place to publish a block in, as a word of a block is.
pub const ROOT: u64 = 64;
pub(crate) const CHUNKS: u64 = 128;
pub(crate) const SETTLED: u64 = 192;
pub(crate) const RECORDS: [u64; 2] = [256, 512];

const MAGIC: [u8; 8] = *b"LodeHeap";
const VERSION: u32 = 1;
const SEAL_AT: usize = 56;

/// The shape of a heap, which its first line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    chunk_shift: u32,
    /// No two heaps have the same: seals begin with it.
    pub(crate) id: u64,
}

/// What is wrong with a first line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    NotAHeap,
    Version(u32),
    Damaged,
}

impl Shape {
    /// A heap that grows by so many bytes: a power of two within what there is, or the nearest.
    pub(crate) fn new(chunk_bytes: u64, id: u64) -> Self {
        let bytes = chunk_bytes.clamp(CHUNK_BYTES_LEAST, CHUNK_BYTES_MOST);
        Self { chunk_shift: bytes.ilog2(), id }
    }

    pub(crate) fn chunk_bytes(self) -> u64 {
        1 << self.chunk_shift
    }

    pub(crate) fn chunk_pages(self) -> u64 {
        self.chunk_bytes() / PAGE
    }

    /// The page of a chunk's table.
    pub(crate) fn table(self, chunk: u64) -> u64 {
        chunk * self.chunk_pages() + u64::from(chunk == 0)
    }

    /// The first page of a chunk that may be a block's.
    pub(crate) fn first_page(self, chunk: u64) -> u64 {
        self.table(chunk) + 1
    }

    /// The page behind a chunk.
    pub(crate) fn end_page(self, chunk: u64) -> u64 {
        (chunk + 1) * self.chunk_pages()
    }

    /// Where the word of a page is.
    pub(crate) fn word_of(self, page: u64) -> u64 {
        let chunk = page / self.chunk_pages();
        self.table(chunk) * PAGE + page % self.chunk_pages() * WORD
    }

    /// The first line of a heap.
    pub(crate) fn header(self) -> [u8; LINE as usize] {
        let mut line = [0; LINE as usize];
        let fields = MAGIC.into_iter().chain(VERSION.to_le_bytes());
        let fields = fields.chain(self.chunk_shift.to_le_bytes()).chain(self.id.to_le_bytes());
        line.iter_mut().zip(fields).for_each(|(to, byte)| *to = byte);
        let seal = u64::from(crc32c(0, line.get(..SEAL_AT).unwrap_or_default()));
        let sealed = line.iter_mut().skip(SEAL_AT).zip(seal.to_le_bytes());
        sealed.for_each(|(to, byte)| *to = byte);
        line
    }

    /// The shape that a first line says.
    pub(crate) fn parse(line: &[u8; LINE as usize]) -> Result<Self, Wrong> {
        let word = |at: usize| {
            let bytes = line.get(at..).and_then(|rest| rest.first_chunk::<8>());
            u64::from_le_bytes(bytes.copied().unwrap_or_default())
        };
        if word(0) != u64::from_le_bytes(MAGIC) {
            return Err(Wrong::NotAHeap);
        }
        let version = word(8) as u32;
        if version != VERSION {
            return Err(Wrong::Version(version));
        }
        let shape = Self { chunk_shift: (word(8) >> 32) as u32, id: word(16) };
        let fits = (CHUNK_SHIFT_LEAST..=CHUNK_SHIFT_MOST).contains(&shape.chunk_shift);
        if fits && shape.header() == *line { Ok(shape) } else { Err(Wrong::Damaged) }
    }
}

/// What begins at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// No block, or what began before.
    Nothing,
    /// A page of slots of this class.
    Slots(u8),
    /// A block of so many pages.
    Pages(u32),
    /// So many pages that were one, or will be, and are nobody's: before they are free the tables among them are to be zeroed.
    Dying(u32),
}

impl Use {
    /// As the word at `at` of the heap of this id.
    pub(crate) fn word(self, at: u64, id: u64) -> u64 {
        let low = match self {
            Self::Nothing => return 0,
            Self::Slots(class) => 1 | u64::from(class) << 8,
            Self::Pages(pages) => 2 | u64::from(pages) << 8,
            Self::Dying(pages) => 3 | u64::from(pages) << 8,
        };
        low | check(low, at, id) << 48
    }

    /// What the word at `at` says.
    pub(crate) fn parse(word: u64, at: u64, id: u64) -> Result<Self, Damage> {
        let value = word >> 8 & u64::from(u32::MAX);
        let parsed = match word & 0xFF {
            0 => Self::Nothing,
            1 if value < CLASSES as u64 => Self::Slots(value as u8),
            2 if value > 0 => Self::Pages(value as u32),
            3 if value > 0 => Self::Dying(value as u32),
            _ => return Err(Damage::Page),
        };
        if parsed.word(at, id) == word { Ok(parsed) } else { Err(Damage::Page) }
    }
}

/// A number of fewer than 48 bits as the word at `at` of the heap of this id.
pub(crate) fn sealed(number: u64, at: u64, id: u64) -> u64 {
    number | check(number, at, id) << 48
}

/// The number that such a word is, if it is one.
pub(crate) fn unsealed(word: u64, at: u64, id: u64) -> Option<u64> {
    let number = word & (u64::MAX >> 16);
    (sealed(number, at, id) == word).then_some(number)
}

fn check(low: u64, at: u64, id: u64) -> u64 {
    let seed = crc32c(crc32c(0, &id.to_le_bytes()), &at.to_le_bytes());
    u64::from(crc32c(seed, &low.to_le_bytes())) & 0xFFFF
}

/// Bytes of slots, by class: what fits a page behind its first line, which says by bits which slots are used.
const SLOT_BYTES: [u64; CLASSES] =
    [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 672, 1008, 1344, 2016];
pub(crate) const CLASSES: usize = 14;
/// Words of those bits.
pub(crate) const BIT_WORDS: usize = 4;
/// The largest block that is a slot; larger ones are pages.
pub const SMALL_MOST: u64 = 2016;

/// The smallest class of slots that so many bytes fit.
pub(crate) fn class_of(bytes: u64) -> Option<u8> {
    SLOT_BYTES.iter().position(|slot| bytes <= *slot).map(|class| class as u8)
}

pub(crate) fn slot_bytes(class: u8) -> u64 {
    SLOT_BYTES.get(usize::from(class)).copied().unwrap_or(SMALL_MOST)
}

/// Slots of a page.
pub(crate) fn slots(class: u8) -> u64 {
    (PAGE - LINE) / slot_bytes(class)
}

/// Where a slot is.
pub(crate) fn slot_at(page: u64, class: u8, slot: u64) -> u64 {
    page * PAGE + LINE + slot * slot_bytes(class)
}
