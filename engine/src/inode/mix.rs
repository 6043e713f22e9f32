//! The hash of what is looked up by numbers: those of inodes, and of transactions.

/// A small hasher for numbers that nobody outside chooses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mix(u64);

impl core::hash::BuildHasher for Mix {
    type Hasher = Mix;
    fn build_hasher(&self) -> Mix {
        *self
    }
}

impl core::hash::Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
