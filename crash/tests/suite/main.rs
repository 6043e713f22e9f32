//! What the explorer shows, in one program: to build one takes a compiler most of a minute.
//! (`explore.rs` is apart, as it takes all processors.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod at_full;
mod corrupt;
mod history;
mod interleavings;
mod kept;
mod mended;
mod older_links;
mod pages;
mod places;
mod pointed;
mod poison;
mod properties;
mod raised;
mod random_sequences;
mod raw;
mod salvage_receiving;
mod schedule;
mod scrubbed;
mod stop;
mod strips;
mod support;
mod workload;

/// To explore is to allocate, mostly: a tenth less of the processors than with the C library's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
