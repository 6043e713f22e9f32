//! The judge: recovers a state with the real engine, and says whether it is one that may be.

mod health;
mod inspect;
mod poisoned;
mod receiving;
mod usage;

pub use health::Health;
pub(crate) use health::health_of;
pub use inspect::{Allowed, Expected, Found, Look};
pub(crate) use inspect::{hash_of, sound};
pub(crate) use poisoned::Bad;
pub(crate) use receiving::receive;
