//! Memory that a server thread answers from.

use super::errno::Errno;

/// Where a server thread puts what it reads; as large as its largest answer so far, and
/// never larger than was allowed.
#[derive(Debug)]
pub struct Scratch {
    bytes: Vec<u8>,
    most: usize,
}

impl Scratch {
    /// None yet, and never more than `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most }
    }

    /// All of `most` bytes at once, of which those are taken from the system that are touched.
    ///
    /// # Errors
    /// `ENOMEM` where there is no memory.
    pub fn full(most: usize) -> Result<Self, Errno> {
        // What is taken as zeros is not touched, but can't fail: it is asked for before.
        Vec::<u8>::new().try_reserve_exact(most).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { bytes: vec![0; most], most })
    }

    /// Where room begins. It stays there as long as no more room is asked for than there was.
    pub fn start(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// Where room begins and how much there is, for somebody else to write to.
    pub fn memory(&mut self) -> (*mut u8, usize) {
        (self.bytes.as_mut_ptr(), self.bytes.len())
    }

    /// Room for `bytes` bytes, with anything in them.
    ///
    /// # Errors
    /// `EINVAL` for more than is allowed, `ENOMEM` where there is no memory.
    pub fn room(&mut self, bytes: usize) -> Result<&mut [u8], Errno> {
        if bytes > self.most {
            return Err(Errno::EINVAL);
        }
        if let Some(more) = bytes.checked_sub(self.bytes.len()) {
            self.bytes.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
            self.bytes.resize(bytes, 0);
        }
        self.bytes.get_mut(..bytes).ok_or(Errno::EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_grows_and_stays() {
        let mut scratch = Scratch::new(100);
        assert_eq!(scratch.room(100).unwrap().len(), 100);
        assert_eq!(scratch.room(10).unwrap().len(), 10);
        assert_eq!(scratch.bytes.len(), 100);
    }

    #[test]
    fn a_hostile_size_gets_no_memory() {
        let mut scratch = Scratch::new(100);
        assert_eq!(scratch.room(101), Err(Errno::EINVAL));
        assert_eq!(scratch.room(usize::MAX), Err(Errno::EINVAL));
        assert_eq!(scratch.bytes.capacity(), 0);
    }
}
