//! What stands behind the header of a request, taken piece by piece.

use zerocopy::FromBytes;

use super::errno::Errno;

/// The arguments of a request that are not taken yet.
///
/// What follows those that are known is left alone: a newer kernel's.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(pub &'a [u8]);

impl<'a> Arguments<'a> {
    /// The structure that comes next.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::EINVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// The text that comes next, up to its NUL; it may be empty.
    pub fn text(&mut self) -> Result<&'a [u8], Errno> {
        let mut parts = self.0.splitn(2, |byte| *byte == 0);
        match (parts.next(), parts.next()) {
            (Some(text), Some(rest)) => {
                self.0 = rest;
                Ok(text)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// The name that comes next: a text with something in it.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        match self.text()? {
            [] => Err(Errno::EINVAL),
            name => Ok(name),
        }
    }

    /// All that is left, which has to be so many bytes.
    pub fn rest(self, bytes: u32) -> Result<&'a [u8], Errno> {
        if self.0.len() as u64 == u64::from(bytes) { Ok(self.0) } else { Err(Errno::EINVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_nul() {
        let mut all = Arguments(b"one\0two\0three");
        assert_eq!((all.name(), all.name()), (Ok(&b"one"[..]), Ok(&b"two"[..])));
        assert_eq!(all.name(), Err(Errno::EINVAL));
        assert_eq!(Arguments(b"").name(), Err(Errno::EINVAL));
        assert_eq!(Arguments(b"\0").name(), Err(Errno::EINVAL));
        assert_eq!(Arguments(b"\0").text(), Ok(&b""[..]));
    }

    #[test]
    fn a_structure_is_there_as_a_whole_or_not() {
        let mut all = Arguments(&[1, 0, 0, 0, 2, 0, 0]);
        assert_eq!(all.take::<u32>(), Ok(1));
        assert_eq!(all.take::<u32>(), Err(Errno::EINVAL));
        assert_eq!(all.rest(2), Err(Errno::EINVAL));
        assert_eq!(all.rest(4), Err(Errno::EINVAL));
        assert_eq!(all.rest(3), Ok(&[2, 0, 0][..]));
    }
}
