//! Streaming copies, range flushes and write windows over a [`Medium`].
//!
//! What this file guarantees: a byte of the region changes only through a
//! [`Window`]; a window never stores more than it was opened for (twins apart); every byte
//! that [`Window::copy_nt`] or [`Window::zero_nt`] writes is durable after the
//! same thread's next [`Door::fence`], whatever its alignment; where the region has
//! twins ([`Door::set_twins`]), no line or word of metadata is stored without its twin, in
//! the same window and so under the same fence.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;

use crate::noted::Noted;
use crate::wear::{Wear, Worn};
use crate::{Counters, LINE_BYTES, Line, Losses, MediaError, Medium};

const WORD_BYTES: u64 = 8;
const LINE: u64 = LINE_BYTES as u64;

/// What [`Window::zero_nt`] streams, some lines at a time.
static ZERO_LINES: [[u8; LINE_BYTES]; 64] = [Line::ZERO.0; 64];

/// The way to a region: loads, fences, and windows for stores.
#[derive(Debug)]
pub struct Door<M: Medium> {
    medium: M,
    wear: Wear,
    /// (Not in it: a door is moved when a pool is opened.)
    bad: Box<Noted>,
    /// Bytes between a line of metadata and its twin, a power of two; 0 without twins.
    twin_bytes: u64,
}

impl<M: Medium> Door<M> {
    /// A door to `medium`.
    pub fn new(medium: M) -> Self {
        Self { medium, wear: Wear::default(), bad: Box::default(), twin_bytes: 0 }
    }

    /// The same, which counts from now on how much is stored to each region.
    pub fn with_wear(self) -> Result<Self, TryReserveError> {
        let wear = Wear::new(self.bytes())?;
        Ok(Self { wear, ..self })
    }

    /// From now on each line and word of metadata is stored twice: at `at` and at `at ^ twin_bytes`
    /// ([`Door::twin_of`]). 0 ends that.
    ///
    /// # Panics
    /// Unless `twin_bytes` is 0, or a power of two that is no less than a line.
    pub fn set_twins(&mut self, twin_bytes: u64) {
        let possible = twin_bytes.is_power_of_two() && twin_bytes >= LINE;
        assert!(twin_bytes == 0 || possible, "twins {twin_bytes} bytes apart");
        self.twin_bytes = twin_bytes;
    }

    /// Where the twin of the metadata at `at` is; `None` where there are no twins.
    #[inline]
    pub fn twin_of(&self, at: u64) -> Option<u64> {
        (self.twin_bytes != 0).then_some(at ^ self.twin_bytes)
    }

    /// How much was stored to each region, but for what waits in counters of those who count alone ([`Door::count_all`]);
    /// nothing unless [`Door::with_wear`] asked for it.
    pub fn wear(&self) -> &Wear {
        &self.wear
    }

    /// Counts what was stored by who counts alone, which nobody does meanwhile, and waits to be counted with a later fence.
    pub fn count_all(&self, counters: &Counters) {
        counters.settle_all(&self.wear);
    }

    /// The medium behind the door, for what it says about itself.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// Bytes in the region.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.medium.bytes()
    }

    /// Loads `into.len()` bytes from offset `at`.
    #[inline]
    #[track_caller]
    pub fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.bounds(at, into.len() as u64)?;
        self.noted(self.medium.load(at, into))
    }

    /// Loads whole pieces of `piece` bytes from offset `at`, and says whether the CRC32C of each, of the bytes that were
    /// loaded, is the one that is kept of it from `crcs_at` on (side by side, little-endian): not, where those can't be loaded,
    /// which is not noted. The `ahead` bytes behind them are loaded next, as a hint.
    ///
    /// # Panics
    /// Where `piece` is 0.
    #[inline]
    #[track_caller]
    pub fn load_compared(
        &self,
        at: u64,
        into: &mut [u8],
        piece: usize,
        crcs_at: u64,
        ahead: u64,
    ) -> Result<bool, MediaError> {
        self.bounds(at, into.len() as u64)?;
        self.noted(self.medium.load_compared(at, into, piece, crcs_at, ahead))
    }

    /// Asks for the line that holds `at`, which is about to be loaded: a hint.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        self.medium.prefetch(at);
    }

    /// The same of so many lines, from that one on.
    #[inline]
    pub fn prefetch_lines(&self, at: u64, lines: u64) {
        self.medium.prefetch_lines(at, lines);
    }

    /// Loads the line at `at`, which must be aligned.
    #[inline]
    #[track_caller]
    pub fn load_line(&self, at: u64) -> Result<Line, MediaError> {
        self.bounds(at, LINE)?;
        let mut line = Line::ZERO;
        self.noted(self.medium.load(at, &mut line.0))?;
        Ok(line)
    }

    /// Loads the aligned word at `at` in one piece.
    #[inline]
    #[track_caller]
    pub fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        if !at.is_multiple_of(WORD_BYTES) {
            return Err(MediaError::OutOfBounds { at, len: WORD_BYTES });
        }
        self.bounds(at, WORD_BYTES)?;
        self.noted(self.medium.load_word(at))
    }

    /// How often the memory has lost what was stored, where that is told.
    pub fn losses(&self) -> Option<Losses> {
        self.medium.losses()
    }

    /// Calls `each` with start and length of what of the pool's region is known to be bad before it is loaded.
    pub fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        self.medium.for_each_listed_bad(each);
    }

    /// Calls `each` with start and length of what others have locked of the region.
    pub fn for_each_held(&self, each: &mut dyn FnMut(u64, u64)) {
        self.medium.for_each_held(each);
    }

    /// Calls `each` with the offset of each line at which a load has met bad memory since this was asked last. (Of very
    /// many at a time some are left out; the next load meets them again.)
    pub fn take_bad(&self, each: &mut dyn FnMut(u64)) {
        self.bad.take(each);
    }

    #[inline(always)]
    fn noted<T>(&self, loaded: Result<T, MediaError>) -> Result<T, MediaError> {
        if let Err(MediaError::Poisoned { at }) = loaded {
            self.bad.note(at);
        }
        loaded
    }

    /// Completes this thread's stores: they are durable when this returns `Ok`.
    #[inline]
    #[track_caller]
    pub fn fence(&self, counters: &Counters) -> Result<(), MediaError> {
        counters.add_fence();
        let fenced = self.medium.fence();
        counters.settle(&self.wear);
        fenced
    }

    /// As [`Door::fence`], by a thread that is about to fence again: what it has stored is brought to where it is counted then. (To
    /// count there waits until all that was streamed has reached the memory, and nothing else has to wait for that here.)
    ///
    /// # Errors
    /// The same.
    #[inline]
    #[track_caller]
    pub fn fence_more(&self, counters: &Counters) -> Result<(), MediaError> {
        counters.add_fence();
        self.medium.fence()
    }

    /// Opens a window for at most `bytes_max` bytes of stores by this thread.
    #[inline]
    pub fn window<'d>(&'d self, bytes_max: u64, counters: &'d Counters) -> Window<'d, M> {
        Window {
            raw: self.medium.open(),
            door: self,
            counters,
            bytes_left: bytes_max,
            lines: 0,
            streamed_bytes: 0,
            worn: Worn::default(),
        }
    }

    #[inline]
    fn bounds(&self, at: u64, len: u64) -> Result<(), MediaError> {
        let end = at.checked_add(len);
        if end.is_none_or(|end| end > self.medium.bytes()) {
            return Err(MediaError::OutOfBounds { at, len });
        }
        Ok(())
    }
}

/// The right of one thread to store into the region, for the life of this guard.
#[must_use]
pub struct Window<'d, M: Medium> {
    door: &'d Door<M>,
    counters: &'d Counters,
    raw: M::Window,
    bytes_left: u64,
    lines: u64,
    streamed_bytes: u64,
    worn: Worn,
}

impl<M: Medium> Window<'_, M> {
    /// Streams one aligned metadata line, and its twin if it has one.
    #[inline]
    #[track_caller]
    pub fn store_line(&mut self, at: u64, line: &Line) {
        self.spend(at, LINE);
        assert!(at.is_multiple_of(LINE), "line store at unaligned offset {at:#x}");
        self.lines += 1;
        self.door.medium.store_line(&mut self.raw, at, line);
        if let Some(twin) = self.twin(at, LINE) {
            self.lines += 1;
            self.door.medium.store_line(&mut self.raw, twin, line);
        }
    }

    /// Stores an aligned word of metadata through the cache in one piece, and starts its write-back;
    /// its twin's, too, if it has one.
    #[inline]
    #[track_caller]
    pub fn store_word(&mut self, at: u64, value: u64) {
        self.store_one_copy(at, value);
        if let Some(twin) = self.twin(at, WORD_BYTES) {
            self.put_word(twin, value);
        }
    }

    /// Streams an aligned word of metadata, and its twin if it has one.
    #[track_caller]
    pub fn stream_word(&mut self, at: u64, value: u64) {
        self.spend(at, WORD_BYTES);
        assert!(at.is_multiple_of(WORD_BYTES), "word store at unaligned offset {at:#x}");
        self.lines += 1;
        self.door.medium.stream_word(&mut self.raw, at, value);
        if let Some(twin) = self.twin(at, WORD_BYTES) {
            self.lines += 1;
            self.door.medium.stream_word(&mut self.raw, twin, value);
        }
    }

    /// Stores an aligned word of metadata as [`Window::store_word`] does, here alone: where its twin
    /// is not to be touched.
    #[inline]
    #[track_caller]
    pub fn store_one_copy(&mut self, at: u64, value: u64) {
        self.spend(at, WORD_BYTES);
        assert!(at.is_multiple_of(WORD_BYTES), "word store at unaligned offset {at:#x}");
        self.put_word(at, value);
    }

    #[inline]
    #[track_caller]
    fn put_word(&mut self, at: u64, value: u64) {
        self.lines += 1;
        self.door.medium.store_word(&mut self.raw, at, value);
        self.door.medium.write_back(&mut self.raw, at);
    }

    /// Stores an aligned word through the cache, its write-back left to eviction
    /// (an access time: nothing that a promise rests on).
    #[inline]
    #[track_caller]
    pub fn store_word_lazily(&mut self, at: u64, value: u64) {
        self.spend(at, WORD_BYTES);
        assert!(at.is_multiple_of(WORD_BYTES), "word store at unaligned offset {at:#x}");
        self.door.medium.store_word(&mut self.raw, at, value);
        if let Some(twin) = self.twin(at, WORD_BYTES) {
            self.door.medium.store_word(&mut self.raw, twin, value);
        }
    }

    /// Streams an aligned line in the place of one copy of metadata that can't be loaded, and of no other:
    /// a whole line makes bad memory good, where anything does. (As those of twins, its bytes are beside
    /// those that the window was opened for.)
    #[track_caller]
    pub fn renew_line(&mut self, at: u64, line: &Line) {
        let end = at.checked_add(LINE);
        let inside = end.is_some_and(|end| end <= self.door.medium.bytes());
        assert!(inside && at.is_multiple_of(LINE), "renewal of a line at {at:#x}");
        self.lines += 1;
        self.worn.store(&self.door.wear, at, LINE);
        self.door.medium.store_line(&mut self.raw, at, line);
    }

    /// Where the twin of `at .. at + len` goes, if there is one; it counts as stored.
    #[inline]
    #[track_caller]
    fn twin(&mut self, at: u64, len: u64) -> Option<u64> {
        let twin = self.door.twin_of(at)?;
        assert!(twin < self.door.medium.bytes(), "metadata at {at:#x} has no twin in the region");
        self.worn.store(&self.door.wear, twin, len);
        Some(twin)
    }

    /// Stores `bytes` at `at` through the cache, any alignment, without write-back:
    /// [`Window::flush`] the range when it is to become durable.
    #[track_caller]
    pub fn store(&mut self, at: u64, bytes: &[u8]) {
        self.spend(at, bytes.len() as u64);
        let to_word = ((WORD_BYTES - at % WORD_BYTES) % WORD_BYTES).min(bytes.len() as u64);
        let (head, rest) = bytes.split_at(to_word as usize);
        let (words, tail) = rest.as_chunks();
        let medium = &self.door.medium;
        if !head.is_empty() {
            medium.store_bytes(&mut self.raw, at, head);
        }
        if !words.is_empty() {
            medium.store_words(&mut self.raw, at + to_word, words);
        }
        if !tail.is_empty() {
            medium.store_bytes(&mut self.raw, at + (bytes.len() - tail.len()) as u64, tail);
        }
    }

    /// Starts the write-back of every line of `at .. at + len`: file data that was stored
    /// in place. (Metadata goes by [`Window::store_line`] and [`Window::store_word`].)
    #[track_caller]
    pub fn flush(&mut self, at: u64, len: u64) {
        let end = at.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.door.medium.bytes()),
            "flush of {len} bytes at {at:#x} outside the region"
        );
        if len == 0 {
            return;
        }
        let mut line = at - at % LINE;
        while line < at + len {
            self.door.medium.write_back(&mut self.raw, line);
            line += LINE;
        }
    }

    /// Streams `bytes` to `at`, any alignment: whole lines and words past the
    /// cache, odd edges through it with a write-back.
    #[track_caller]
    pub fn copy_nt(&mut self, at: u64, bytes: &[u8]) {
        self.spend(at, bytes.len() as u64);
        self.streamed_bytes += bytes.len() as u64;
        let to_line = ((LINE - at % LINE) % LINE).min(bytes.len() as u64);
        let (head, rest) = bytes.split_at(to_line as usize);
        self.stream_words(at, head);
        let (lines, tail) = rest.as_chunks();
        let at = at + to_line;
        if !lines.is_empty() {
            self.door.medium.store_lines(&mut self.raw, at, lines);
        }
        self.stream_words(at + (rest.len() - tail.len()) as u64, tail);
    }

    /// Streams `bytes` to `at`, which begins a line, and zeros to the end of the last line: where that is nobody's
    /// yet. (Memory may have gone bad unnoticed, and less than a line must not be stored to such.)
    #[track_caller]
    pub fn copy_lines(&mut self, at: u64, bytes: &[u8]) {
        assert!(at.is_multiple_of(LINE), "copy of lines to unaligned offset {at:#x}");
        let (lines, rest) = bytes.as_chunks::<LINE_BYTES>();
        self.copy_nt(at, lines.as_flattened());
        if !rest.is_empty() {
            let mut last = Line::ZERO;
            if let Some(head) = last.0.get_mut(..rest.len()) {
                head.copy_from_slice(rest);
            }
            self.copy_nt(at + (bytes.len() - rest.len()) as u64, &last.0);
        }
    }

    /// Streams the whole lines of `bytes` to `at`, which is aligned, and the sum (exclusive or) of their pieces of `piece`
    /// lines to `parity_at`, which is, too; gives the CRC32C of each piece.
    ///
    /// # Panics
    /// Where `piece` is 0.
    #[track_caller]
    pub fn copy_summed(
        &mut self,
        (at, parity_at): (u64, u64),
        bytes: &[u8],
        piece: usize,
        each: impl FnMut(u32),
    ) {
        let lines = bytes.as_chunks().0;
        let (len, parity) = (lines.as_flattened().len() as u64, (piece * LINE_BYTES) as u64);
        self.spend(at, len);
        self.spend(parity_at, parity);
        self.streamed_bytes += len + parity;
        let to = (at, parity_at);
        self.door.medium.store_summed(&mut self.raw, to, lines, piece, each);
    }

    /// Streams `len` zero bytes to `at`, any alignment.
    #[track_caller]
    pub fn zero_nt(&mut self, at: u64, len: u64) {
        self.spend(at, len);
        self.streamed_bytes += len;
        let to_line = ((LINE - at % LINE) % LINE).min(len);
        self.stream_words(at, Line::ZERO.0.get(..to_line as usize).unwrap_or_default());
        let mut at = at + to_line;
        let mut left = len - to_line;
        while left >= LINE {
            let lines = (left / LINE).min(ZERO_LINES.len() as u64);
            let zeros = ZERO_LINES.get(..lines as usize).unwrap_or_default();
            self.door.medium.store_lines(&mut self.raw, at, zeros);
            at += lines * LINE;
            left -= lines * LINE;
        }
        self.stream_words(at, Line::ZERO.0.get(..left as usize).unwrap_or_default());
    }

    /// Streams less than a line that lies within one line: aligned words past the
    /// cache, odd bytes through it with a write-back.
    #[inline]
    #[track_caller]
    fn stream_words(&mut self, at: u64, bytes: &[u8]) {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let in_word = (WORD_BYTES - at % WORD_BYTES).min(rest.len() as u64);
            let (piece, tail) = rest.split_at(in_word as usize);
            match <[u8; 8]>::try_from(piece) {
                Ok(word) => {
                    let value = u64::from_le_bytes(word);
                    self.door.medium.stream_word(&mut self.raw, at, value);
                }
                Err(_) => {
                    self.door.medium.store_bytes(&mut self.raw, at, piece);
                    self.door.medium.write_back(&mut self.raw, at);
                }
            }
            at += in_word;
            rest = tail;
        }
    }

    #[inline]
    #[track_caller]
    fn spend(&mut self, at: u64, len: u64) {
        assert!(len <= self.bytes_left, "window of too few bytes: {len} more at {at:#x}");
        let end = at.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.door.medium.bytes()),
            "store of {len} bytes at {at:#x} outside the region"
        );
        self.bytes_left -= len;
        self.worn.store(&self.door.wear, at, len);
    }
}

impl<M: Medium> Drop for Window<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.door.medium.close(&mut self.raw);
        self.counters.add_window(self.lines, self.streamed_bytes);
        self.worn.settle(&self.door.wear, self.counters.pending());
    }
}
