//! Scrubbing a mounted pool: when somebody asks for it, and every so often.

mod periodic;
mod shared;

pub use periodic::{Periodic, RATE};
pub use shared::{Facts, Scrubs};
