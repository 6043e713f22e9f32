//! The entries of a directory, by cookie.
//!
//! A cookie says where a listing goes on and is where an entry is found by name: 54 bits of the
//! name's keyed hash, then 8 bits that tell apart names whose hash is the same. Guarantees: a
//! cookie stays with its entry as long as the entry lives; cookies are at least 256 (a front end
//! may use smaller ones for `.` and `..`) and below 2^63; every operation is O(log n); entries
//! don't hold names, so who looks one up compares the names of all candidates, at their records.
//!
//! Memory: 32 bytes for each entry plus the slack of the map's nodes, about 46 bytes in a large
//! directory. An empty directory takes no heap memory.

use super::sorted::Sorted;
use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

/// The kind of directories: their mode, shifted right by 12.
const DIRECTORY: u8 = 0o4;
/// Bits of a cookie that tell apart names with the same hash.
const NUMBER_BITS: u32 = 8;
/// The largest of those numbers.
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;
/// Bits of the hash that are in the cookie.
const HASH_MASK: u64 = (1 << 54) - 1;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Where it is in the directory.
    pub cookie: u64,
    /// Inode number of the child.
    pub ino: u64,
    /// Offset of its record in the pool.
    pub at: u64,
    /// Ordinal of the log page that holds its record.
    pub origin: u32,
    /// File type of the child: its mode, shifted right by 12.
    pub kind: u8,
}

/// What of an entry may be changed in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Body {
    /// Inode number of the child.
    pub ino: u64,
    /// Offset of its record in the pool.
    pub at: u64,
    /// Ordinal of the log page that holds its record.
    pub origin: u32,
    /// Counted, so not to be changed from outside.
    kind: u8,
}

const _: () = assert!(size_of::<Entry>() == 32 && size_of::<Body>() == 24);

impl Body {
    /// The entry with this body.
    fn with(&self, cookie: u64) -> Entry {
        let Self { ino, at, origin, kind } = *self;
        Entry { cookie, ino, at, origin, kind }
    }
}

/// The first cookie for names with this hash.
fn first_cookie(hash: u64) -> u64 {
    (hash & HASH_MASK).max(1) << NUMBER_BITS
}

/// The entries of one directory.
#[derive(Default)]
pub(crate) struct Entries {
    map: Sorted<Body>,
    directories: usize,
}

impl Entries {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// How many of them are directories.
    pub(crate) fn subdirectories(&self) -> usize {
        self.directories
    }

    /// All entries that a name with this hash may have.
    pub(crate) fn candidates(&self, hash: u64) -> impl Iterator<Item = Entry> + '_ {
        let first = first_cookie(hash);
        let same = self.map.iter_from(first).take_while(move |entry| entry.0 <= first | NUMBER_MAX);
        same.map(|(cookie, body)| body.with(cookie))
    }

    /// Adds an entry for a name with this hash and returns its cookie. `NoSpace` where 256
    /// names have the same hash.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        ino: u64,
        kind: u8,
        at: u64,
        origin: u32,
    ) -> Result<u64> {
        let first = first_cookie(hash);
        let body = Body { ino, at, origin, kind };
        // Nearly always the first one is free.
        let mut cookies = first..=first | NUMBER_MAX;
        let cookie = cookies.find(|cookie| self.map.insert_new(*cookie, body));
        let cookie = cookie.ok_or(Error::NoSpace)?;
        self.directories += usize::from(kind == DIRECTORY);
        Ok(cookie)
    }

    /// Bytes of memory that they take, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.map.memory_bytes()
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, cookie: u64) -> Option<Entry> {
        let body = self.map.remove(cookie)?;
        if self.map.len() == 0 {
            self.map = Sorted::default();
        }
        self.directories -= usize::from(body.kind == DIRECTORY);
        Some(body.with(cookie))
    }

    /// Whether the entry is there that the record says which made `like`, an entry of this directory at another time.
    pub(crate) fn has(&self, like: &Entry) -> bool {
        self.candidates(like.cookie >> NUMBER_BITS).any(|entry| entry.at == like.at)
    }

    /// The entry with this cookie.
    pub(crate) fn get(&self, cookie: u64) -> Option<Entry> {
        self.map.iter_from(cookie).next().filter(|it| it.0 == cookie).map(|it| it.1.with(cookie))
    }

    /// The entries behind this cookie, ascending; all of them behind 0.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = Entry> + '_ {
        // Cookies are below 2^63.
        let behind = self.map.iter_from(cookie.saturating_add(1));
        behind.map(|(cookie, body)| body.with(cookie))
    }

    /// All entries, by ascending cookie.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.map.iter().map(|(cookie, body)| body.with(cookie))
    }

    /// A number that others would hardly have: names, as far as their hashes tell, and what they lead to.
    pub(crate) fn digest(&self) -> u64 {
        let each = self.iter().map(|entry| digest(entry.cookie >> NUMBER_BITS, entry.ino));
        each.fold(0, u64::wrapping_add)
    }

    /// Calls `each` with all entries and their cookies, to be changed.
    pub(crate) fn for_each_mut(&mut self, each: &mut dyn FnMut(u64, &mut Body)) {
        self.map.for_each_mut(each);
    }
}

/// SipHash-1-3 of a name, keyed with the pool's secret: who chooses names can't choose hashes.
pub(crate) fn hash(key: [u64; 2], name: &[u8]) -> u64 {
    siphash::<1, 3>(key, name)
}

/// A number for two.
pub(super) fn digest(one: u64, two: u64) -> u64 {
    siphash::<1, 3>([one, two], &[])
}

/// SipHash with `EACH` rounds for each word and `LAST` rounds at the end.
fn siphash<const EACH: usize, const LAST: usize>(key: [u64; 2], bytes: &[u8]) -> u64 {
    let [k0, k1] = key;
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, tail) = bytes.as_chunks::<8>();
    let mut last = (bytes.len() as u64) << 56;
    for (place, &byte) in tail.iter().enumerate() {
        last |= u64::from(byte) << (8 * place);
    }
    for word in words.iter().map(|word| u64::from_le_bytes(*word)).chain([last]) {
        state[3] ^= word;
        sip_rounds::<EACH>(&mut state);
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    sip_rounds::<LAST>(&mut state);
    let [v0, v1, v2, v3] = state;
    v0 ^ v1 ^ v2 ^ v3
}

/// So many rounds of SipHash.
#[inline]
fn sip_rounds<const ROUNDS: usize>(state: &mut [u64; 4]) {
    let [mut v0, mut v1, mut v2, mut v3] = *state;
    for _ in 0..ROUNDS {
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v1);
        v0 = v0.wrapping_add(v3);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
    }
    *state = [v0, v1, v2, v3];
}
