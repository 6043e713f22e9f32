//! Main memory that a pool's owner lends: the program's side.
//!
//! A process has one [`Provider`]: address space that is backed by chunks of a pool, which its owner (a mount,
//! or `lode heap serve`) lends, and by anonymous memory while there is no owner. An allocator cuts it smaller
//! (`lode-malloc`); large blocks are whole chunks, which grow and move by their pages.
//!
//! * `maps`: what a program maps by itself. `session`: the conversation with the owner. `memory`: what backs which address. `keeper`: the thread that
//!   listens. `fork`: a child's memory of its own. `ledger`: what is left of a process's figures.
//!
//! What this crate guarantees: nothing in it allocates, so an allocator can be built on it; it uses no place that is a thread's own,
//! no call at which a thread can be cancelled; each wait has an end; `errno` stays as it was.
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bell;
mod fork;
mod fork_page;
mod keeper;
mod ledger;
mod lock;
pub mod maps;
mod memory;
mod provider;
mod session;
mod settings;
mod sys;

pub use fork::install as install_fork_handlers;
pub use keeper::{set_allocator, tend};
pub use ledger::write as write_ledger;
pub use lode_loan::Method;
pub use memory::{Area, PAGE, SLOT, Stats};
pub use provider::{
    Borders, Error, Provider, alloc, block_bytes, commit, configure, count_dram_from, cut,
    decommit, free, purge, reserve, resize, stats,
};
pub use settings::{
    DRAM_BELOW, FORK_SECONDS, LEDGER, MAP_FROM, METHOD, SOCKET, Settings, environment_is_there,
};
