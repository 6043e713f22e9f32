//! Where chunks come from: free pages, or the pages of files that nobody sees.
//!
//! A chunk is [`lode_loan::CHUNK_BYTES`] of the region; its number is its offset in it divided by that.

//!
//! * [`Direct`], [`Indirect`], [`Mmap`]: the three methods (Oikawa 2014, section 3), each over an [`Owner`] of a pool whose
//!   memory is a [`Region`].

mod common;
mod direct;
mod indirect;
mod mmap;
mod owner;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lode_loan::{Method, Refusal};

pub use direct::Direct;
pub use indirect::Indirect;
pub use mmap::Mmap;
pub use owner::{Owner, Region};

/// One of the methods by which memory comes from a pool. All may be called from many threads.
///
/// Who holds what is not known here: that is the ledger's, one layer up. What is guaranteed here is that no
/// chunk is taken a second time before it has been given.
pub trait Source: Send + Sync {
    /// Takes a chunk that nobody uses; what it holds is whatever was there last.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`] where files leave none, [`Refusal::Ending`] where the pool takes no more changes.
    fn take(&self) -> Result<u64, Refusal>;

    /// Gives back a chunk that was taken, or held already when the pool was opened. One that was not is left
    /// alone, and that is logged.
    fn give(&self, chunk: u64);

    /// Fills a chunk that was taken with zeros.
    fn zero(&self, chunk: u64);

    /// Whether somebody else holds a lock on any part of the chunk (or nobody can tell).
    fn locked(&self, chunk: u64) -> bool;

    /// A descriptor of the pool's file for one program, of an open file description of its own (the locks
    /// of a program belong to that); close-on-exec.
    ///
    /// # Errors
    /// Those of opening it; [`io::ErrorKind::Unsupported`] for memory that is no file.
    fn descriptor(&self) -> io::Result<OwnedFd>;
}

/// Memory of the pool of `owner` by this method; `spared` pages besides the pool's reserve are left to files. By
/// [`Method::Mmap`] it is one session's, by the others everybody's.
pub fn of<O: Owner + 'static>(method: Method, owner: O, spared: u64) -> Arc<dyn Source> {
    match method {
        Method::Direct => Arc::new(Direct::new(owner, spared)),
        Method::Indirect => Arc::new(Indirect::new(owner, spared)),
        Method::Mmap => Arc::new(Mmap::new(owner, spared)),
    }
}
