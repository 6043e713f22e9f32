//! The C library: the Rust library's calls with C's types, in POSIX's words.
//!
//! What C programs see is in `include/lode.h`, which is made from the definitions here, comments
//! included; `docs/c-library.md` is for who writes them. Each function is thin: it checks what can
//! be checked of its arguments ([`pointers`]), calls the Rust library, and turns what comes back into
//! a number and `errno` ([`border`]). No panic goes past it.
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
// The names are C's.
#![allow(non_camel_case_types)]
// What callers promise is the same for all functions: the header says it once, at its top.
#![allow(clippy::missing_safety_doc)]

// In the order that they have in the header.
mod version;

mod border;

mod options;
mod pool;

mod opening;

mod open;

mod data;
mod space;

mod map;

mod log;

mod kept;

mod stat;

mod names;

mod dir;

mod attributes;
mod xattrs;

mod snapshots;

mod heap;

mod pointers;

pub use attributes::*;
pub use border::lode_last_error;
pub use data::*;
pub use dir::*;
pub use heap::*;
pub use kept::*;
pub use log::*;
pub use map::*;
pub use names::*;
pub use open::*;
pub use opening::*;
pub use options::*;
pub use pool::*;
pub use snapshots::*;
pub use space::*;
pub use stat::*;
pub use version::*;
pub use xattrs::*;
