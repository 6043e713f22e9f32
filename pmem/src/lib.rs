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
//! The door, which also counts what goes through it (`counters`) and where to (`wear`), needs no
//! operating system (`no_std`). Behind the feature `std`
//! stands `Mapped`, the medium that is a file, a device or memory:
//!
//! * `region`: what can be mapped, by whom, and what its fences are worth.
//! * `flush`: the instructions that bring stores to the memory, and which to take.
//! * `windows`: what keeps stray stores out. `raw`: a region as a device of blocks.
//! * `emulation`: the times of slower media, for measuring.
//! * `fault`: loads from bad memory that end in an error, not in a signal.
//! * `cpu`: which processor this is.
//!
//! All unsafe code of Lode's storage is in this crate.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

extern crate alloc;

mod counters;
mod crc32c;
mod door;
mod line;
mod medium;
mod noted;
mod prefetch;
mod wear;

#[cfg(feature = "std")]
mod cpu;
#[cfg(feature = "std")]
mod emulation;
#[cfg(feature = "std")]
mod fault;
#[cfg(feature = "std")]
mod flush;
#[cfg(feature = "std")]
mod region;
#[cfg(feature = "std")]
mod windows;

#[cfg(feature = "std")]
mod raw;

#[cfg(all(feature = "std", not(all(target_arch = "x86_64", target_os = "linux"))))]
compile_error!("the feature `std`, which maps regions, is for Linux on x86-64");

pub use counters::{Counters, Tally, count_here};
pub use crc32c::{crc32c, crc32c_pieces};
pub use door::{Door, Window};
pub use line::{LINE_BYTES, Line};
pub use medium::{Losses, MediaError, Medium};
pub use prefetch::{prefetch, prefetch_bytes, prefetch_to_store};
pub use wear::{WEAR_REGION_BYTES, Wear};

#[cfg(feature = "std")]
pub use cpu::cpu;
#[cfg(feature = "std")]
pub use emulation::{Bandwidth, Emulated, NoBandwidth, Profile, UnknownProfile};
#[cfg(feature = "std")]
pub use fault::stores::{StoreFault, StoreFaults, stores_may_wait};
#[cfg(feature = "std")]
pub use flush::{CpuFeatures, FlushStrategy, LineStore, UnknownStrategy, WriteBack};
#[cfg(feature = "std")]
pub use raw::{
    MappedLines, NoSlowdown, ProtectIo, RawError, RawLines, RawMapping, RawMemory, RawOptions,
    RawPlace, RawRegion, RawRule, Slowdown, Stray, UnknownProtectIo, UnknownScheme, WriteScheme,
};
#[cfg(feature = "std")]
pub use region::loan;
#[cfg(feature = "std")]
pub use region::{
    Borrowed, Draft, DraftsLeft, Durability, Lent, Mapped, MappedPages, Memory, RegionError,
    RegionKind, RegionOptions, View, ViewOptions,
};
#[cfg(feature = "std")]
pub use windows::{MappedWindow, UnknownWindowMode, WindowMode};
