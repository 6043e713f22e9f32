//! A cache line: what persistent memory is written in.

/// Bytes in a line.
pub const LINE_BYTES: usize = 64;

/// One aligned 64-byte line, the unit of [`crate::Medium::store_line`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u8; LINE_BYTES]);

impl Line {
    /// A line of zeros.
    pub const ZERO: Line = Line([0; LINE_BYTES]);
}

const _: () = assert!(core::mem::size_of::<Line>() == 64 && core::mem::align_of::<Line>() == 64);
