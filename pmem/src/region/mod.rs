//! Regions: mapped files, devices and memory as a [`crate::Medium`].
//!
//! * `kind`, `options`, `error`, `durability`: the words.
//! * `open`: from a path to a mapping. `draft`: new files. `lock`: one user at a time. `space`: no holes.
//! * `memory`: what the system knows of what is below: `sysfs`, `extents`; `pages`: how it has mapped it.
//! * `mapping`: address space. `mapped`: the medium. `view`: parts of it as a program's memory. [`loan`]: parts as another program's, `borrowed`: those of a file, on its side. `dirty`: what `msync` must write.

mod borrowed;
mod dirty;
mod draft;
mod durability;
mod error;
mod extents;
mod kind;
pub mod loan;
mod lock;
mod mapped;
mod mapping;
mod memory;
mod open;
mod options;
mod pages;
mod space;
mod sysfs;
mod view;

pub(crate) use dirty::Syncing;
pub(crate) use kind::Source;
pub(crate) use lock::Locked;
pub(crate) use open::ChosenGuard;

pub use borrowed::{Borrowed, Lent};
pub use draft::{Draft, DraftsLeft};
pub use durability::Durability;
pub use error::RegionError;
pub use kind::RegionKind;
pub use mapped::Mapped;
pub use memory::Memory;
pub use options::RegionOptions;
pub use pages::MappedPages;
pub use view::{View, ViewOptions};
