//! The one door to persistent memory.
//!
//! Every store to a pool goes through this crate, inside a write window, and every
//! fence is a statement of its own in the caller. Two layers:
//!
//! * [`Medium`]: instructions only (store, line store, streaming word, write-back,
//!   fence, load). A real mapping and a simulated region implement it alike.
//! * [`Door`] and [`Window`]: streaming copies and range flushes with their edges,
//!   written once on top of those instructions, so that they can be explored too.
//!
//! The door itself needs no operating system (`no_std`); the regions that map files
//! and memory stand behind the feature `std`.
#![cfg_attr(not(feature = "std"), no_std)]

mod counters;
mod crc32c;
mod door;
mod line;
mod medium;

pub use counters::{Counters, Tally};
pub use crc32c::crc32c;
pub use door::{Door, Window};
pub use line::{LINE_BYTES, Line};
pub use medium::{MediaError, Medium};
