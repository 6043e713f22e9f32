//! Names and values of extended attributes, read from where they are.

use alloc::vec::Vec;

use lode_pmem::{Medium, crc32c};

use super::names::{line_again, text_again};
use super::state::State;
use crate::index::{Xattr, hash};
use crate::integrity::Whose;
use crate::layout::{Body, Geometry, TEXT_BYTES, XATTR_RUN_BYTES, XATTR_TEXT_MAX};
use crate::space::Run;
use crate::store::Store;
use crate::{Error, Host, NAME_MAX, PAGE_BYTES, Result, Rule};

/// Bits of a run in a record's text that are its first page; the others are its length.
const PAGE_BITS: u32 = 48;

/// Bytes of text that an XATTR record has in a pool of this shape, at most.
pub(crate) fn xattr_text_max(geometry: &Geometry) -> usize {
    ((geometry.log_lines as usize - 1) * TEXT_BYTES).min(XATTR_TEXT_MAX)
}

/// Checks a name that came from outside.
pub(crate) fn valid_xattr_name(geometry: &Geometry, name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX.min(xattr_text_max(geometry)) {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&0) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// What says in a record's text where pages of the value are.
pub(crate) fn run_word(run: &Run) -> [u8; XATTR_RUN_BYTES] {
    (run.page | run.pages << PAGE_BITS).to_le_bytes()
}

/// The runs of pages that `text` names; `None` if they can't be those of a value this long.
pub(crate) fn parse_runs(
    geometry: &Geometry,
    text: &[u8],
    value_len: u32,
) -> Result<Option<Vec<Run>>> {
    let (words, rest) = text.as_chunks::<XATTR_RUN_BYTES>();
    let mut runs = Vec::new();
    runs.try_reserve_exact(words.len())?;
    let mut total = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let run = Run { page: word & ((1 << PAGE_BITS) - 1), pages: word >> PAGE_BITS };
        if run.pages == 0 || !geometry.has(run.page, run.pages) {
            return Ok(None);
        }
        total += run.pages;
        runs.push(run);
    }
    let right = rest.is_empty() && total == u64::from(value_len).div_ceil(PAGE_BYTES);
    Ok(right.then_some(runs))
}

/// Reads an attribute's record again, and as many bytes of its text as `wanted` says.
fn load_part<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    xattr: &Xattr,
    wanted: impl FnOnce(&Body) -> usize,
) -> Result<(Body, Vec<u8>)> {
    let ino = state.log.ino;
    let seed = state.log.seed_of(store, xattr.origin);
    let seed = seed.ok_or(Error::corrupt_inode("attribute of no log page", xattr.at, ino))?;
    let body = line_again(store, &seed, xattr.at, ino)?.body;
    let bytes = wanted(&body);
    if !matches!(body, Body::Xattr { .. }) || body.text_bytes() < bytes {
        return Err(Error::corrupt_inode("attribute is not an XATTR record", xattr.at, ino));
    }
    let mut text = Vec::new();
    text.try_reserve_exact(bytes)?;
    text.resize(bytes, 0);
    text_again(store, &seed, xattr.at, ino, &[], &mut text)?;
    Ok((body, text))
}

/// The name of an attribute.
pub(crate) fn load_xattr_name<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    xattr: &Xattr,
) -> Result<Vec<u8>> {
    Ok(load_part(store, state, xattr, |_| usize::from(xattr.name_len))?.1)
}

/// An attribute's record and its whole text, as they are.
pub(crate) fn load_xattr<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    xattr: &Xattr,
) -> Result<(Body, Vec<u8>)> {
    load_part(store, state, xattr, Body::text_bytes)
}

/// Finds the attribute with this name.
pub(crate) fn find_xattr<'s, M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &'s State,
    name: &[u8],
) -> Result<Option<&'s Xattr>> {
    for xattr in state.xattrs.candidates(hash(store.secret, name)) {
        if load_xattr_name(store, state, xattr)? == name {
            return Ok(Some(xattr));
        }
    }
    Ok(None)
}

/// The value of an attribute.
pub(crate) fn load_xattr_value<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    xattr: &Xattr,
) -> Result<Vec<u8>> {
    let (name_len, value_len) = (usize::from(xattr.name_len), xattr.value_len as usize);
    if xattr.runs.is_empty() {
        let (_, mut text) = load_part(store, state, xattr, |_| name_len + value_len)?;
        text.drain(..name_len);
        return Ok(text);
    }
    let mut value = Vec::new();
    value.try_reserve_exact(value_len)?;
    value.resize(value_len, 0);
    let (ino, mut rest) = (state.log.ino, value.as_mut_slice());
    let mut lost = Ok(());
    for run in &xattr.runs {
        let bytes = rest.len().min((run.pages * PAGE_BYTES) as usize);
        let (piece, more) = rest.split_at_mut(bytes);
        let at = run.page * PAGE_BYTES;
        let loaded = store.load_data(Whose { ino, end: at + bytes as u64 }, at, piece);
        if let Err(error @ Error::Corrupt(_)) = loaded {
            // (Its own checksum says whether it is right, should those of its strips be what is not.)
            lost = Err(error);
            store.door.load(at, piece)?;
        } else {
            loaded?;
        }
        rest = more;
    }
    if crc32c(0, &value) != xattr.crc && !store.host.leaves_out(Rule::ValueSum) {
        lost?;
        let what = "value of an extended attribute has changed";
        let at = xattr.runs.first().map_or(xattr.at, |run| run.page * PAGE_BYTES);
        return Err(Error::corrupt_inode(what, at, ino));
    }
    Ok(value)
}
