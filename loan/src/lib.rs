//! What a pool's owner and the programs that it lends memory to say to each other.
//!
//! A program connects to the owner's control socket and sends one line, [`hello`]. The answer is a line of
//! JSON, which a descriptor of the pool's file comes with. From then on both sides send *frames*: a head
//! of [`HEAD_BYTES`] bytes, then as many numbers of chunks as it says, 8 bytes each, all little-endian.
//!
//! ```text
//!   0      1        4       8           16
//!  +------+--------+-------+-----------+----------+----------+--
//!  | kind | 0 0 0  | count | tag       | chunk    | chunk    | ...   only where the kind has a list
//!  +------+--------+-------+-----------+----------+----------+--
//! ```
//!
//! What is said of a kept heap is [`kept`]'s.
//!
//! What this crate guarantees: it allocates nothing, so that an allocator can speak through it, and whatever
//! bytes come in, [`Head::parse`] gives a head whose list fits [`CHUNKS_MOST`], or an error.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod kept;

/// Version of what is said: raised when a frame changes its meaning.
pub const VERSION: u32 = 1;
/// Bytes of a chunk, which memory is lent by: aligned in the region, too.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// The most chunks in one frame: 1 GiB.
pub const CHUNKS_MOST: u32 = 512;
/// Bytes of a frame without its list.
pub const HEAD_BYTES: usize = 16;
/// Bytes of the longest frame.
pub const FRAME_BYTES_MOST: usize = HEAD_BYTES + 8 * CHUNKS_MOST as usize;

/// Where chunks come from (Oikawa 2014, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    /// Free pages.
    #[default]
    Direct,
    /// Files that are set aside, without names.
    Indirect,
    /// A file of the program's own, mapped.
    Mmap,
}

impl Method {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Indirect, Self::Mmap];

    /// Its name, as it is said and written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Indirect => "indirect",
            Self::Mmap => "mmap",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// The line a program begins with.
pub const fn hello(method: Method) -> &'static str {
    match method {
        Method::Direct => "{\"op\":\"heap\",\"version\":1,\"method\":\"direct\"}\n",
        Method::Indirect => "{\"op\":\"heap\",\"version\":1,\"method\":\"indirect\"}\n",
        Method::Mmap => "{\"op\":\"heap\",\"version\":1,\"method\":\"mmap\"}\n",
    }
}

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// From a program: it wants `count` chunks. Answered by [`Kind::Granted`] or [`Kind::Refused`].
    Take = 1,
    /// From a program: it has unmapped and unlocked these chunks. Answered by [`Kind::Returned`] or [`Kind::Refused`].
    Return = 2,
    /// From a program whose former owner is gone: it has these chunks, locked. Answered by [`Kind::Held`] with those that are its.
    Hold = 3,
    /// From a program: it has given back what it could of the wish with this tag; `count` chunks.
    Spared = 4,
    /// To a program: these chunks are its, zeroed, and locked for it; fewer than it wanted, perhaps, but one at least.
    Granted = 16,
    /// To a program: it can't be; `count` is a [`Refusal`].
    Refused = 17,
    /// To a program: what it gave back has been taken; `count` chunks.
    Returned = 18,
    /// To a program: those of the chunks it holds that are its.
    Held = 19,
    /// To a program, of the owner's own accord: files want `count` chunks; it is to give back what it holds unused.
    Wish = 20,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Take,
        Self::Return,
        Self::Hold,
        Self::Spared,
        Self::Granted,
        Self::Refused,
        Self::Returned,
        Self::Held,
        Self::Wish,
    ];

    /// Whether `count` chunks follow the head.
    pub const fn has_list(self) -> bool {
        matches!(self, Self::Return | Self::Hold | Self::Granted | Self::Held)
    }
}

/// Why something is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Refusal {
    /// The pool has no chunk left that files leave.
    NoSpace = 1,
    /// The program has as much as one program may have.
    ProgramLimit = 2,
    /// All programs together have as much as may be lent.
    HeapLimit = 3,
    /// A chunk that is not this program's.
    NotYours = 4,
    /// A number that means nothing.
    Invalid = 5,
    /// The owner is ending.
    Ending = 6,
}

impl Refusal {
    /// The one of this number.
    pub fn of_number(number: u32) -> Option<Self> {
        let all = [
            Self::NoSpace,
            Self::ProgramLimit,
            Self::HeapLimit,
            Self::NotYours,
            Self::Invalid,
            Self::Ending,
        ];
        all.into_iter().find(|refusal| *refusal as u32 == number)
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoSpace => "the pool has no memory left to lend",
            Self::ProgramLimit => "the program has as much memory as one may have",
            Self::HeapLimit => "all programs together have as much memory as may be lent",
            Self::NotYours => "the memory is not this program's",
            Self::Invalid => "the message means nothing",
            Self::Ending => "the owner of the pool is ending",
        }
    }
}

/// What is wrong with bytes that came in. Who gets such bytes closes the connection: nothing says where
/// the next frame begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// No such kind of frame.
    Kind(u8),
    /// Bytes that have to be zero are not.
    Reserved,
    /// More chunks than a frame may have.
    TooMany(u32),
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "no frame is of kind {kind}"),
            Self::Reserved => f.write_str("bytes of a frame that have to be zero are not"),
            Self::TooMany(count) => {
                write!(f, "a frame of {count} chunks, where {CHUNKS_MOST} is the most")
            }
        }
    }
}

impl core::error::Error for Malformed {}

/// The bytes that every frame begins with, of what is in them.
fn joined(kind: u8, count: u32, value: u64) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    let (count, value) = (count.to_le_bytes(), value.to_le_bytes());
    let parts = [kind, 0, 0, 0].into_iter().chain(count).chain(value);
    bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    bytes
}

/// What is in such bytes.
fn parted(bytes: &[u8; HEAD_BYTES]) -> Result<(u8, u32, u64), Malformed> {
    let &[kind, zero0, zero1, zero2, c0, c1, c2, c3, ref value @ ..] = bytes;
    if [zero0, zero1, zero2] != [0; 3] {
        return Err(Malformed::Reserved);
    }
    Ok((kind, u32::from_le_bytes([c0, c1, c2, c3]), u64::from_le_bytes(*value)))
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// What it says.
    pub kind: Kind,
    /// Chunks, or what else the kind counts.
    pub count: u32,
    /// What an answer repeats of what it answers.
    pub tag: u64,
}

impl Head {
    /// As bytes.
    pub fn bytes(self) -> [u8; HEAD_BYTES] {
        joined(self.kind as u8, self.count, self.tag)
    }

    /// The head that these bytes are.
    ///
    /// # Errors
    /// [`Malformed`]; nothing that comes behind such bytes means anything.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Self, Malformed> {
        let (kind, count, tag) = parted(bytes)?;
        let named = Kind::ALL.into_iter().find(|named| *named as u8 == kind);
        let kind = named.ok_or(Malformed::Kind(kind))?;
        if kind.has_list() && count > CHUNKS_MOST {
            return Err(Malformed::TooMany(count));
        }
        Ok(Self { kind, count, tag })
    }

    /// Bytes of the list behind it.
    pub const fn list_bytes(self) -> usize {
        if self.kind.has_list() { 8 * self.count as usize } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        for kind in Kind::ALL {
            let head = Head { kind, count: 7, tag: 0x0102_0304_0506_0708 };
            assert_eq!(Head::parse(&head.bytes()), Ok(head));
        }
        let head = Head { kind: Kind::Granted, count: 2, tag: 1 };
        assert_eq!(head.bytes(), [16, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((head.list_bytes(), Head { kind: Kind::Take, ..head }.list_bytes()), (16, 0));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let good = Head { kind: Kind::Return, count: CHUNKS_MOST, tag: 0 }.bytes();
        assert!(Head::parse(&good).is_ok());
        for kind in (0..=255).filter(|kind| Kind::ALL.iter().all(|known| *known as u8 != *kind)) {
            let mut bytes = good;
            bytes[0] = kind;
            assert_eq!(Head::parse(&bytes), Err(Malformed::Kind(kind)));
        }
        for at in 1..4 {
            let mut bytes = good;
            bytes[at] = 1;
            assert_eq!(Head::parse(&bytes), Err(Malformed::Reserved));
        }
        let long = Head { kind: Kind::Return, count: CHUNKS_MOST + 1, tag: 0 };
        assert_eq!(Head::parse(&long.bytes()), Err(Malformed::TooMany(CHUNKS_MOST + 1)));
        // What has no list may count as far as it likes.
        let wish = Head { kind: Kind::Wish, count: u32::MAX, tag: 0 };
        assert_eq!(Head::parse(&wish.bytes()), Ok(wish));
    }

    #[test]
    fn methods_have_one_name() {
        for method in Method::ALL {
            assert_eq!(Method::of_name(method.name()), Some(method));
            let line = hello(method);
            assert!(
                line.contains(&format!("\"version\":{VERSION},\"method\":\"{}\"", method.name()))
            );
        }
        assert_eq!(Method::of_name("Direct"), None);
    }

    #[test]
    fn refusals_have_numbers() {
        for number in 0..10 {
            let known = Refusal::of_number(number);
            assert_eq!(known.is_some(), (1..=6).contains(&number));
            assert!(known.is_none_or(|refusal| refusal as u32 == number));
        }
    }
}
