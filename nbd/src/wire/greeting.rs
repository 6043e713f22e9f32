//! How a conversation begins, and how the old option ends it.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::buffer::Buffer;

/// `NBDMAGIC`.
const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The server sets both, and a client may.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
/// Zeros behind the answer to the old option.
const ZEROES: usize = 124;

/// Bytes in what a client answers to the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Greeting {
    password: U64,
    magic: U64,
    flags: U16,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ExportStart {
    size: U64,
    flags: U16,
}

/// What a client knows of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFlags {
    /// It understands replies to options.
    pub fixed_newstyle: bool,
    /// It does without zeros that nobody needs.
    pub no_zeroes: bool,
}

impl ClientFlags {
    /// From the client's answer to the greeting; `None` where it is too short, or has a flag that was not offered.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        #[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        struct Raw(U32);
        let flags = Raw::read_from_bytes(bytes).ok()?.0.get();
        let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
        (flags & !known == 0).then_some(Self {
            fixed_newstyle: flags & u32::from(FIXED_NEWSTYLE) != 0,
            no_zeroes: flags & u32::from(NO_ZEROES) != 0,
        })
    }
}

/// Says who is here.
pub fn greet(output: &mut Buffer) {
    let greeting = Greeting {
        password: U64::new(INIT_PASSWD),
        magic: U64::new(OPTION_MAGIC),
        flags: U16::new(FIXED_NEWSTYLE | NO_ZEROES),
    };
    output.append(greeting.as_bytes());
}

/// What a client is told of an export before it uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Size in bytes.
    pub size: u64,
    /// Nobody writes.
    pub read_only: bool,
    /// Structured replies were agreed on.
    pub structured: bool,
}

impl Terms {
    /// The transmission flags.
    pub fn flags(self) -> u16 {
        const HAS_FLAGS: u16 = 1 << 0;
        const READ_ONLY: u16 = 1 << 1;
        const SEND_FLUSH: u16 = 1 << 2;
        const SEND_FUA: u16 = 1 << 3;
        const SEND_TRIM: u16 = 1 << 5;
        const SEND_WRITE_ZEROES: u16 = 1 << 6;
        const SEND_DF: u16 = 1 << 7;
        const CAN_MULTI_CONN: u16 = 1 << 8;
        const SEND_CACHE: u16 = 1 << 10;
        const SEND_FAST_ZERO: u16 = 1 << 11;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        let access =
            if self.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO };
        always | access | if self.structured { SEND_DF } else { 0 }
    }

    /// The answer to the old option, after which requests come.
    pub fn start(self, no_zeroes: bool, output: &mut Buffer) {
        let start = ExportStart { size: U64::new(self.size), flags: U16::new(self.flags()) };
        output.append(start.as_bytes());
        if !no_zeroes {
            output.append(&[0; ZEROES]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_that_of_the_protocol() {
        let mut output = Buffer::default();
        greet(&mut output);
        assert_eq!(output.filled(), b"NBDMAGICIHAVEOPT\x00\x03");
    }

    #[test]
    fn flags_that_were_not_offered_are_refused() {
        let parsed = |last| ClientFlags::parse(&[0, 0, 0, last]);
        assert_eq!(parsed(0), Some(ClientFlags { fixed_newstyle: false, no_zeroes: false }));
        assert_eq!(parsed(1), Some(ClientFlags { fixed_newstyle: true, no_zeroes: false }));
        assert_eq!(parsed(3), Some(ClientFlags { fixed_newstyle: true, no_zeroes: true }));
        assert_eq!(parsed(4), None);
        assert_eq!(ClientFlags::parse(&[1, 0, 0, 0]), None);
        assert_eq!(ClientFlags::parse(&[0, 0, 0]), None);
    }

    #[test]
    fn the_old_answer_has_its_zeros_unless_nobody_wants_them() {
        let terms = Terms { size: 0x0102, read_only: true, structured: false };
        let mut output = Buffer::default();
        terms.start(true, &mut output);
        assert_eq!(output.filled(), [0, 0, 0, 0, 0, 0, 1, 2, 0b101, 0b1111]);
        terms.start(false, &mut output);
        assert_eq!(output.len(), 10 + 10 + 124);
        let writable = Terms { read_only: false, structured: true, ..terms };
        assert_eq!(writable.flags(), 0b1101_1110_1101);
    }
}
