//! Tests of the library, in one program. Apart from it are those that count allocations or fork, those that start this
//! program again, and the one that documents name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod files;
mod full;
mod full_maps;
mod kept;
mod life;
mod log;
mod maps;
mod names;
mod paths;
mod pieces_of_maps;
mod random;
mod read_only;
mod snapshots;
mod threads;
mod trees;
mod volumes;
mod ways;
mod with_mode;
