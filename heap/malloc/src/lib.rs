//! An allocator over main memory that a pool's owner lends.
//!
//! jemalloc cuts the memory into blocks; where its memory comes from, and goes to, its hooks say (`hooks`). Blocks of
//! [`LARGE`] bytes and more are `lode-heap`'s: they are whole chunks, and `realloc` moves their pages. There are two sources, the
//! pool and DRAM: blocks of the one are never mixed with blocks of the other, so what is freed, by
//! whichever thread, goes back to its own.
//!
//! A program's first blocks are in room that is there without all this: many programs never want more.
//!
//! * `start`: until then. `arenas`: jemalloc's set-up. `family`: malloc, free and the rest. `early`: blocks from before.
//!   [`LodeAlloc`]: Rust's allocator.
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod alloc;
mod arenas;
mod early;
mod family;
mod hooks;
mod start;

pub use alloc::LodeAlloc;
pub use arenas::start;
pub use family::{
    LARGE, Source, aligned, calloc, free, malloc, purge, realloc, realloc_aligned, usable_bytes,
};
pub use lode_heap::{
    Error, Method, Provider, Settings, Stats, configure, environment_is_there, maps, stats,
};

/// Writes this process's line, where a ledger is kept.
pub fn write_ledger() {
    if !arenas::are_there() {
        // What the program has had then are its first blocks.
        let _ = configure(&Settings::from_environment());
        lode_heap::count_dram_from(early::most() as u64);
    }
    lode_heap::write_ledger();
}
