//! Bytes that are taken one after the other.

/// What is left.
#[derive(Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `len` of them, if there are so many.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next number of `len` bytes.
    pub fn number(&mut self, len: usize) -> Option<u64> {
        Some(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}
