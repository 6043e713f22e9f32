//! Bytes on their way: put in at the end, taken from the beginning, in memory that is used again.

/// Memory grows by so much, so that many small pieces do not move it each time.
const GROWTH_BYTES: usize = 16 << 10;

/// A queue of bytes that lie side by side.
#[derive(Default, Debug)]
pub struct Buffer {
    /// All of it is initialised, so that it is cleared only where it grows.
    bytes: Vec<u8>,
    start: usize,
    /// Never before `start`, nor behind the end of `bytes`.
    end: usize,
}

impl Buffer {
    /// What is in it.
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// How much is in it, in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that it holds, in bytes.
    #[cfg_attr(not(test), allow(dead_code))] // Only who tests it asks.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes `bytes` from the beginning, or all where there are fewer.
    pub fn consume(&mut self, bytes: usize) {
        self.start += bytes.min(self.len());
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room behind what is in it: `bytes` at least. What is put there counts when it is [committed](Self::commit).
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < bytes {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let wanted = self.end.saturating_add(bytes);
            if self.bytes.len() < wanted {
                let wanted = wanted.checked_next_multiple_of(GROWTH_BYTES).unwrap_or(wanted);
                self.bytes.reserve_exact(wanted - self.bytes.len());
                self.bytes.resize(wanted, 0);
            }
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Counts `bytes` that were put into the [space](Self::space).
    pub fn commit(&mut self, bytes: usize) {
        self.end = self.end.saturating_add(bytes).min(self.bytes.len());
    }

    /// Puts `bytes` behind what is in it.
    pub fn append(&mut self, bytes: &[u8]) {
        if let Some(space) = self.space(bytes.len()).get_mut(..bytes.len()) {
            space.copy_from_slice(bytes);
            self.commit(bytes.len());
        }
    }

    /// Makes `bytes` more of it, and returns them: they hold anything that was there before.
    pub fn extend(&mut self, bytes: usize) -> &mut [u8] {
        self.space(bytes);
        let from = self.end;
        self.commit(bytes);
        self.bytes.get_mut(from..self.end).unwrap_or_default()
    }

    /// Takes back what was put behind the first `len` bytes.
    pub fn retract(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }

    /// The bytes from `from` on, counted from the beginning.
    pub fn tail_mut(&mut self, from: usize) -> &mut [u8] {
        let from = self.start.saturating_add(from).min(self.end);
        self.bytes.get_mut(from..self.end).unwrap_or_default()
    }

    /// Gives back the memory, if nothing is in it.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut buffer = Buffer::default();
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for turn in 0..10_000_usize {
            let bytes: Vec<u8> = (0..turn % 17)
                .map(|_| {
                    next_in = next_in.wrapping_add(1);
                    next_in
                })
                .collect();
            buffer.append(&bytes);
            let take = (turn * 7 % 19).min(buffer.len());
            for byte in &buffer.filled()[..take] {
                next_out = next_out.wrapping_add(1);
                assert_eq!(*byte, next_out);
            }
            buffer.consume(take);
        }
        assert_eq!(buffer.capacity(), GROWTH_BYTES, "memory is used again");
    }

    #[test]
    fn what_is_not_committed_does_not_count() {
        let mut buffer = Buffer::default();
        buffer.append(b"abc");
        buffer.space(4)[..4].copy_from_slice(b"defg");
        assert_eq!(buffer.filled(), b"abc");
        buffer.commit(2);
        assert_eq!(buffer.filled(), b"abcde");
        buffer.consume(1);
        buffer.retract(3);
        assert_eq!(buffer.filled(), b"bcd");
        buffer.tail_mut(1).copy_from_slice(b"xy");
        assert_eq!(buffer.filled(), b"bxy");
        buffer.consume(99);
        assert!(buffer.is_empty());
        buffer.release();
        assert_eq!(buffer.capacity(), 0);
    }
}
