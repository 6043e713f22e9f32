//! Replies to requests: simple ones, and those of several chunks.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use crate::buffer::Buffer;
use crate::device::Extent;
use crate::errno::Errno;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const DONE: u16 = 1;

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Simple {
    magic: U32,
    error: U32,
    cookie: U64,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    magic: U32,
    flags: U16,
    kind: U16,
    cookie: U64,
    len: U32,
}

/// Which request a chunk belongs to, and whether it is the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// What the client knows the request by.
    pub cookie: u64,
    /// No other follows.
    pub done: bool,
}

/// Why a request fails: the number, and a reason for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The number.
    pub errno: Errno,
    /// The reason; empty where the number says it.
    pub why: &'static str,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, why: "" }
    }
}

impl Chunk {
    fn header(self, kind: u16, len: usize, output: &mut Buffer) {
        let header = ChunkHeader {
            magic: U32::new(CHUNK_MAGIC),
            flags: U16::new(if self.done { DONE } else { 0 }),
            kind: U16::new(kind),
            cookie: U64::new(self.cookie),
            // No chunk is longer than the longest read with its offset.
            len: U32::new(u32::try_from(len).unwrap_or(u32::MAX)),
        };
        output.append(header.as_bytes());
    }
}

/// Head of a simple reply; the bytes of a read follow if there is no error.
pub fn simple_header(cookie: u64, errno: Option<Errno>, output: &mut Buffer) {
    let simple = Simple {
        magic: U32::new(SIMPLE_MAGIC),
        error: U32::new(errno.map_or(0, Errno::code)),
        cookie: U64::new(cookie),
    };
    output.append(simple.as_bytes());
}

/// A request without data to answer is done. (This is the same, whether chunks were agreed on or not.)
pub fn reply_ok(cookie: u64, output: &mut Buffer) {
    simple_header(cookie, None, output);
}

/// A chunk that says nothing but that it is the last.
pub fn reply_nothing(cookie: u64, output: &mut Buffer) {
    Chunk { cookie, done: true }.header(0, 0, output);
}

/// Head of `len` bytes that lie at `at`; they follow.
pub fn data_header(chunk: Chunk, at: u64, len: usize, output: &mut Buffer) {
    chunk.header(1, len.saturating_add(8), output);
    output.append(U64::new(at).as_bytes());
}

/// Says that the chunk whose head stands in front of `output` is the last one after all.
pub fn patch_done(head: &mut [u8]) {
    if let Some(flags) = head.get_mut(4..6) {
        flags.copy_from_slice(U16::new(DONE).as_bytes());
    }
}

/// `len` zeros at `at`.
pub fn reply_hole(chunk: Chunk, at: u64, len: u32, output: &mut Buffer) {
    chunk.header(2, 12, output);
    output.append(U64::new(at).as_bytes());
    output.append(U32::new(len).as_bytes());
}

/// What lies where, by the context of this number.
pub fn reply_status(cookie: u64, context: u32, extents: &[Extent], output: &mut Buffer) {
    Chunk { cookie, done: true }.header(5, 4 + 8 * extents.len(), output);
    output.append(U32::new(context).as_bytes());
    for extent in extents {
        let flags = u32::from(extent.hole) | u32::from(extent.zero) << 1;
        let len = u32::try_from(extent.len).unwrap_or(u32::MAX);
        output.append([len, flags].map(U32::new).as_bytes());
    }
}

/// The last chunk: an error, perhaps at an offset.
pub fn reply_error(cookie: u64, refusal: Refusal, at: Option<u64>, output: &mut Buffer) {
    // What was agreed on for texts: no longer than a short message of this program.
    let why = refusal.why.get(..256).unwrap_or(refusal.why).as_bytes();
    let (kind, tail) = if at.is_some() { (0x8002, 8) } else { (0x8001, 0) };
    Chunk { cookie, done: true }.header(kind, 6 + why.len() + tail, output);
    output.append(U32::new(refusal.errno.code()).as_bytes());
    output.append(U16::new(u16::try_from(why.len()).unwrap_or(0)).as_bytes());
    output.append(why);
    if let Some(at) = at {
        output.append(U64::new(at).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(with: impl FnOnce(&mut Buffer)) -> Vec<u8> {
        let mut output = Buffer::default();
        with(&mut output);
        output.filled().to_vec()
    }

    const COOKIE: u64 = 0x0102_0304_0506_0708;
    const COOKIE_BYTES: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08";
    const LAST: Chunk = Chunk { cookie: COOKIE, done: true };

    #[test]
    fn replies_are_laid_out_as_the_protocol_says() {
        let ok = put(|output| reply_ok(COOKIE, output));
        assert_eq!(ok, [b"\x67\x44\x66\x98\0\0\0\0", COOKIE_BYTES].concat());
        let failed = put(|output| simple_header(COOKIE, Some(Errno::ESHUTDOWN), output));
        assert_eq!(failed, [b"\x67\x44\x66\x98\0\0\0\x6c", COOKIE_BYTES].concat());
        let chunk = |kind: &[u8], rest: &[u8]| {
            [b"\x66\x8e\x33\xef\0\x01", kind, COOKIE_BYTES, rest].concat()
        };
        let nothing = put(|output| reply_nothing(COOKIE, output));
        assert_eq!(nothing, chunk(b"\0\0", b"\0\0\0\0"));
        let hole = put(|output| reply_hole(LAST, 5, 6, output));
        assert_eq!(hole, chunk(b"\0\x02", b"\0\0\0\x0c\0\0\0\0\0\0\0\x05\0\0\0\x06"));
        let mut data = put(|output| data_header(Chunk { done: false, ..LAST }, 5, 2, output));
        patch_done(&mut data);
        assert_eq!(data, chunk(b"\0\x01", b"\0\0\0\x0a\0\0\0\0\0\0\0\x05"));
        let refusal = Refusal { errno: Errno::EIO, why: "no" };
        let error = put(|output| reply_error(COOKIE, refusal, Some(9), output));
        let rest = b"\0\0\0\x10\0\0\0\x05\0\x02no\0\0\0\0\0\0\0\x09";
        assert_eq!(error, chunk(b"\x80\x02", rest));
        let extent = Extent { len: 3, hole: true, zero: true };
        let status = put(|output| reply_status(COOKIE, 1, &[extent], output));
        assert_eq!(status, chunk(b"\0\x05", b"\0\0\0\x0c\0\0\0\x01\0\0\0\x03\0\0\0\x03"));
    }
}
