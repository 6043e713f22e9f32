//! What tests of the engine share.
//!
//! * [`Memory`], [`Poisoned`], [`Hooked`], [`TestHost`]: media and a host whose every answer a test decides
//! * [`op`], [`parse`], [`generate`]: operations as values, printed, replayed, random
//! * [`fs`], [`mod@execute`], [`mod@snapshot`], [`system`], [`mod@run`]: the same operations on a pool
//!   and on the model, compared step by step, failures shrunk
//! * [`stamps`], [`nbd`]: sectors stamped with versions, and a client that writes them
//! * [`harm`]: damage as an operation, and a scrub that finds it
//! * `real`, a feature: the same operations in a directory of a real file system
//! * [`until`]: a wait that has an end; [`seeds`]: many seeds, shared out to threads
//! * [`format`], [`damage`], [`trial`]: images that are wrong, sealed or not, and what an
//!   engine may make of them
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod damage;
pub mod execute;
pub mod format;
pub mod fs;
pub mod generate;
pub mod harm;
mod hooked;
mod host;
mod lend;
mod maps;
mod memory;
pub mod nbd;
pub mod op;
pub mod parse;
mod poison;
#[cfg(feature = "real")]
pub mod real;
pub mod receive;
pub mod rng;
pub mod run;
pub mod seeds;
mod shown;
pub mod snapshot;
pub mod stamps;
pub mod system;
pub mod trial;
mod until;

pub use hooked::{Hooked, Hooks, Told};
pub use host::{Asked, HostHooks, TestHost};
pub use memory::Memory;
pub use poison::{Healing, Poisoned};
pub use until::until;
