//! The malloc family, and `mmap` and its like, for programs that know nothing of it: `lode heap run` preloads this library.
//!
//! What libc asks for itself comes from DRAM: in a new child of a fork it writes to some of that (locks of files,
//! places of threads) before anybody else can act, while the child's pages are the parent's still. So
//! the functions tell who calls them: in naked functions, which hand the return address on.
#![deny(clippy::undocumented_unsafe_blocks)]

mod callers;
mod end;
mod fork;
mod maps;
mod names;
