//! Kept heaps of a pool that another process has open.
//!
//! * `program`: another process that has one. `attached`: what a program can do with one, and who else may. `ends`: programs
//!   and owners that end, or are killed.

mod attached;
mod ends;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use lode::{Content, KeptHeap, ROOT};

use super::heap::Serving;
use crate::common::Scratch;
use crate::common::program::socket;

const DEADLINE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
/// Words of the root: a list, what is taken out of it, a large block, and what is scribbled to.
const WORDS: u64 = 4;
const EBUSY: i32 = 16;

/// A pool with a heap, served.
fn served(scratch: &Scratch) -> (PathBuf, Serving) {
    let pool = scratch.pool("pool", "64M");
    let serving = Serving::start(&pool, "heap_ready=0");
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    heap.alloc_into(ROOT, 8 * WORDS, Content::Zeros).unwrap();
    heap.close().unwrap();
    (pool, serving)
}

fn errno<T>(result: Result<T, lode::Error>) -> i32 {
    result.map(drop).map_err(|error| error.errno()).unwrap_err()
}
