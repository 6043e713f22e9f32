//! Names of directory entries, read from the log where they are.

use lode_pmem::{Line, Medium};

use super::state::State;
use crate::index::{Entry, hash};
use crate::layout::{Body, Geometry, LINE, LogSeed, Parsed, text_lines};
use crate::store::{Shape, Store};
use crate::{Error, Host, NAME_MAX, Result, Rule};

/// Checks a name that came from outside. Its record has to fit a log page.
pub(crate) fn valid_name(geometry: &Geometry, name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX || text_lines(name.len()) > geometry.log_lines {
        return Err(Error::NameTooLong);
    }
    let reserved = name.is_empty() || name == b"." || name == b"..";
    if reserved || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Reads a record line at `at` again and checks its seal.
pub(super) fn line_again<M: Medium, H: Host>(
    store: &Store<M, H>,
    seed: &LogSeed,
    at: u64,
    ino: u64,
) -> Result<Parsed> {
    let is_sealed = |line: &Line| store.holds(Rule::RecordSeal, seed, at, line);
    let line = store.load_line(at, Shape::Record, is_sealed)?;
    // (Without twins nobody has looked yet.)
    if !is_sealed(&line) {
        return Err(Error::corrupt_inode("record has changed under a wrong seal", at, ino));
    }
    Parsed::parse(&line).map_err(|what| Error::corrupt_inode(what, at, ino))
}

/// Reads the text of the record of `len` bytes of text at `at`, whose first bytes are `head`.
pub(super) fn text_again<M: Medium, H: Host>(
    store: &Store<M, H>,
    seed: &LogSeed,
    at: u64,
    ino: u64,
    head: &[u8],
    into: &mut [u8],
) -> Result<()> {
    let in_head = into.len().min(head.len());
    let (first, mut rest) = into.split_at_mut(in_head);
    first.copy_from_slice(head.get(..in_head).unwrap_or_default());
    let mut at = at;
    while !rest.is_empty() {
        at += LINE;
        let Body::Text { len, bytes } = line_again(store, seed, at, ino)?.body else {
            return Err(Error::corrupt_inode("text of a record is missing", at, ino));
        };
        let piece = bytes.get(..usize::from(len).min(rest.len())).unwrap_or_default();
        if piece.is_empty() {
            return Err(Error::corrupt_inode("text of a record is missing", at, ino));
        }
        let (target, more) = rest.split_at_mut(piece.len());
        target.copy_from_slice(piece);
        rest = more;
    }
    Ok(())
}

/// Loads an entry's record and its name; returns the record and the name's length.
pub(crate) fn load_name<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    entry: &Entry,
    into: &mut [u8; NAME_MAX],
) -> Result<(Parsed, usize)> {
    let ino = state.log.ino;
    let seed = state.log.seed_of(store, entry.origin);
    let seed = seed.ok_or(Error::corrupt_inode("entry of no log page", entry.at, ino))?;
    let parsed = line_again(store, &seed, entry.at, ino)?;
    let Body::Add { name_len, head, .. } = parsed.body else {
        return Err(Error::corrupt_inode("entry is not an ADD record", entry.at, ino));
    };
    let len = usize::from(name_len);
    let name = into.get_mut(..len).unwrap_or_default();
    text_again(store, &seed, entry.at, ino, &head, name)?;
    Ok((parsed, len))
}

/// Finds the entry with this name, and the record that made it.
pub(crate) fn find_entry<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    name: &[u8],
) -> Result<Option<(Entry, Parsed)>> {
    find_among(store, state, hash(store.secret, name), name).map(|(found, _)| found)
}

/// As [`find_entry`], for a name with this hash; also how many entries have that hash.
pub(crate) fn find_among<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    hash: u64,
    name: &[u8],
) -> Result<(Option<(Entry, Parsed)>, usize)> {
    let directory = state.directory()?;
    let mut found = [0u8; NAME_MAX];
    let mut count = 0;
    for entry in directory.entries.candidates(hash) {
        let (parsed, len) = load_name(store, state, &entry, &mut found)?;
        if found.get(..len) == Some(name) {
            return Ok((Some((entry, parsed)), count));
        }
        count += 1;
    }
    Ok((None, count))
}

/// Reads the target of a symbolic link whose text is in the log.
pub(crate) fn load_target<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    at: u64,
    ordinal: u32,
    into: &mut [u8],
) -> Result<()> {
    let ino = state.log.ino;
    let seed = state.log.seed_of(store, ordinal);
    let seed = seed.ok_or(Error::corrupt_inode("target of no log page", at, ino))?;
    let Body::Inode { extra, .. } = line_again(store, &seed, at, ino)?.body else {
        return Err(Error::corrupt_inode("target is not in an INODE record", at, ino));
    };
    text_again(store, &seed, at, ino, &extra, into)
}

/// Lines of the record of an entry with a name of this length.
pub(crate) const fn entry_lines(name_len: usize) -> u32 {
    text_lines(name_len)
}
