//! The bytes of a region, copied only where they change, and which of its lines can't be loaded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use lode_pmem::LINE_BYTES;
use lode_testkit::rng::mix;

const PAGE: usize = 4096;

/// A region's bytes. A clone shares every page until one of the two changes it.
#[derive(Clone, Debug)]
pub struct Pages {
    pages: List,
    /// The same with zeros where file data is, where that is kept: pages without such data are
    /// shared.
    bare: Option<List>,
    /// Lines that can't be loaded, by their offsets.
    bad: Arc<BTreeMap<u64, Bad>>,
}

type List = Vec<Option<Arc<Page>>>;

/// How a line can't be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    /// Until it is stored as a whole.
    Once,
    /// Whatever is stored to it.
    Always,
}

/// What a store is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// The contents of a file or of an attribute, or a target.
    Data,
    /// All else.
    Metadata,
}

/// A page, and its hash once somebody has asked for it.
#[derive(Clone, Debug)]
struct Page {
    bytes: [u8; PAGE],
    /// Its lines that a store of data came to and no whole one of metadata since, one bit a line.
    data_lines: u64,
    hash: OnceLock<u64>,
}

impl Page {
    fn zeros() -> Self {
        Self { bytes: [0; PAGE], data_lines: 0, hash: OnceLock::new() }
    }

    /// 0 for a page of zeros.
    fn hash(&self) -> u64 {
        /// An odd number without a pattern: multiplying by it loses nothing.
        const SCATTER: u64 = 0x9E6C_63D0_876A_68DF;
        let fold = |hash: u64, word: u64| (hash.rotate_left(25) ^ word).wrapping_mul(SCATTER);
        // Four at a time, none of which waits for another.
        let four = |mut hashes: [u64; 4], words: &[[u8; 8]; 4]| {
            for (hash, word) in hashes.iter_mut().zip(words) {
                *hash = fold(*hash, u64::from_le_bytes(*word));
            }
            hashes
        };
        *self.hash.get_or_init(|| {
            let words = self.bytes.as_chunks::<8>().0.as_chunks::<4>().0;
            words.iter().fold([0; 4], four).into_iter().fold(0, fold)
        })
    }
}

impl Pages {
    /// `bytes` zeros, whole pages of them.
    pub fn new(bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(PAGE as u64), "a region of whole pages");
        let pages = vec![None; (bytes / PAGE as u64) as usize];
        Self { bare: Some(pages.clone()), pages, bad: Arc::default() }
    }

    /// The same, for whom asks neither for [`Pages::metadata_fingerprint`] nor for [`Pages::may_be_data`].
    pub fn without_bare(&self) -> Self {
        Self { pages: self.pages.clone(), bare: None, bad: self.bad.clone() }
    }

    /// The same with zeros behind it: `bytes` in all, at least as many as there are.
    pub fn grown(mut self, bytes: u64) -> Self {
        let pages = (bytes / PAGE as u64) as usize;
        assert!(pages >= self.pages.len(), "a region does not shrink");
        self.pages.resize(pages, None);
        if let Some(bare) = &mut self.bare {
            bare.resize(pages, None);
        }
        self
    }

    /// Bytes in the region.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// Loads bytes from `at` on.
    pub fn load(&self, mut at: u64, into: &mut [u8]) {
        let mut rest = into;
        while !rest.is_empty() {
            let from = (at % PAGE as u64) as usize;
            let len = (PAGE - from).min(rest.len());
            let (piece, tail) = rest.split_at_mut(len);
            match &self.pages[(at / PAGE as u64) as usize] {
                Some(page) => piece.copy_from_slice(&page.bytes[from..from + len]),
                None => piece.fill(0),
            }
            at += len as u64;
            rest = tail;
        }
    }

    /// From now on this line can't be loaded.
    pub fn spoil(&mut self, line: u64, bad: Bad) {
        Arc::make_mut(&mut self.bad).insert(line, bad);
    }

    /// A line was stored as a whole: it is good again, if it ever is.
    pub fn renew(&mut self, line: u64) {
        if self.bad.get(&line) == Some(&Bad::Once) {
            Arc::make_mut(&mut self.bad).remove(&line);
        }
    }

    /// All of it can be loaded again, whatever it holds.
    pub fn heal(&mut self) {
        self.bad = Arc::default();
    }

    /// Whether some of it can't be loaded.
    pub fn has_bad(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The first line that can't be loaded of those that begin in these bytes.
    pub fn first_bad(&self, bytes: Range<u64>) -> Option<u64> {
        self.bad.range(bytes).next().map(|(line, _)| *line)
    }

    /// Changes the bytes of the line at `line` that `mask` names, one bit a byte. (Whether it was stored so, as a whole, is
    /// the caller's to know: see [`Pages::renew`].)
    pub fn store(&mut self, line: u64, mask: u64, bytes: &[u8; LINE_BYTES], what: Stored) {
        let number = (line / PAGE as u64) as usize;
        let from = (line % PAGE as u64) as usize;
        let page = &mut self.pages[number];
        let Some(bare) = &mut self.bare else {
            // (Where data lies is not asked here: zeros over zeros change nothing.)
            if page.is_none() && *bytes == [0; LINE_BYTES] {
                return;
            }
            return change(page, from, mask, bytes, what);
        };
        let bare = &mut bare[number];
        if what == Stored::Data {
            change(page, from, mask, bytes, what);
            return blank(bare, from, mask);
        }
        let shared = match (&*page, &*bare) {
            (Some(page), Some(bare)) => Arc::ptr_eq(page, bare),
            (page, bare) => page.is_none() && bare.is_none(),
        };
        if shared {
            *bare = None;
            change(page, from, mask, bytes, what);
            bare.clone_from(page);
        } else {
            change(page, from, mask, bytes, what);
            change(bare, from, mask, bytes, what);
        }
    }

    /// Changes whole lines from the one at `at` on.
    pub fn store_lines(&mut self, at: u64, lines: &[[u8; LINE_BYTES]], what: Stored) {
        const LINES: usize = PAGE / LINE_BYTES;
        let (mut at, mut rest) = (at, lines);
        while !rest.is_empty() {
            let first = (at % PAGE as u64) as usize / LINE_BYTES;
            let (these, others) = rest.split_at((LINES - first).min(rest.len()));
            let page = &mut self.pages[(at / PAGE as u64) as usize];
            if self.bare.is_none() && these.len() == LINES && are_zeros(these.as_flattened()) {
                *page = None;
            } else {
                for (line, bytes) in (at..).step_by(LINE_BYTES).zip(these) {
                    self.store(line, u64::MAX, bytes, what);
                }
            }
            at += (these.len() * LINE_BYTES) as u64;
            rest = others;
        }
    }

    /// A hash of all bytes. Pages that were not changed since the last one are not looked at.
    pub fn fingerprint(&self) -> u64 {
        let bad = self.bad.iter().map(|(line, bad)| mix(!(line + *bad as u64)));
        let bad = bad.fold(0, u64::wrapping_add);
        fingerprint(&self.pages).wrapping_add(bad)
    }

    /// A hash of all bytes but those of file data: equal where only these differ. 0 where it is
    /// not known.
    pub fn metadata_fingerprint(&self) -> u64 {
        self.bare.as_ref().map_or(0, fingerprint)
    }

    /// Whether file data lies in the page of this byte, zeros over metadata among it, or nothing but zeros.
    ///
    /// # Panics
    /// After [`Pages::without_bare`].
    pub fn may_be_data(&self, at: u64) -> bool {
        assert!(self.bare.is_some(), "where data lies is not kept");
        let Some(page) = &self.pages[(at / PAGE as u64) as usize] else { return true };
        page.data_lines != 0 || are_zeros(&page.bytes)
    }

    /// What the line at `at` holds, as far as that is kept.
    pub fn stored_in(&self, at: u64) -> Stored {
        let page = self.pages[(at / PAGE as u64) as usize].as_ref();
        let bit = at % PAGE as u64 / LINE_BYTES as u64;
        match page.is_some_and(|page| page.data_lines >> bit & 1 == 1) {
            true => Stored::Data,
            false => Stored::Metadata,
        }
    }

    /// All bytes, one after another.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.pages.len() * PAGE];
        self.load(0, &mut image);
        image
    }
}

fn change(
    page: &mut Option<Arc<Page>>,
    from: usize,
    mask: u64,
    bytes: &[u8; LINE_BYTES],
    what: Stored,
) {
    let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new(Page::zeros())));
    page.hash.take();
    let line = 1 << (from / LINE_BYTES);
    match what {
        Stored::Data => page.data_lines |= line,
        Stored::Metadata if mask == u64::MAX => page.data_lines &= !line,
        Stored::Metadata => (),
    }
    let target = &mut page.bytes[from..from + LINE_BYTES];
    // Mostly the bytes are next to each other.
    let (first, end) = (mask.trailing_zeros(), 64 - mask.leading_zeros());
    if first < end && mask == (u64::MAX >> (64 - (end - first))) << first {
        let bytes_named = first as usize..end as usize;
        target[bytes_named.clone()].copy_from_slice(&bytes[bytes_named]);
        return;
    }
    for (index, (to, new)) in target.iter_mut().zip(bytes).enumerate() {
        if mask >> index & 1 == 1 {
            *to = *new;
        }
    }
}

fn are_zeros(bytes: &[u8]) -> bool {
    bytes.as_chunks::<LINE_BYTES>().0.iter().all(|line| *line == [0; LINE_BYTES])
}

/// Zeros what `mask` names.
fn blank(page: &mut Option<Arc<Page>>, from: usize, mask: u64) {
    let Some(bytes) = page.as_ref().map(|page| &page.bytes[from..from + LINE_BYTES]) else {
        return;
    };
    let mut named = bytes.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1);
    if named.any(|(_, byte)| *byte != 0) {
        change(page, from, mask, &[0; LINE_BYTES], Stored::Metadata);
    }
}

fn fingerprint(pages: &List) -> u64 {
    let pages = pages.iter().enumerate();
    let hashes = pages.filter_map(|(number, page)| Some((number, page.as_ref()?.hash())));
    hashes
        .filter(|(_, hash)| *hash != 0)
        .fold(0, |all, (number, hash)| all.wrapping_add(mix(hash ^ mix(number as u64))))
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Page>>, two: &Option<Arc<Page>>| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one.bytes == two.bytes,
            (None, None) => true,
            (Some(page), None) | (None, Some(page)) => page.bytes.iter().all(|&byte| byte == 0),
        };
        self.pages.len() == other.pages.len()
            && self.bad == other.bad
            && self.pages.iter().zip(&other.pages).all(|(one, two)| same(one, two))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_equal_fingerprints_and_others_have_others() {
        let line = |byte| [byte; LINE_BYTES];
        let (mut one, mut two) = (Pages::new(16384), Pages::new(16384));
        let empty = one.fingerprint();
        one.store(4096, u64::MAX, &line(1), Stored::Metadata);
        two.store(8192, u64::MAX, &line(1), Stored::Metadata);
        assert_ne!(one.fingerprint(), two.fingerprint());
        one.store(8192, u64::MAX, &line(1), Stored::Metadata);
        one.store(4096, u64::MAX, &line(0), Stored::Metadata);
        assert_eq!(one.fingerprint(), two.fingerprint());
        two.store(8192, 1, &line(2), Stored::Metadata);
        assert_ne!(one.fingerprint(), two.fingerprint());
        two.store(8192, u64::MAX, &line(0), Stored::Metadata);
        assert_eq!(two.fingerprint(), empty);
    }

    #[test]
    fn file_data_is_no_metadata_wherever_it_lies() {
        let line = |byte| [byte; LINE_BYTES];
        let mut one = Pages::new(16384);
        one.store(4096, u64::MAX, &line(1), Stored::Metadata);
        let mut two = one.clone();
        two.store(4160, u64::MAX, &line(7), Stored::Data);
        two.store(8192, u64::MAX, &line(8), Stored::Data);
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert_eq!(one.metadata_fingerprint(), two.metadata_fingerprint());
        two.store(8192, u64::MAX, &line(9), Stored::Metadata);
        assert_ne!(one.metadata_fingerprint(), two.metadata_fingerprint());
        one.store(8192, u64::MAX, &line(9), Stored::Metadata);
        assert_eq!(one.metadata_fingerprint(), two.metadata_fingerprint());
        assert_eq!(one.without_bare().fingerprint(), one.fingerprint());
        // What was metadata under it before is nothing.
        let mut three = Pages::new(16384);
        three.store(8192, u64::MAX, &line(9), Stored::Metadata);
        three.store(8192, u64::MAX, &line(7), Stored::Data);
        let mut four = Pages::new(16384);
        four.store(8192, u64::MAX, &line(8), Stored::Data);
        assert_eq!(three.metadata_fingerprint(), four.metadata_fingerprint());
        assert_eq!(three.metadata_fingerprint(), Pages::new(16384).metadata_fingerprint());
    }

    #[test]
    fn a_line_that_cant_be_loaded_tells_images_apart() {
        let one = Pages::new(16384);
        let mut two = one.clone();
        two.spoil(4096, Bad::Once);
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert!(one != two && two.has_bad() && two.without_bare().has_bad());
        assert_eq!((two.first_bad(0..4096), two.first_bad(64..8192)), (None, Some(4096)));
        two.renew(4096);
        assert_eq!((one.fingerprint(), &one), (two.fingerprint(), &two));
        two.spoil(64, Bad::Always);
        two.renew(64);
        assert_eq!(two.first_bad(0..4096), Some(64));
        two.heal();
        assert_eq!(one, two);
    }

    #[test]
    fn zeros_of_a_file_are_data_over_what_was_metadata() {
        let mut pages = Pages::new(16384);
        pages.store(4096, u64::MAX, &[1; LINE_BYTES], Stored::Metadata);
        pages.store(4160, u64::MAX, &[2; LINE_BYTES], Stored::Metadata);
        assert!(!pages.may_be_data(4096));
        pages.store(4096, 0xFF, &[0; LINE_BYTES], Stored::Data);
        assert!(pages.may_be_data(4096));
        // Until it is metadata again as a whole.
        pages.store(4096, 0xFF, &[3; LINE_BYTES], Stored::Metadata);
        assert!(pages.may_be_data(4096));
        pages.store(4096, u64::MAX, &[3; LINE_BYTES], Stored::Metadata);
        assert!(!pages.may_be_data(4096));
    }
}
