//! Options of the handshake, as a client sends them.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::greeting::OPTION_MAGIC;

/// Bytes in front of an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Most data of an option that is looked at, in bytes: names of the greatest length with many wishes.
pub const MAX_OPTION_BYTES: u32 = 16 << 10;
/// Most data of an option that is skipped, in bytes; a client that sends more is left.
pub const MAX_SKIPPED_BYTES: u32 = 1 << 20;
/// Longest string of the protocol, in bytes.
const MAX_STRING_BYTES: usize = 4096;

/// Kinds of options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opt {
    /// Use an export: the old way, without any error.
    ExportName,
    /// End.
    Abort,
    /// Name all exports.
    List,
    /// Encrypt.
    StartTls,
    /// Tell about an export.
    Info,
    /// Use an export.
    Go,
    /// Replies may have several parts.
    StructuredReply,
    /// Tell about kinds of status.
    ListMetaContext,
    /// Choose kinds of status.
    SetMetaContext,
    /// One of those that are not known here.
    Unknown,
}

/// What stands in front of an option's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// What it is.
    pub option: Opt,
    /// The number of that, for replies.
    pub number: u32,
    /// Length of the data in bytes.
    pub len: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U64,
    number: U32,
    len: U32,
}

impl OptionHeader {
    /// From [`OPTION_HEADER_BYTES`]; `None` where they are no option.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let raw = RawHeader::read_from_bytes(bytes).ok()?;
        if raw.magic.get() != OPTION_MAGIC {
            return None;
        }
        let option = match raw.number.get() {
            1 => Opt::ExportName,
            2 => Opt::Abort,
            3 => Opt::List,
            5 => Opt::StartTls,
            6 => Opt::Info,
            7 => Opt::Go,
            8 => Opt::StructuredReply,
            9 => Opt::ListMetaContext,
            10 => Opt::SetMetaContext,
            _ => Opt::Unknown,
        };
        Some(Self { option, number: raw.number.get(), len: raw.len.get() })
    }
}

/// Data of an option that is not taken yet.
struct Data<'a>(&'a [u8]);

impl<'a> Data<'a> {
    fn number<T: FromBytes + Unaligned>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(value)
    }

    /// A string in front of which its length stands.
    fn string(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.number::<U32>()?.get()).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        string(text)
    }
}

/// A string of the protocol.
fn string(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= MAX_STRING_BYTES && !text.contains('\0')).then_some(text)
}

/// Which export, and what a client wants to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice<'a> {
    /// Its name; empty for the default one.
    pub name: &'a str,
    /// It wants to hear the name.
    pub wants_name: bool,
    /// It wants to hear the description.
    pub wants_description: bool,
    /// It wants to hear the block sizes, and keeps to them.
    pub wants_block_sizes: bool,
}

impl<'a> Choice<'a> {
    /// From the data of `Info` and `Go`; `None` where they are malformed.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut data = Data(data);
        let name = data.string()?;
        let mut choice = Self::named(name);
        for _ in 0..data.number::<U16>()?.get() {
            match data.number::<U16>()?.get() {
                1 => choice.wants_name = true,
                2 => choice.wants_description = true,
                3 => choice.wants_block_sizes = true,
                // What is always told, and what is not known here.
                _ => {}
            }
        }
        data.0.is_empty().then_some(choice)
    }

    /// From the data of the old option; `None` where they are no name.
    pub fn parse_name(data: &'a [u8]) -> Option<Self> {
        string(data).map(Self::named)
    }

    fn named(name: &'a str) -> Self {
        Self { name, wants_name: false, wants_description: false, wants_block_sizes: false }
    }
}

/// Which kinds of status of which export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaQuery<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// Patterns that name kinds, each with its namespace.
    pub queries: Vec<&'a str>,
}

impl<'a> MetaQuery<'a> {
    /// From an option's data; `None` where they are malformed, or a query is without a namespace.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut data = Data(data);
        let name = data.string()?;
        let count = data.number::<U32>()?.get();
        let mut queries = Vec::new();
        // Each takes bytes of the data, so that the count alone makes nothing large.
        for _ in 0..count {
            let query = data.string()?;
            if !query.contains(':') {
                return None;
            }
            queries.push(query);
        }
        data.0.is_empty().then_some(Self { name, queries })
    }
}

#[cfg(test)]
mod tests;
