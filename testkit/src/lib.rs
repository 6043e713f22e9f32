//! What tests of the engine share.
//!
//! * [`Memory`], [`TestHost`]: a medium and a host whose every answer a test decides
//! * [`op`], [`parse`], [`generate`]: operations as values, printed, replayed, random
//! * [`fs`], [`mod@execute`], [`mod@snapshot`], [`system`], [`mod@run`]: the same operations on a pool
//!   and on the model, compared step by step, failures shrunk
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod execute;
pub mod fs;
pub mod generate;
mod host;
mod memory;
pub mod op;
pub mod parse;
pub mod rng;
pub mod run;
pub mod snapshot;
pub mod system;

pub use host::TestHost;
pub use memory::Memory;
