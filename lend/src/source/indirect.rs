//! The indirect method: files that are set aside, a chunk each, without names. A crash ends them by itself.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use lode_host::without_asking;
use lode_loan::Refusal;
use parking_lot::Mutex;

use super::common::{self, File};
use super::{Owner, Source};

/// A chunk's file.
struct Chunk<O: Owner> {
    file: File<O::Host>,
    /// It holds the zeros that it was backed with.
    is_zero: bool,
}

/// Files of a pool, each a chunk.
pub struct Indirect<O: Owner> {
    owner: O,
    spared: u64,
    /// One is made at a time: what is left to files is looked at and taken in one step.
    making: Mutex<()>,
    chunks: Mutex<HashMap<u64, Chunk<O>>>,
}

impl<O: Owner> Indirect<O> {
    /// Those of this pool, of which `spared` pages besides its reserve are for other files.
    pub fn new(owner: O, spared: u64) -> Self {
        Self { owner, spared, making: Mutex::new(()), chunks: Mutex::default() }
    }
}

impl<O: Owner> Source for Indirect<O> {
    fn take(&self) -> Result<u64, Refusal> {
        let _making = self.making.lock();
        let made = without_asking(|| {
            self.owner.with(|pool| {
                let file = common::make_file(pool)?;
                match common::back(pool, &file, 0, self.spared) {
                    Ok(chunk) => Ok((chunk, file)),
                    Err(refusal) => {
                        pool.let_go(file.handle);
                        Err(refusal)
                    }
                }
            })
        });
        let (chunk, file) = made.ok_or(Refusal::Ending)??;
        self.chunks.lock().insert(chunk, Chunk { file, is_zero: true });
        Ok(chunk)
    }

    fn give(&self, chunk: u64) {
        let known = self.chunks.lock().remove(&chunk);
        without_asking(|| {
            if let Some(Chunk { file, .. }) = known {
                // (One of an earlier opening is gone.)
                self.owner.with(|pool| {
                    if file.life == pool.life() {
                        pool.let_go(file.handle);
                    }
                });
            }
            common::give_back(&self.owner, chunk);
        });
    }

    fn zero(&self, chunk: u64) {
        let is_zero = |chunk: &mut Chunk<O>| std::mem::replace(&mut chunk.is_zero, false);
        if !self.chunks.lock().get_mut(&chunk).is_some_and(is_zero) {
            common::zero(&self.owner, chunk);
        }
    }

    fn locked(&self, chunk: u64) -> bool {
        common::locked(&self.owner, chunk)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        common::descriptor(&self.owner)
    }
}
