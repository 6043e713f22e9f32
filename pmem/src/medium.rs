//! The instructions a medium understands, and nothing above them.
//!
//! A [`Medium`] is what an implementation has to give: a mapped file, anonymous
//! memory, or a simulation that records every instruction with its call site
//! (the methods are `track_caller` for that; it costs nothing where inlined).

use core::num::NonZeroU32;

use crate::crc32c::are_crcs;
use crate::{LINE_BYTES, Line, crc32c_pieces};

/// A load that could not be served, or a fence that could not be completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediaError {
    /// The range is not inside the region. Offset in bytes.
    OutOfBounds {
        /// First byte asked for.
        at: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// The memory reported an uncorrectable error (poison). Offset in bytes.
    Poisoned {
        /// Where the load was.
        at: u64,
    },
    /// What was stored could not be made durable.
    Unwritten,
}

impl core::fmt::Display for MediaError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OutOfBounds { at, len } => {
                write!(f, "load of {len} bytes at offset {at:#x} is outside the region")
            }
            Self::Poisoned { at } => write!(f, "uncorrectable media error at offset {at:#x}"),
            Self::Unwritten => f.write_str("what was stored could not be made durable"),
        }
    }
}

impl core::error::Error for MediaError {}

/// How often memory has lost what it had been given, though it had promised to keep it when the power fails (Linux: dirty
/// shutdowns).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Losses {
    /// Of what memory: other modules have another number.
    pub of: NonZeroU32,
    /// How often, since it was made.
    pub count: u64,
}

/// A region of persistent memory, as instructions.
///
/// Offsets are bytes from the start of the region. Stores may only be made with
/// a window of this medium; their offsets are the caller's to have checked, and
/// an implementation asserts them. What a store promises is durable only after
/// a write-back (for cached stores) and a fence by the same thread.
pub trait Medium: Send + Sync {
    /// The right to store, held for a few lines of code by one thread.
    type Window;

    /// Bytes in the region.
    fn bytes(&self) -> u64;

    /// How often its memory has lost what was stored, where that is told.
    fn losses(&self) -> Option<Losses> {
        None
    }

    /// Calls `each` with the start and the length of each piece of the region that is known to be bad before it is loaded.
    fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        let _ = each;
    }

    /// Calls `each` with the start and the length of each piece of the region that somebody else has a lock on: a program that
    /// was lent it as memory, and has it still though its lender may be gone.
    fn for_each_held(&self, each: &mut dyn FnMut(u64, u64)) {
        let _ = each;
    }

    /// Opens the region for stores by this thread.
    fn open(&self) -> Self::Window;

    /// Closes what [`Medium::open`] opened. Called once per window, by its thread.
    fn close(&self, window: &mut Self::Window);

    /// Loads the aligned 8-byte word at `at` in one piece.
    #[track_caller]
    fn load_word(&self, at: u64) -> Result<u64, MediaError>;

    /// Loads `into.len()` bytes from `at`. Not atomic beyond aligned words.
    #[track_caller]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError>;

    /// Loads whole pieces of `piece` bytes from `at` as [`Medium::load`] does, and says whether the CRC32C of each, from 0, of the
    /// bytes that `into` has got, is the one that is kept of it from `crcs_at` on, side by side and little-endian: not, where those
    /// can't be loaded. They are loaded behind the pieces. A medium may do it faster than this does, by not looking at them twice,
    /// and ask meanwhile for the `ahead` bytes behind the pieces, which are loaded next: a hint, as [`Medium::prefetch`].
    ///
    /// # Panics
    /// Where `piece` is 0.
    #[inline]
    #[track_caller]
    fn load_compared(
        &self,
        at: u64,
        into: &mut [u8],
        piece: usize,
        crcs_at: u64,
        ahead: u64,
    ) -> Result<bool, MediaError> {
        load_compared_plainly(self, at, into, piece, crcs_at, ahead)
    }

    /// Asks for the line that holds `at`, which is about to be loaded: a hint, which waits for nothing and may be
    /// of no effect.
    #[inline]
    fn prefetch(&self, at: u64) {
        let _ = at;
    }

    /// Asks for as many lines, from the one that holds `at` on.
    fn prefetch_lines(&self, at: u64, lines: u64) {
        (0..lines).for_each(|line| self.prefetch(at.saturating_add(line * LINE_BYTES as u64)));
    }

    /// Stores the aligned word at `at` through the cache, in one piece.
    #[track_caller]
    fn store_word(&self, window: &mut Self::Window, at: u64, value: u64);

    /// Stores bytes through the cache that lie within one aligned word (1 to 7 of them).
    #[track_caller]
    fn store_bytes(&self, window: &mut Self::Window, at: u64, bytes: &[u8]);

    /// Streams one aligned line past the cache; 8-byte words of it may become
    /// durable in any order unless the CPU stores a line in one piece.
    #[track_caller]
    fn store_line(&self, window: &mut Self::Window, at: u64, line: &Line);

    /// Streams whole lines from aligned `at` on: as if each of `lines` were given to
    /// [`Medium::store_line`] in turn, which is what this does unless a medium can do
    /// it faster (by not bringing the bytes into an aligned [`Line`] first).
    #[inline]
    #[track_caller]
    fn store_lines(&self, window: &mut Self::Window, at: u64, lines: &[[u8; LINE_BYTES]]) {
        let mut at = at;
        for bytes in lines {
            self.store_line(window, at, &Line(*bytes));
            at += LINE_BYTES as u64;
        }
    }

    /// Streams whole lines as [`Medium::store_lines`] does, to `parity_at` the sum (exclusive or) of all their pieces of `piece`
    /// lines, and gives the CRC32C of each piece, from 0. As there, a medium may do it faster. What is left behind the last
    /// whole piece counts in no sum.
    ///
    /// # Panics
    /// Where `piece` is 0.
    #[inline]
    #[track_caller]
    fn store_summed(
        &self,
        window: &mut Self::Window,
        (at, parity_at): (u64, u64),
        lines: &[[u8; LINE_BYTES]],
        piece: usize,
        each: impl FnMut(u32),
    ) where
        Self: Sized,
    {
        store_summed_plainly(self, window, (at, parity_at), lines, piece, each);
    }

    /// Stores words through the cache from aligned `at` on: as if each were given to
    /// [`Medium::store_word`] in turn, which is what this does unless a medium can do it faster.
    #[inline]
    #[track_caller]
    fn store_words(&self, window: &mut Self::Window, at: u64, words: &[[u8; 8]]) {
        let mut at = at;
        for word in words {
            self.store_word(window, at, u64::from_le_bytes(*word));
            at += 8;
        }
    }

    /// Streams the aligned word at `at` past the cache.
    #[track_caller]
    fn stream_word(&self, window: &mut Self::Window, at: u64, value: u64);

    /// Starts the write-back of the cached line that holds `at`.
    #[track_caller]
    fn write_back(&self, window: &mut Self::Window, at: u64);

    /// Orders and completes this thread's streaming stores and write-backs. Only a medium that
    /// writes through the operating system can fail, and once it has, so do all later fences.
    #[track_caller]
    fn fence(&self) -> Result<(), MediaError>;

    /// Whether fences go through the operating system: they can fail then, and take so long that nothing
    /// that is done meanwhile counts.
    #[inline]
    fn fence_can_fail(&self) -> bool {
        true
    }
}

/// Bytes that are loaded before they are looked at again: they are in the nearest cache then, and while their checksums are
/// computed the memory has as many others to bring, which have been asked for.
const NEAR_BYTES: usize = 2048;
/// Checksums that are loaded at a time.
const CRCS: usize = NEAR_BYTES / 512;

/// [`Medium::load_compared`], by [`Medium::load`].
///
/// What is loaded next is asked for behind what is loaded now, not before it: processors that see somebody read on ask for lines
/// themselves, and begin anew with one that does not follow.
#[track_caller]
pub(crate) fn load_compared_plainly<M: Medium + ?Sized>(
    medium: &M,
    at: u64,
    into: &mut [u8],
    piece: usize,
    crcs_at: u64,
    ahead: u64,
) -> Result<bool, MediaError> {
    let (mut at, mut crcs_at, mut rest, mut are_same) = (at, crcs_at, into, true);
    let near = (NEAR_BYTES / piece).clamp(1, CRCS) * piece;
    while let Some((now, more)) = rest.split_at_mut_checked(rest.len().min(near))
        && !now.is_empty()
    {
        medium.load(at, now)?;
        at = at.saturating_add(now.len() as u64);
        let next = ahead.saturating_add(more.len() as u64).min(near as u64);
        medium.prefetch_lines(at, next.div_ceil(LINE_BYTES as u64));
        medium.prefetch(crcs_at.saturating_add(LINE_BYTES as u64));
        let mut kept = [[0; 4]; CRCS];
        let kept = kept.get_mut(..now.len() / piece).unwrap_or_default();
        let are_known = medium.load(crcs_at, kept.as_flattened_mut()).is_ok();
        are_same &= are_known && are_crcs(now, piece, kept);
        crcs_at = crcs_at.saturating_add(kept.as_flattened().len() as u64);
        rest = more;
    }
    Ok(are_same)
}

/// [`Medium::store_summed`], of other instructions.
#[track_caller]
pub(crate) fn store_summed_plainly<M: Medium>(
    medium: &M,
    window: &mut M::Window,
    (at, parity_at): (u64, u64),
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    each: impl FnMut(u32),
) {
    medium.store_lines(window, at, lines);
    crc32c_pieces(lines.as_flattened(), piece * LINE_BYTES, each);
    for number in 0..piece {
        // (A line's sum stays in registers.)
        let mut words = [0; LINE_BYTES / 8];
        for piece in lines.chunks_exact(piece) {
            let line = piece.get(number).map_or(&[][..], |line| line.as_chunks::<8>().0);
            for (word, bytes) in words.iter_mut().zip(line) {
                *word ^= u64::from_le_bytes(*bytes);
            }
        }
        let mut parity = Line::ZERO;
        for (bytes, word) in parity.0.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        medium.store_line(window, parity_at + (number * LINE_BYTES) as u64, &parity);
    }
}

/// A medium that is lent.
impl<M: Medium> Medium for &M {
    type Window = M::Window;

    #[inline]
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    fn losses(&self) -> Option<Losses> {
        (**self).losses()
    }

    fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        (**self).for_each_listed_bad(each);
    }

    fn for_each_held(&self, each: &mut dyn FnMut(u64, u64)) {
        (**self).for_each_held(each);
    }

    #[inline]
    fn open(&self) -> Self::Window {
        (**self).open()
    }

    #[inline]
    fn close(&self, window: &mut Self::Window) {
        (**self).close(window);
    }

    #[inline]
    #[track_caller]
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        (**self).load_word(at)
    }

    #[inline]
    #[track_caller]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        (**self).load(at, into)
    }

    #[inline]
    #[track_caller]
    fn load_compared(
        &self,
        at: u64,
        into: &mut [u8],
        piece: usize,
        crcs_at: u64,
        ahead: u64,
    ) -> Result<bool, MediaError> {
        (**self).load_compared(at, into, piece, crcs_at, ahead)
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        (**self).prefetch(at);
    }

    #[inline]
    fn prefetch_lines(&self, at: u64, lines: u64) {
        (**self).prefetch_lines(at, lines);
    }

    #[inline]
    #[track_caller]
    fn store_word(&self, window: &mut Self::Window, at: u64, value: u64) {
        (**self).store_word(window, at, value);
    }

    #[inline]
    #[track_caller]
    fn store_bytes(&self, window: &mut Self::Window, at: u64, bytes: &[u8]) {
        (**self).store_bytes(window, at, bytes);
    }

    #[inline]
    #[track_caller]
    fn store_line(&self, window: &mut Self::Window, at: u64, line: &Line) {
        (**self).store_line(window, at, line);
    }

    #[inline]
    #[track_caller]
    fn store_lines(&self, window: &mut Self::Window, at: u64, lines: &[[u8; LINE_BYTES]]) {
        (**self).store_lines(window, at, lines);
    }

    #[inline]
    #[track_caller]
    fn store_summed(
        &self,
        window: &mut Self::Window,
        at: (u64, u64),
        lines: &[[u8; LINE_BYTES]],
        piece: usize,
        each: impl FnMut(u32),
    ) {
        (**self).store_summed(window, at, lines, piece, each);
    }

    #[inline]
    #[track_caller]
    fn store_words(&self, window: &mut Self::Window, at: u64, words: &[[u8; 8]]) {
        (**self).store_words(window, at, words);
    }

    #[inline]
    #[track_caller]
    fn stream_word(&self, window: &mut Self::Window, at: u64, value: u64) {
        (**self).stream_word(window, at, value);
    }

    #[inline]
    #[track_caller]
    fn write_back(&self, window: &mut Self::Window, at: u64) {
        (**self).write_back(window, at);
    }

    #[inline]
    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        (**self).fence()
    }

    #[inline]
    fn fence_can_fail(&self) -> bool {
        (**self).fence_can_fail()
    }
}
