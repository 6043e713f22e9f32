//! The simulated persistent memory: what loads see, what is durable for certain, and what a
//! power cut may leave.

mod pages;
mod point;
mod simulated;
mod site;
mod watch;

pub use pages::{Pages, Stored};
pub use point::{Pending, Point, Profile, Way};
pub use simulated::{Rules, Simulated};
pub use site::{LeftOut, Site};
pub use watch::{Own, Watch};
