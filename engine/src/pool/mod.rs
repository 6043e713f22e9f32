//! The public face: a pool that is open.

mod stub;
pub use stub::*;
