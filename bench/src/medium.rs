//! A medium with something else in the place of some of its instructions: what is left out, put
//! between, or watched, while the engine stays as it is.

use std::sync::Arc;

use lode_pmem::{LINE_BYTES, Line, Mapped, MediaError, Medium};

/// What is done in the place of instructions: what `under` does, unless said otherwise.
pub trait Way<U: Medium = Mapped>: Send + Sync + 'static {
    /// What is known of a window that is open.
    type Notes: Default;

    /// Before a window closes.
    #[inline]
    fn closing(&self, _under: &U, _window: &mut U::Window, _notes: &mut Self::Notes) {}

    /// [`Medium::load`].
    #[inline]
    fn load(&self, under: &U, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        under.load(at, into)
    }

    /// [`Medium::store_line`].
    #[inline]
    fn store_line(&self, under: &U, to: (&mut U::Window, &mut Self::Notes), at: u64, line: &Line) {
        under.store_line(to.0, at, line);
    }

    /// [`Medium::store_lines`].
    #[inline]
    fn store_lines(
        &self,
        under: &U,
        to: (&mut U::Window, &mut Self::Notes),
        at: u64,
        lines: &[[u8; LINE_BYTES]],
    ) {
        under.store_lines(to.0, at, lines);
    }

    /// [`Medium::store_word`].
    #[inline]
    fn store_word(&self, under: &U, to: (&mut U::Window, &mut Self::Notes), at: u64, value: u64) {
        under.store_word(to.0, at, value);
    }

    /// [`Medium::store_words`].
    #[inline]
    fn store_words(
        &self,
        under: &U,
        to: (&mut U::Window, &mut Self::Notes),
        at: u64,
        words: &[[u8; 8]],
    ) {
        under.store_words(to.0, at, words);
    }

    /// [`Medium::stream_word`].
    #[inline]
    fn stream_word(&self, under: &U, to: (&mut U::Window, &mut Self::Notes), at: u64, value: u64) {
        under.stream_word(to.0, at, value);
    }

    /// [`Medium::write_back`].
    #[inline]
    fn write_back(&self, under: &U, to: (&mut U::Window, &mut Self::Notes), at: u64) {
        under.write_back(to.0, at);
    }

    /// [`Medium::fence`].
    #[inline]
    fn fence(&self, under: &U) -> Result<(), MediaError> {
        under.fence()
    }
}

/// A medium whose instructions are done in another way.
pub struct Wrapped<W, U = Mapped> {
    under: Arc<U>,
    way: W,
    bytes: u64,
}

impl<W, U: Medium> Wrapped<W, U> {
    /// Of the first `bytes` bytes of `under`.
    pub fn new(under: &Arc<U>, bytes: u64, way: W) -> Self {
        Self { under: Arc::clone(under), way, bytes: bytes.min(under.bytes()) }
    }
}

impl<W: Way<U>, U: Medium + 'static> Medium for Wrapped<W, U> {
    type Window = (U::Window, W::Notes);

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn open(&self) -> Self::Window {
        (self.under.open(), W::Notes::default())
    }

    #[inline]
    fn close(&self, window: &mut Self::Window) {
        self.way.closing(&self.under, &mut window.0, &mut window.1);
        self.under.close(&mut window.0);
    }

    #[inline]
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        self.under.load_word(at)
    }

    #[inline]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.way.load(&self.under, at, into)
    }

    #[inline]
    fn store_word(&self, (window, notes): &mut Self::Window, at: u64, value: u64) {
        self.way.store_word(&self.under, (window, notes), at, value);
    }

    #[inline]
    fn store_bytes(&self, (window, _): &mut Self::Window, at: u64, bytes: &[u8]) {
        self.under.store_bytes(window, at, bytes);
    }

    #[inline]
    fn store_line(&self, (window, notes): &mut Self::Window, at: u64, line: &Line) {
        self.way.store_line(&self.under, (window, notes), at, line);
    }

    #[inline]
    fn store_lines(&self, (window, notes): &mut Self::Window, at: u64, lines: &[[u8; LINE_BYTES]]) {
        self.way.store_lines(&self.under, (window, notes), at, lines);
    }

    #[inline]
    fn store_words(&self, (window, notes): &mut Self::Window, at: u64, words: &[[u8; 8]]) {
        self.way.store_words(&self.under, (window, notes), at, words);
    }

    #[inline]
    fn stream_word(&self, (window, notes): &mut Self::Window, at: u64, value: u64) {
        self.way.stream_word(&self.under, (window, notes), at, value);
    }

    #[inline]
    fn write_back(&self, (window, notes): &mut Self::Window, at: u64) {
        self.way.write_back(&self.under, (window, notes), at);
    }

    #[inline]
    fn fence(&self) -> Result<(), MediaError> {
        self.way.fence(&self.under)
    }
}
