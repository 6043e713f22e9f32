//! Memory that tells a test of what is done to it, before it is done.

use std::sync::Arc;

use lode_pmem::{Line, MediaError, Medium};

use crate::{Memory, Poisoned};

/// What a test does about it.
pub trait Hooks<M>: Send + Sync {
    /// Bytes `at .. at + bytes` are about to be loaded.
    fn loads(&self, memory: &M, at: u64, bytes: u64) {
        let _ = (memory, at, bytes);
    }

    /// This thread is about to fence.
    fn fences(&self, memory: &M) {
        let _ = memory;
    }
}

/// (So that memories whose hooks differ are of one type: for each type the engine is compiled again.)
impl<M, K: Hooks<M> + ?Sized> Hooks<M> for Arc<K> {
    fn loads(&self, memory: &M, at: u64, bytes: u64) {
        (**self).loads(memory, at, bytes);
    }

    fn fences(&self, memory: &M) {
        (**self).fences(memory);
    }
}

/// Memory with these hooks.
#[derive(Clone)]
pub struct Hooked<M, K> {
    /// The memory: what is done to it here no hook is told of.
    pub memory: M,
    /// The hooks.
    pub hooks: K,
}

/// Memory that may go bad, with hooks of any type.
pub type Told = Hooked<Poisoned<Memory>, Arc<dyn Hooks<Poisoned<Memory>>>>;

impl<M: Medium, K: Hooks<M>> Medium for Hooked<M, K> {
    type Window = M::Window;

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn open(&self) -> Self::Window {
        self.memory.open()
    }

    fn close(&self, window: &mut Self::Window) {
        self.memory.close(window);
    }

    #[track_caller]
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        self.hooks.loads(&self.memory, at, 8);
        self.memory.load_word(at)
    }

    #[track_caller]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.hooks.loads(&self.memory, at, into.len() as u64);
        self.memory.load(at, into)
    }

    #[track_caller]
    fn store_word(&self, window: &mut Self::Window, at: u64, value: u64) {
        self.memory.store_word(window, at, value);
    }

    #[track_caller]
    fn store_bytes(&self, window: &mut Self::Window, at: u64, bytes: &[u8]) {
        self.memory.store_bytes(window, at, bytes);
    }

    #[track_caller]
    fn store_line(&self, window: &mut Self::Window, at: u64, line: &Line) {
        self.memory.store_line(window, at, line);
    }

    #[track_caller]
    fn stream_word(&self, window: &mut Self::Window, at: u64, value: u64) {
        self.memory.stream_word(window, at, value);
    }

    #[track_caller]
    fn write_back(&self, window: &mut Self::Window, at: u64) {
        self.memory.write_back(window, at);
    }

    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        self.hooks.fences(&self.memory);
        self.memory.fence()
    }

    fn fence_can_fail(&self) -> bool {
        self.memory.fence_can_fail()
    }
}
