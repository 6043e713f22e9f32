//! What is said of a kept heap: a file of the pool that one program has as its memory.
//!
//! A program begins with one line, [`Hello`]; the answer is a line with the bytes that the file has, which a descriptor of the pool's file comes with. From then
//! on it is asked and answered, one after the other, by frames of [`FRAME_BYTES`], little-endian; behind [`Kind::Extents`] there are as many pairs of
//! offset in the region and length.
//!
//! ```text
//!   0      1        4       8           16
//!  +------+--------+-------+-----------+
//!  | kind | 0 0 0  | count | value     |
//!  +------+--------+-------+-----------+
//! ```

use core::fmt;

use crate::{HEAD_BYTES, Malformed, joined, parted};

/// Version of what is said: raised when a frame changes its meaning.
pub const VERSION: u32 = 1;
/// Bytes of a frame without its list.
pub const FRAME_BYTES: usize = HEAD_BYTES;
/// Bytes of an offset with a length.
pub const EXTENT_BYTES: usize = 16;
/// The most extents in one frame.
pub const EXTENTS_MOST: u32 = 256;
/// Bytes of the longest path.
pub const PATH_MOST: usize = 4095;

/// The line a program begins with, for the file at this path of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a>(pub &'a str);

impl fmt::Display for Hello<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{\"op\":\"kept\",\"version\":{VERSION},\"path\":\"")?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                letter if letter < ' ' => write!(f, "\\u{:04x}", letter as u32)?,
                letter => write!(f, "{letter}")?,
            }
        }
        f.write_str("\"}\n")
    }
}

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// From a program: the file is to have `value` bytes, backed with zeros. Answered by [`Kind::Done`] or [`Kind::Refused`].
    Grow = 1,
    /// From a program: where is it, from what it was told before up to byte `value`? Answered by [`Kind::Extents`] or [`Kind::Refused`].
    Map = 2,
    /// From a program: a new file is to have its name now. Answered by [`Kind::Done`] or [`Kind::Refused`].
    Name = 3,
    /// From a program: it has nothing mapped any more, and has ended its mark. Answered by [`Kind::Done`] when the file is anybody's again.
    Close = 4,
    /// To a program: it is done.
    Done = 16,
    /// To a program: it can't be; `count` is the error number.
    Refused = 17,
    /// To a program: `count` extents follow, in the order of the file; `value` more come in further frames.
    Extents = 18,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Grow, Self::Map, Self::Name, Self::Close, Self::Done, Self::Refused, Self::Extents];
}

/// A frame, without its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it says.
    pub kind: Kind,
    /// Extents, or an error number.
    pub count: u32,
    /// Bytes, or extents that are still to come.
    pub value: u64,
}

impl Frame {
    /// One that counts nothing.
    pub const fn of(kind: Kind, value: u64) -> Self {
        Self { kind, count: 0, value }
    }

    /// As bytes.
    pub fn bytes(self) -> [u8; FRAME_BYTES] {
        joined(self.kind as u8, self.count, self.value)
    }

    /// The frame that these bytes are.
    ///
    /// # Errors
    /// [`Malformed`]; nothing that comes behind such bytes means anything.
    pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, Malformed> {
        let (kind, count, value) = parted(bytes)?;
        let named = Kind::ALL.into_iter().find(|named| *named as u8 == kind);
        let kind = named.ok_or(Malformed::Kind(kind))?;
        if kind == Kind::Extents && count > EXTENTS_MOST {
            return Err(Malformed::TooMany(count));
        }
        Ok(Self { kind, count, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_and_nothing_else_is_one() {
        for kind in Kind::ALL {
            let frame = Frame { kind, count: 7, value: 0x0102_0304_0506_0708 };
            assert_eq!(Frame::parse(&frame.bytes()), Ok(frame));
            for at in 1..4 {
                let mut bytes = frame.bytes();
                bytes[at] = 1;
                assert_eq!(Frame::parse(&bytes), Err(Malformed::Reserved));
            }
        }
        let known = |kind: u8| Kind::ALL.iter().any(|known| *known as u8 == kind);
        for kind in (0..=255).filter(|kind| !known(*kind)) {
            let mut bytes = Frame::of(Kind::Grow, 1).bytes();
            bytes[0] = kind;
            assert_eq!(Frame::parse(&bytes), Err(Malformed::Kind(kind)));
        }
        let long = Frame { kind: Kind::Extents, count: EXTENTS_MOST + 1, value: 0 };
        assert_eq!(Frame::parse(&long.bytes()), Err(Malformed::TooMany(EXTENTS_MOST + 1)));
    }

    #[test]
    fn a_path_is_one_string_whatever_is_in_it() {
        let line = std::format!("{}", Hello("/a\"b\\c\nd\u{e9}"));
        let wanted = "{\"op\":\"kept\",\"version\":1,\"path\":\"/a\\\"b\\\\c\\u000ad\u{e9}\"}\n";
        assert_eq!(line, wanted);
    }
}
