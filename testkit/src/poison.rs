//! A medium some of whose lines can't be loaded.
//!
//! It is as memory is: a load of bad lines gives an error. A whole line that is streamed makes a bad one good,
//! or does not ([`Healing`]). A store of less than a line would have to load the rest first, which kills
//! a program on real hardware: so it is counted, and a test fails that finds one counted
//! ([`Poisoned::machine_checks`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::{LINE_BYTES, Line, Losses, MediaError, Medium};
use parking_lot::RwLock;

const LINE: u64 = LINE_BYTES as u64;

/// What a whole line that is stored does to a bad one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Healing {
    /// It is good again.
    ByLines,
    /// It stays bad, and what is stored is lost.
    Never,
}

/// A medium that can be poisoned. Clones share it.
#[derive(Clone, Debug)]
pub struct Poisoned<M> {
    inner: M,
    healing: Healing,
    lines: Arc<RwLock<BTreeSet<u64>>>,
    machine_checks: Arc<AtomicU64>,
}

impl<M: Medium> Poisoned<M> {
    /// `inner`, with nothing bad yet.
    pub fn new(inner: M, healing: Healing) -> Self {
        let (lines, machine_checks) = (Arc::default(), Arc::default());
        Self { inner, healing, lines, machine_checks }
    }

    /// From now on all lines that `at .. at + bytes` touches are bad.
    pub fn poison(&self, at: u64, bytes: u64) {
        self.lines.write().extend(lines_of(at, bytes));
    }

    /// All lines that `at .. at + bytes` touches are good again, with what was in them.
    pub fn mend(&self, at: u64, bytes: u64) {
        let mut lines = self.lines.write();
        lines_of(at, bytes).for_each(|line| {
            lines.remove(&line);
        });
    }

    /// The bad lines by offset, in order.
    pub fn bad(&self) -> Vec<u64> {
        self.lines.read().iter().copied().collect()
    }

    /// Stores that would have killed the program: of less than a line, to a bad one.
    pub fn machine_checks(&self) -> u64 {
        self.machine_checks.load(Relaxed)
    }

    /// The medium below, which nothing is wrong with.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    fn look(&self, at: u64, bytes: u64) -> Result<(), MediaError> {
        let lines = self.lines.read();
        match lines.range(at - at % LINE..at + bytes).next() {
            Some(line) => Err(MediaError::Poisoned { at: at.max(*line) }),
            None => Ok(()),
        }
    }

    fn store_part(&self, at: u64) {
        if self.lines.read().contains(&(at - at % LINE)) {
            self.machine_checks.fetch_add(1, Relaxed);
        }
    }
}

/// The lines that `at .. at + bytes` touches.
fn lines_of(at: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (at - at % LINE..at + bytes).step_by(LINE_BYTES)
}

impl<M: Medium> Medium for Poisoned<M> {
    type Window = M::Window;

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn losses(&self) -> Option<Losses> {
        self.inner.losses()
    }

    fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        self.inner.for_each_listed_bad(each);
    }

    fn open(&self) -> Self::Window {
        self.inner.open()
    }

    fn close(&self, window: &mut Self::Window) {
        self.inner.close(window);
    }

    #[track_caller]
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        self.look(at, 8)?;
        self.inner.load_word(at)
    }

    #[track_caller]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.look(at, into.len() as u64)?;
        self.inner.load(at, into)
    }

    #[track_caller]
    fn store_word(&self, window: &mut Self::Window, at: u64, value: u64) {
        self.store_part(at);
        self.inner.store_word(window, at, value);
    }

    #[track_caller]
    fn store_bytes(&self, window: &mut Self::Window, at: u64, bytes: &[u8]) {
        self.store_part(at);
        self.inner.store_bytes(window, at, bytes);
    }

    #[track_caller]
    fn store_line(&self, window: &mut Self::Window, at: u64, line: &Line) {
        if self.healing == Healing::ByLines && !self.lines.read().is_empty() {
            self.lines.write().remove(&at);
        }
        self.inner.store_line(window, at, line);
    }

    #[track_caller]
    fn stream_word(&self, window: &mut Self::Window, at: u64, value: u64) {
        self.store_part(at);
        self.inner.stream_word(window, at, value);
    }

    #[track_caller]
    fn write_back(&self, window: &mut Self::Window, at: u64) {
        self.inner.write_back(window, at);
    }

    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        self.inner.fence()
    }

    fn fence_can_fail(&self) -> bool {
        self.inner.fence_can_fail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_bad_line_is_an_error_until_a_whole_one_is_stored() {
        let memory = Poisoned::new(Memory::new(4096), Healing::ByLines);
        memory.poison(512, 512);
        memory.poison(100, 1);
        let error = |at| Err(MediaError::Poisoned { at });
        assert_eq!(memory.load(0, &mut [0; 64]), Ok(()));
        assert_eq!(memory.load(0, &mut [0; 65]), error(64));
        assert_eq!(memory.load_word(120), Err(MediaError::Poisoned { at: 120 }));
        assert_eq!(memory.load(1000, &mut [0; 300]), error(1000));
        assert_eq!(memory.load(1024, &mut [0; 300]), Ok(()));
        memory.store_line(&mut (), 64, &Line([7; 64]));
        assert_eq!(memory.load_word(120), Ok(u64::from_le_bytes([7; 8])));
        assert_eq!((memory.bad().len(), memory.machine_checks()), (8, 0));
    }

    #[test]
    fn part_of_a_bad_line_must_not_be_stored() {
        let memory = Poisoned::new(Memory::new(4096), Healing::Never);
        memory.poison(64, 64);
        memory.store_word(&mut (), 56, 1);
        memory.store_line(&mut (), 64, &Line([7; 64]));
        assert_eq!((memory.bad(), memory.machine_checks()), (vec![64], 0));
        memory.store_word(&mut (), 64, 1);
        memory.store_bytes(&mut (), 70, &[1]);
        memory.stream_word(&mut (), 120, 1);
        assert_eq!((memory.bad(), memory.machine_checks()), (vec![64], 3));
    }
}
