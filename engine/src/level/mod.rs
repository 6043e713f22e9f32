//! Changing the protection level of a pool that nobody has open.
//!
//! To give metadata its second copies, the places of these must be free: `distance` chooses how far
//! from the first copies they are, `places` keeps account of them, `vacate` moves away what lies there, `seen` what of that
//! snapshots see, and `change` stores the copies and then says so in the superblocks (`progress` tells how far that is). Until that the pool is as it was. For level full `strips` has
//! the places of their tables left in the same way, and stores checksums and parity.

mod change;
mod distance;
mod places;
mod progress;
mod seen;
mod strips;
mod vacate;
