//! What stands behind the header of a request, taken piece by piece.

use zerocopy::FromBytes;

use super::errno::Errno;

/// The arguments of a request that are not taken yet.
///
/// What follows those that are known is left alone: a newer kernel's.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// A structure that comes first and stands by itself, if it does.
    first: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Arguments that follow one another.
    pub fn new(all: &'a [u8]) -> Self {
        Self { first: &[], rest: all }
    }

    /// Arguments of which the structure that they begin with stands by itself.
    pub fn split(first: &'a [u8], rest: &'a [u8]) -> Self {
        Self { first, rest }
    }

    /// The structure that comes next.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return T::read_from_prefix(first).map(|(value, _)| value).map_err(|_| Errno::EINVAL);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Errno::EINVAL)?;
        self.rest = rest;
        Ok(value)
    }

    /// The text that comes next, up to its NUL; it may be empty.
    pub fn text(&mut self) -> Result<&'a [u8], Errno> {
        let mut parts = self.rest.splitn(2, |byte| *byte == 0);
        match (parts.next(), parts.next()) {
            (Some(text), Some(rest)) => {
                self.rest = rest;
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

    /// All that is left.
    pub fn all(self) -> &'a [u8] {
        self.rest
    }

    /// All that is left, which has to be so many bytes.
    pub fn rest(self, bytes: u32) -> Result<&'a [u8], Errno> {
        if self.rest.len() as u64 == u64::from(bytes) { Ok(self.rest) } else { Err(Errno::EINVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_nul() {
        let mut all = Arguments::new(b"one\0two\0three");
        assert_eq!((all.name(), all.name()), (Ok(&b"one"[..]), Ok(&b"two"[..])));
        assert_eq!(all.name(), Err(Errno::EINVAL));
        assert_eq!(Arguments::new(b"").name(), Err(Errno::EINVAL));
        assert_eq!(Arguments::new(b"\0").name(), Err(Errno::EINVAL));
        assert_eq!(Arguments::new(b"\0").text(), Ok(&b""[..]));
    }

    #[test]
    fn a_structure_is_there_as_a_whole_or_not() {
        let mut all = Arguments::new(&[1, 0, 0, 0, 2, 0, 0]);
        assert_eq!(all.take::<u32>(), Ok(1));
        assert_eq!(all.take::<u32>(), Err(Errno::EINVAL));
        assert_eq!(all.rest(2), Err(Errno::EINVAL));
        assert_eq!(all.rest(4), Err(Errno::EINVAL));
        assert_eq!(all.rest(3), Ok(&[2, 0, 0][..]));
    }

    #[test]
    fn a_structure_that_stands_by_itself_comes_first() {
        let mut all = Arguments::split(&[7, 0, 0, 0, 9, 9], b"name\0rest");
        assert_eq!(all.take::<u32>(), Ok(7), "what a newer kernel appends is left alone");
        assert_eq!(all.name(), Ok(&b"name"[..]));
        assert_eq!(all.rest(4), Ok(&b"rest"[..]));
        assert_eq!(Arguments::split(&[1, 2], &[0; 8]).take::<u32>(), Err(Errno::EINVAL));
    }
}
