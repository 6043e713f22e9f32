//! Parts of a region that are lent to other processes as their memory.
//!
//! A lent part is locked by whoever has it: by an *open file description* lock on the region's file, which lives as long as
//! any process has that description, whatever becomes of the lender. Nobody else stores there meanwhile.
//!
//! * `locks`: those locks. `kept`: who has pages of files. `owner`: what the lender does. [`Span`]: the borrower's address space.

mod kept;
mod locks;
mod owner;
mod span;

pub(crate) use kept::is_left;
pub use kept::{mark, unmark};
pub use locks::{lock, locked_by_others, unlock};
pub use span::{Populate, Span};
