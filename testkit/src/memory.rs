//! A medium of plain memory: what is stored is there, and durable, at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, OnceLock};

use lode_pmem::{LINE_BYTES, Line, Losses, MediaError, Medium};
use parking_lot::Mutex;

/// Bytes in a chunk; chunks come into being when first stored to.
const CHUNK: u64 = 64 * 1024;
const WORDS: usize = (CHUNK / 8) as usize;

type Chunk = Box<[AtomicU64]>;

/// A region in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bytes: u64,
    chunks: Vec<OnceLock<Chunk>>,
    stores: AtomicU64,
    fences_left: AtomicU64,
    told: Mutex<Told>,
}

/// What the system is to tell of the memory.
#[derive(Debug, Default)]
struct Told {
    losses: Option<Losses>,
    bad: Vec<(u64, u64)>,
    held: Vec<(u64, u64)>,
}

impl Memory {
    /// A region of `bytes` zeros.
    pub fn new(bytes: u64) -> Self {
        let mut chunks = Vec::new();
        chunks.resize_with(bytes.div_ceil(CHUNK) as usize, OnceLock::new);
        let (stores, fences_left) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let told = Mutex::default();
        Self { inner: Arc::new(Inner { bytes, chunks, stores, fences_left, told }) }
    }

    /// A region that holds `image`.
    pub fn from_image(image: &[u8]) -> Self {
        let memory = Self::new(image.len() as u64);
        for (index, piece) in image.chunks(CHUNK as usize).enumerate() {
            if piece.iter().any(|&byte| byte != 0) {
                memory.put(index as u64 * CHUNK, piece);
            }
        }
        memory
    }

    /// After so many more fences, all of them fail.
    pub fn fail_fences_after(&self, fences: u64) {
        self.inner.fences_left.store(fences, SeqCst);
    }

    /// From now on the system says that the memory has lost what was stored so often.
    pub fn tell_losses(&self, losses: Option<Losses>) {
        self.inner.told.lock().losses = losses;
    }

    /// From now on the system lists these bytes as bad.
    pub fn list_bad(&self, at: u64, len: u64) {
        self.inner.told.lock().bad.push((at, len));
    }

    /// From now on somebody else holds a lock on these bytes.
    pub fn hold(&self, at: u64, len: u64) {
        self.inner.told.lock().held.push((at, len));
    }

    /// Nobody holds any lock any more.
    pub fn hold_nothing(&self) {
        self.inner.told.lock().held.clear();
    }

    /// The contents as bytes.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.inner.bytes as usize];
        for (piece, chunk) in image.chunks_mut(CHUNK as usize).zip(&self.inner.chunks) {
            if let Some(words) = chunk.get() {
                for (bytes, word) in piece.chunks_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..bytes.len()]);
                }
            }
        }
        image
    }

    /// A region of its own with the same contents.
    pub fn copy(&self) -> Self {
        let copy = Self::new(self.inner.bytes);
        for (from, to) in self.inner.chunks.iter().zip(&copy.inner.chunks) {
            if let Some(words) = from.get() {
                to.get_or_init(|| {
                    words.iter().map(|word| AtomicU64::new(word.load(Relaxed))).collect()
                });
            }
        }
        copy
    }

    /// Makes all of the memory be there, so that no time measured later holds first touches.
    pub fn prefault(&self) {
        for chunk in &self.inner.chunks {
            chunk.get_or_init(new_chunk);
        }
    }

    /// Changes bytes from outside, as damage does.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            let at = at + index as u64;
            let word = self.word(at & !7);
            let shift = (at % 8) * 8;
            let old = word.load(Relaxed);
            word.store(old & !(0xff << shift) | (u64::from(byte) << shift), Relaxed);
        }
    }

    /// Bytes at an offset, for looking from outside.
    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fetch(at, &mut bytes);
        bytes
    }

    /// Store instructions so far (of any kind).
    pub fn stores(&self) -> u64 {
        self.inner.stores.load(Relaxed)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "unaligned word {at:#x}");
        assert!(at < self.inner.bytes, "word {at:#x} outside the region");
        let chunk = self.inner.chunks[(at / CHUNK) as usize].get_or_init(new_chunk);
        &chunk[(at % CHUNK / 8) as usize]
    }

    fn value(&self, at: u64) -> u64 {
        match self.inner.chunks[(at / CHUNK) as usize].get() {
            Some(chunk) => chunk[(at % CHUNK / 8) as usize].load(Relaxed),
            None => 0,
        }
    }

    fn fetch(&self, mut at: u64, into: &mut [u8]) {
        let mut rest = into;
        while !rest.is_empty() {
            let in_chunk = (CHUNK - at % CHUNK).min(rest.len() as u64) as usize;
            let (piece, tail) = rest.split_at_mut(in_chunk);
            match self.inner.chunks[(at / CHUNK) as usize].get() {
                Some(chunk) => fetch_words(chunk, (at % CHUNK) as usize, piece),
                None => piece.fill(0),
            }
            at += in_chunk as u64;
            rest = tail;
        }
    }

    fn count(&self) {
        self.inner.stores.fetch_add(1, Relaxed);
    }
}

/// Bytes from place `at` of a chunk.
fn fetch_words(chunk: &[AtomicU64], at: usize, into: &mut [u8]) {
    let head = ((8 - at % 8) % 8).min(into.len());
    let (first, rest) = into.split_at_mut(head);
    if head > 0 {
        let word = chunk[at / 8].load(Relaxed).to_le_bytes();
        first.copy_from_slice(&word[at % 8..at % 8 + head]);
    }
    for (bytes, word) in rest.chunks_mut(8).zip(&chunk[(at + head) / 8..]) {
        bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..bytes.len()]);
    }
}

fn new_chunk() -> Chunk {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

impl Medium for Memory {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    fn losses(&self) -> Option<Losses> {
        self.inner.told.lock().losses
    }

    fn for_each_held(&self, each: &mut dyn FnMut(u64, u64)) {
        for (at, len) in self.inner.told.lock().held.clone() {
            each(at, len);
        }
    }

    fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        self.inner.told.lock().bad.iter().for_each(|(at, len)| each(*at, *len));
    }

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        assert!(at.is_multiple_of(8) && at + 8 <= self.inner.bytes, "bad word load at {at:#x}");
        Ok(self.value(at))
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        assert!(at + into.len() as u64 <= self.inner.bytes, "bad load at {at:#x}");
        self.fetch(at, into);
        Ok(())
    }

    fn store_word(&self, _window: &mut (), at: u64, value: u64) {
        self.count();
        self.word(at).store(value, Relaxed);
    }

    fn store_bytes(&self, _window: &mut (), at: u64, bytes: &[u8]) {
        let inside = at % 8 + bytes.len() as u64 <= 8;
        assert!(inside && !bytes.is_empty(), "store of bytes across words at {at:#x}");
        self.count();
        let mut mask = 0;
        let mut value = 0;
        for (index, &byte) in bytes.iter().enumerate() {
            let shift = (at % 8 + index as u64) * 8;
            mask |= 0xff << shift;
            value |= u64::from(byte) << shift;
        }
        // Bytes next to each other may be stored by two threads.
        let _ = self.word(at & !7).fetch_update(Relaxed, Relaxed, |old| Some(old & !mask | value));
    }

    fn store_line(&self, _window: &mut (), at: u64, line: &Line) {
        assert!(at.is_multiple_of(LINE_BYTES as u64), "unaligned line {at:#x}");
        self.count();
        for (index, bytes) in line.0.chunks_exact(8).enumerate() {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            self.word(at + index as u64 * 8).store(u64::from_le_bytes(word), Relaxed);
        }
    }

    fn stream_word(&self, window: &mut (), at: u64, value: u64) {
        self.store_word(window, at, value);
    }

    fn write_back(&self, _window: &mut (), at: u64) {
        assert!(at < self.inner.bytes, "write-back outside the region");
    }

    fn fence(&self) -> Result<(), MediaError> {
        fence(SeqCst);
        let left = |left: u64| left.checked_sub(1);
        let done = self.inner.fences_left.fetch_update(SeqCst, SeqCst, left);
        done.map(|_| ()).map_err(|_| MediaError::Unwritten)
    }

    fn fence_can_fail(&self) -> bool {
        self.inner.fences_left.load(SeqCst) < u64::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded_at_any_alignment() {
        let memory = Memory::new(3 * CHUNK);
        let bytes: Vec<u8> = (1..=50).collect();
        for at in [0, 1, 7, CHUNK - 20, CHUNK - 1] {
            memory.put(at, &bytes);
            assert_eq!(memory.get(at, bytes.len()), bytes);
        }
        memory.store_bytes(&mut (), 17, &[9, 8]);
        assert_eq!(memory.get(16, 4), [memory.get(16, 1)[0], 9, 8, memory.get(19, 1)[0]]);
        assert_eq!(Memory::from_image(&memory.image()).image(), memory.image());
        assert_eq!(memory.copy().image(), memory.image());
    }
}
