//! Records: how a change of several words is one.
//!
//! A change is a list of words and what each of them becomes. It is done once its record is durable; the words follow. Changes are
//! numbered, and their records lie in two places in turn: the record of a change is stored when the words of the one before are written
//! back, and one fence makes both durable. So what a crash leaves is the records of the last two changes, and all words of earlier
//! ones; an opening stores the words of these two again, in their order.

use alloc::vec::Vec;

use lode_pmem::crc32c;

use crate::layout::LINE;

/// The most words of one change.
pub const WORDS_MOST: usize = 15;
pub(crate) const RECORD_BYTES: usize = 4 * LINE as usize;
const HEAD: usize = 16;
const ENTRY: usize = 16;

/// Words, and what they become: offset and value of each.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Words(Vec<(u64, u64)>);

impl Words {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, at: u64, value: u64) {
        self.0.push((at, value));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one of them is among bytes `at .. at + bytes`.
    pub(crate) fn touch(&self, at: u64, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        self.0.iter().any(|(word, _)| *word < end && at < word + 8)
    }
}

/// A record's bytes, as many as are in use.
pub(crate) fn record(number: u64, words: &Words, id: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + ENTRY * words.len());
    bytes.extend(number.to_le_bytes());
    bytes.extend((words.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    for (at, value) in words.iter() {
        bytes.extend(at.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    let sum = seal(&bytes, id).to_le_bytes();
    bytes.iter_mut().skip(12).zip(sum).for_each(|(to, byte)| *to = byte);
    bytes
}

/// The seal of a record, in which it is zero itself.
fn seal(bytes: &[u8], id: u64) -> u32 {
    crc32c(crc32c(0, &id.to_le_bytes()), bytes)
}

/// The change whose record these bytes are, and its number; `None` of none, or of one that was cut off.
pub(crate) fn parse(bytes: &[u8; RECORD_BYTES], id: u64) -> Option<(u64, Words)> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let (number, [c0, c1, c2, c3, sum @ ..]) = head.split_first_chunk::<8>()? else { return None };
    let count = u32::from_le_bytes([*c0, *c1, *c2, *c3]) as usize;
    if count > WORDS_MOST {
        return None;
    }
    let mut used = *bytes;
    used.iter_mut().skip(12).take(4).for_each(|byte| *byte = 0);
    let wanted = seal(used.get(..HEAD + ENTRY * count)?, id).to_le_bytes();
    if sum != wanted {
        return None;
    }
    let mut words = Words::none();
    for entry in rest.as_chunks::<ENTRY>().0.iter().take(count) {
        let (at, value) = entry.split_first_chunk::<8>()?;
        words.push(u64::from_le_bytes(*at), u64::from_le_bytes(*value.first_chunk()?));
    }
    Some((u64::from_le_bytes(*number), words))
}
