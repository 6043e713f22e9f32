//! A whole region as one block device, without a file system (PMBD itself): written in place.
//!
//! * [`settings`]: how it is to be used: the paper's design space
//! * [`gate`]: barriers wait for what is in flight
//! * [`store`]: the region, with what is still in the caches; `dirty`: which pages that are
//! * [`batch`]: writes that are deferred, so that one change of protection does for many
//! * [`device`]: all together; `served`: as it is served by NBD

mod batch;
mod device;
mod dirty;
mod gate;
mod served;
mod settings;
mod store;

pub use device::RawDevice;
pub use settings::{Batching, BatchingError, Protection, RawSettings, UnknownProtection};
