//! Replies to options.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::greeting::Terms;
use crate::buffer::Buffer;
use crate::device::BlockSizes;

const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The one kind of status that there is, and its number in replies.
pub const ALLOCATION: (&str, u32) = ("base:allocation", 1);

/// Why an option is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Refused {
    /// Not known here.
    Unsupported = (1 << 31) + 1,
    /// Malformed, or out of place.
    Invalid = (1 << 31) + 3,
    /// Not before all is encrypted.
    TlsRequired = (1 << 31) + 5,
    /// No such export.
    Unknown = (1 << 31) + 6,
    /// The server is about to end.
    Shutdown = (1 << 31) + 7,
    /// Too much data.
    TooBig = (1 << 31) + 9,
}

impl Refused {
    fn why(self) -> &'static str {
        match self {
            Self::Unsupported => "this option is not known here",
            Self::Invalid => "this option is malformed, or out of place",
            Self::TlsRequired => "this server is only for clients that use TLS",
            Self::Unknown => "there is no such export",
            Self::Shutdown => "the server is being shut down",
            Self::TooBig => "this option is too long",
        }
    }
}

/// What can be told of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Info<'a> {
    /// Size and flags; always told.
    Export(Terms),
    /// The name.
    Name(&'a str),
    /// What people call it.
    Description(&'a str),
    /// How it is accessed.
    BlockSizes(BlockSizes),
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: U64,
    option: U32,
    kind: U32,
    len: U32,
}

/// Replies to one option, put behind each other.
pub struct Replies<'a> {
    output: &'a mut Buffer,
    option: u32,
}

impl<'a> Replies<'a> {
    /// Replies to the option of this number.
    pub fn new(option: u32, output: &'a mut Buffer) -> Self {
        Self { output, option }
    }

    fn put(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let header = Header {
            magic: U64::new(REPLY_MAGIC),
            option: U32::new(self.option),
            kind: U32::new(kind),
            len: U32::new(u32::try_from(len).unwrap_or(u32::MAX)),
        };
        self.output.append(header.as_bytes());
        parts.iter().for_each(|part| self.output.append(part));
    }

    /// That was all, and it is agreed.
    pub fn acknowledge(&mut self) {
        self.put(1, &[]);
    }

    /// There is an export of this name.
    pub fn server(&mut self, name: &str, description: &str) {
        let len = U32::new(u32::try_from(name.len()).unwrap_or(u32::MAX));
        self.put(2, &[len.as_bytes(), name.as_bytes(), description.as_bytes()]);
    }

    /// Something about an export.
    pub fn info(&mut self, info: Info<'_>) {
        match info {
            Info::Export(terms) => {
                let (size, flags) = (U64::new(terms.size), U16::new(terms.flags()));
                self.put_info(0, &[size.as_bytes(), flags.as_bytes()]);
            }
            Info::Name(name) => self.put_info(1, &[name.as_bytes()]),
            Info::Description(text) => self.put_info(2, &[text.as_bytes()]),
            Info::BlockSizes(sizes) => {
                let sizes = [sizes.min(), sizes.preferred(), sizes.max()].map(U32::new);
                self.put_info(3, &[sizes.as_bytes()]);
            }
        }
    }

    fn put_info(&mut self, kind: u16, parts: &[&[u8]]) {
        let kind = U16::new(kind);
        let mut all = vec![kind.as_bytes()];
        all.extend(parts);
        self.put(3, &all);
    }

    /// A kind of status, with the number that replies have for it.
    pub fn context(&mut self, name: &str, id: u32) {
        self.put(4, &[U32::new(id).as_bytes(), name.as_bytes()]);
    }

    /// No.
    pub fn refuse(&mut self, refused: Refused) {
        self.put(refused as u32, &[refused.why().as_bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_laid_out_as_the_protocol_says() {
        let mut output = Buffer::default();
        Replies::new(3, &mut output).server("ab", "c");
        let magic = b"\x00\x03\xe8\x89\x04\x55\x65\xa9";
        let server = b"\0\0\0\x03\0\0\0\x02\0\0\0\x07\0\0\0\x02abc";
        assert_eq!(output.filled(), [&magic[..], server].concat());
        output.consume(99);
        Replies::new(99, &mut output).refuse(Refused::Unsupported);
        assert_eq!(&output.filled()[..19], [&magic[..], b"\0\0\0\x63\x80\0\0\x01\0\0\0"].concat());
        output.consume(999);
        Replies::new(7, &mut output).info(Info::BlockSizes(BlockSizes::default()));
        let sizes = b"\0\0\0\x07\0\0\0\x03\0\0\0\x0e\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0";
        assert_eq!(output.filled(), [&magic[..], sizes].concat());
    }
}
