//! A region as a device of blocks (PMBD): no file system, each access opened for itself.
//!
//! * `protect`: what keeps others out between accesses. `scheme`: how stores reach the memory. `slow`: slower memory.
//! * `stores`: the stores of a scheme. `private`: pages that are mapped for one access. `region`: [`RawRegion`].

mod private;
mod protect;
mod region;
mod scheme;
mod slow;
mod stores;

pub use protect::{ProtectIo, UnknownProtectIo};
pub use region::{RawError, RawOptions, RawRegion, Stray};
pub use scheme::{UnknownScheme, WriteScheme};
pub use slow::{NoSlowdown, Slowdown};
