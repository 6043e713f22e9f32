//! Requests, as a client sends them.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Bytes of a request, without the data of a write.
pub const REQUEST_BYTES: usize = 28;
const REQUEST_MAGIC: u32 = 0x2560_9513;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Bytes.
    Read,
    /// To store the bytes that follow.
    Write,
    /// To end.
    Disconnect,
    /// To make durable what was written.
    Flush,
    /// To forget.
    Trim,
    /// To have a range at hand.
    Cache,
    /// To store zeros.
    WriteZeroes,
    /// What lies where.
    BlockStatus,
    /// One of those that are not known here.
    Unknown,
}

/// Flags of a request; there may be others than those that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(u16);

impl Flags {
    /// To be durable before it is answered.
    pub const FUA: Self = Self(1 << 0);
    /// Zeros stay allocated.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// Bytes come in one piece.
    pub const DF: Self = Self(1 << 2);
    /// One extent is enough.
    pub const REQ_ONE: Self = Self(1 << 3);
    /// Zeros fast, or not at all.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are no others than `known`.
    pub fn only(self, known: Self) -> bool {
        self.0 & !known.0 == 0
    }
}

/// A request as it was sent. Where it leads to is not known yet to be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its flags.
    pub flags: Flags,
    /// What it is about.
    pub command: Command,
    /// What the client knows its reply by.
    pub cookie: u64,
    /// Where, in bytes.
    pub at: u64,
    /// How much, in bytes.
    pub len: u32,
}

/// The client has lost its way: nothing that it sends can be understood any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadMagic;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    at: U64,
    len: U32,
}

impl Request {
    /// From [`REQUEST_BYTES`].
    ///
    /// # Errors
    /// [`BadMagic`] where they are no request.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadMagic> {
        let raw = Raw::read_from_bytes(bytes).map_err(|_| BadMagic)?;
        if raw.magic.get() != REQUEST_MAGIC {
            return Err(BadMagic);
        }
        let command = match raw.command.get() {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => Command::Unknown,
        };
        let flags = Flags(raw.flags.get());
        let (cookie, at, len) = (raw.cookie.get(), raw.at.get(), raw.len.get());
        Ok(Self { flags, command, cookie, at, len })
    }
}

#[cfg(test)]
mod tests;
