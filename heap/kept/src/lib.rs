//! A kept heap: blocks in persistent memory that outlive the program, and every crash.
//!
//! A heap lies in a [`Memory`] that is mapped anywhere: everything in it is an *offset* from its beginning. A block is allocated and
//! its offset published in one atomic step ([`Heap::alloc_into`]), and given back in one ([`Heap::free_from`]); after a crash no block
//! is without a place that names it, and none has two owners. What is reachable begins at the root ([`ROOT`]).
//!
//! * [`Memory`]: stores and fences, whoever makes them; `layout`: what is where; `record`: how a change of several words is one
//! * `space`: which pages and slots are free, known in main memory, and made anew at each opening by `scan`
//! * [`Heap`]: the calls (`heap`, `change`, `grow`)
//!
//! What this crate guarantees: no byte of a file makes it panic, loop or reach outside of the memory; damage is [`Error::Damaged`]. A change is one
//! fence.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod change;
mod error;
mod grow;
mod heap;
mod layout;
mod memory;
mod record;
mod scan;
mod space;
#[cfg(test)]
mod tests;

pub use error::{Damage, Error, Result};
pub use heap::{Block, Content, Heap, Stats};
pub use layout::{CHUNK_BYTES, CHUNK_BYTES_LEAST, CHUNK_BYTES_MOST, ROOT, SMALL_MOST};
pub use memory::Memory;
pub use record::WORDS_MOST;
