//! The bytes of a region, copied only where they change.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use lode_pmem::LINE_BYTES;

const PAGE: usize = 4096;

/// A region's bytes. A clone shares every page until one of the two changes it.
#[derive(Clone, Debug)]
pub struct Pages {
    pages: Vec<Option<Arc<[u8; PAGE]>>>,
}

impl Pages {
    /// `bytes` zeros, whole pages of them.
    pub fn new(bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(PAGE as u64), "a region of whole pages");
        Self { pages: vec![None; (bytes / PAGE as u64) as usize] }
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
                Some(page) => piece.copy_from_slice(&page[from..from + len]),
                None => piece.fill(0),
            }
            at += len as u64;
            rest = tail;
        }
    }

    /// Changes the bytes of the line at `line` that `mask` names, one bit a byte.
    pub fn store(&mut self, line: u64, mask: u64, bytes: &[u8; LINE_BYTES]) {
        let page = &mut self.pages[(line / PAGE as u64) as usize];
        let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE])));
        let from = (line % PAGE as u64) as usize;
        let target = &mut page[from..from + LINE_BYTES];
        if mask == u64::MAX {
            target.copy_from_slice(bytes);
            return;
        }
        for (index, (to, new)) in target.iter_mut().zip(bytes).enumerate() {
            if mask >> index & 1 == 1 {
                *to = *new;
            }
        }
    }

    /// Hashes the pages that are not those of `start`.
    pub fn hash_changes(&self, start: &Pages, hasher: &mut impl Hasher) {
        for (number, (one, two)) in self.pages.iter().zip(&start.pages).enumerate() {
            let same = match (one, two) {
                (Some(one), Some(two)) => Arc::ptr_eq(one, two),
                (one, two) => one.is_none() && two.is_none(),
            };
            if !same {
                (number, one).hash(hasher);
            }
        }
    }

    /// All bytes, one after another.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.pages.len() * PAGE];
        self.load(0, &mut image);
        image
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<[u8; PAGE]>>, two: &Option<Arc<[u8; PAGE]>>| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
            (None, None) => true,
            (Some(page), None) | (None, Some(page)) => page.iter().all(|&byte| byte == 0),
        };
        self.pages.len() == other.pages.len()
            && self.pages.iter().zip(&other.pages).all(|(one, two)| same(one, two))
    }
}
