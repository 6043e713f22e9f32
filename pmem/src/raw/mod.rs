//! A region as a device of blocks (PMBD): no file system, each access opened for itself.
//!
//! * `protect`: what keeps others out between accesses. `scheme`: how stores reach the memory. `slow`: slower memory.
//! * `memory`: what it is made of, for this machine or a simulation. `mapping`: this machine's; `private`: pages that are mapped for one access.
//! * `stores`: the stores of a scheme. `region`: [`RawRegion`].

mod mapping;
mod memory;
mod private;
mod protect;
mod region;
mod scheme;
mod slow;
mod stores;

pub use mapping::{MappedLines, RawMapping};
pub use memory::{RawLines, RawMemory, RawPlace, RawRule};
pub use protect::{ProtectIo, UnknownProtectIo};
pub use region::{RawError, RawOptions, RawRegion, Stray};
pub use scheme::{UnknownScheme, WriteScheme};
pub use slow::{NoSlowdown, Slowdown};
