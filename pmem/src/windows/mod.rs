//! Write windows of a mapped region: who may store, and when.
//!
//! What this file guarantees: with [`WindowMode::Key`] a store succeeds only in a
//! thread that holds a window; with [`WindowMode::Mprotect`] only in pages that some
//! open window has stored into; with [`WindowMode::None`] nothing is guarded.
//!
//! In every mode the mapping is not inherited by `fork`: a child that touches it
//! dies by SIGSEGV.

pub(crate) mod key;
pub(crate) mod protect;

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use key::Key;
use protect::Protect;

use crate::emulation::Taken;

/// What guards a region against stores outside windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowMode {
    /// A memory protection key: stores are the right of one thread, for 20 ns.
    ///
    /// System calls obey it too (`EFAULT`), and signal handlers start without the
    /// right even when they interrupt an open window. Windows of one thread nest, and
    /// must be closed in the reverse order.
    Key,
    /// `mprotect` of each page that a window stores into, counted, for debugging.
    ///
    /// Slow, and weaker than keys: while a window is open, its pages are open to the
    /// whole process.
    Mprotect,
    /// Nothing: the mapping is writable all the time.
    None,
}

impl WindowMode {
    /// All of them, best first.
    pub const ALL: [Self; 3] = [Self::Key, Self::Mprotect, Self::None];

    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Mprotect => "mprotect",
            Self::None => "none",
        }
    }
}

impl fmt::Display for WindowMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`WindowMode`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownWindowMode(String);

impl fmt::Display for UnknownWindowMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "no window mode is called {text:?}: it is one of key, mprotect, none")
    }
}

impl core::error::Error for UnknownWindowMode {}

impl FromStr for WindowMode {
    type Err = UnknownWindowMode;
    fn from_str(text: &str) -> Result<Self, UnknownWindowMode> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| UnknownWindowMode(text.to_owned()))
    }
}

/// The right to store into a [`crate::Mapped`], of the thread that opened it.
#[derive(Debug)]
pub struct MappedWindow {
    /// Key: the thread held a window already, which stays open when this one closes.
    was_open: bool,
    /// Mprotect: pages that this window holds open.
    pages: Vec<u64>,
    /// What it has stored, where that is to take its time.
    pub(crate) taken: Taken,
    /// A window belongs to its thread.
    not_send: PhantomData<*mut ()>,
}

/// How a region is guarded, with what that takes.
#[derive(Debug)]
pub(crate) enum Guard {
    Key(Key),
    Mprotect(Protect),
    None,
}

impl Guard {
    pub(crate) fn mode(&self) -> WindowMode {
        match self {
            Self::Key(_) => WindowMode::Key,
            Self::Mprotect(_) => WindowMode::Mprotect,
            Self::None => WindowMode::None,
        }
    }

    /// The protection key, -1 where there is none.
    pub(crate) fn key_number(&self) -> core::ffi::c_int {
        match self {
            Self::Key(key) => key.number(),
            Self::Mprotect(_) | Self::None => -1,
        }
    }

    #[inline]
    pub(crate) fn open(&self) -> MappedWindow {
        MappedWindow {
            was_open: match self {
                Self::Key(key) => key.open(),
                Self::Mprotect(_) | Self::None => false,
            },
            pages: Vec::new(),
            taken: Taken::default(),
            not_send: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn close(&self, window: &mut MappedWindow) {
        match self {
            Self::Key(key) => key.close(window.was_open),
            Self::Mprotect(protect) => protect.close(&mut window.pages),
            Self::None => {}
        }
    }

    /// Makes `at .. at + len` ready for stores of this window.
    #[inline]
    pub(crate) fn before_store(&self, window: &mut MappedWindow, at: u64, len: u64) {
        let opened = self.try_before_store(window, at, len);
        assert!(opened.is_ok(), "pages of a region can't be opened: {opened:?}");
    }

    /// The same.
    ///
    /// # Errors
    /// The system can't open the pages: they are closed, as before.
    #[inline]
    pub(crate) fn try_before_store(
        &self,
        window: &mut MappedWindow,
        at: u64,
        len: u64,
    ) -> std::io::Result<()> {
        match self {
            Self::Mprotect(protect) => protect.open(&mut window.pages, at, len),
            Self::Key(_) | Self::None => Ok(()),
        }
    }
}
