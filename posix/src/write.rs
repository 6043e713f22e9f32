//! Writing where space is short: a part of what was asked for, so much as there is room for.

use lode_engine::{Error, JOURNAL_HALF, Result};

/// Writes all of `data` at `offset` by one call of `write`, or where there is no space for that, so much
/// of its beginning as there is. Returns how much.
///
/// # Errors
/// [`Error::NoSpace`] where there is room for nothing, and those of `write`.
#[inline]
pub fn write_some(
    offset: u64,
    data: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<usize> {
    let mut part = data;
    loop {
        match write(offset, part) {
            Ok(()) => return Ok(part.len()),
            Err(Error::NoSpace) => part = less_of(offset, part).ok_or(Error::NoSpace)?,
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of `data`, where space is short by more than one call of `write`.
///
/// # Errors
/// As [`write_some`]; a part may have been written.
pub fn write_all(
    offset: u64,
    data: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<usize> {
    let (mut at, mut rest) = (offset, data);
    while !rest.is_empty() {
        let written = write_some(at, rest, &mut write)?;
        at = at.saturating_add(written as u64);
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(data.len())
}

/// As [`write_some`], at the end of the file, by `append`; `end` says where that is. Returns where,
/// and how much.
///
/// # Errors
/// As [`write_some`].
#[inline]
pub fn append_some(
    data: &[u8],
    end: impl Fn() -> Result<u64>,
    mut append: impl FnMut(&[u8]) -> Result<u64>,
) -> Result<(u64, usize)> {
    let mut part = data;
    loop {
        match append(part) {
            Ok(offset) => return Ok((offset, part.len())),
            // Others may move the end meanwhile: it only says how best to cut.
            Err(Error::NoSpace) => part = less_of(end()?, part).ok_or(Error::NoSpace)?,
            Err(error) => return Err(error),
        }
    }
}

/// About half of what is to be written at `offset`, up to a border that a small overwrite must not
/// cross; `None` where it is as little as helps.
fn less_of(offset: u64, data: &[u8]) -> Option<&[u8]> {
    let half = offset.checked_add(data.len() as u64 / 2)?;
    let next = (offset / JOURNAL_HALF + 1).checked_mul(JOURNAL_HALF)?;
    let border = (half - half % JOURNAL_HALF).max(next);
    let len = usize::try_from(border - offset).ok()?;
    data.get(..len).filter(|less| less.len() < data.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_and_less_is_written_down_to_what_needs_no_pages() {
        let data = vec![0; 1 << 20];
        for offset in [0, 1, 2047, 2048, 5000, 1 << 40] {
            let (mut part, mut steps) = (&data[..], 0);
            while let Some(less) = less_of(offset, part) {
                assert_eq!((offset + less.len() as u64) % JOURNAL_HALF, 0);
                (part, steps) = (less, steps + 1);
            }
            assert!((1..=JOURNAL_HALF as usize).contains(&part.len()), "{offset}: {}", part.len());
            assert!(steps <= 11, "{offset}: {steps}");
        }
        assert_eq!(less_of(5000, &data[..100]), None);
        assert_eq!(less_of(u64::MAX - 1, &data), None);
    }
}
