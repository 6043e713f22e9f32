//! Changing the protection level of a pool that nobody has open.
//!
//! To give metadata its second copies, the places of these must be free: `distance` chooses how far
//! from the first copies they are, `places` keeps account of them, `vacate` moves away what lies there,
//! and `change` stores the copies and then says so in the superblocks. Until that the pool is as it was.

mod change;
mod distance;
mod places;
mod vacate;
