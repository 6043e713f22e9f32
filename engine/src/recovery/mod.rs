//! From bytes to an open pool and back: making, opening, recovering, closing.
//!
//! Recovery follows the numbered order of PROTOCOL.md, and so do these files:
//! `scan` (2, 3), `judge` (4, 5), `repair` (7, 8), `open` (the whole, 1 to 11).
//! `losses` goes before all of them where memory did not keep its promise.
//! `grow` changes what superblocks say; `sound` asks first whether a recovery would succeed.

mod checkpoint;
mod close;
#[cfg(test)]
mod flips;
pub(crate) mod format;
mod grow;
mod judge;
mod losses;
mod manifest;
mod open;
mod repair;
mod scan;
mod sectors;
mod sound;
#[cfg(test)]
mod tests;

pub use manifest::ManifestBytes;

pub(crate) use checkpoint::{Ended, load_checkpoint};
pub(crate) use open::survey;
pub(crate) use repair::erase;
pub(crate) use scan::DAMAGED_TAIL;
pub(crate) use sound::{stands_recovery, stands_rollback};
