//! Kept heaps under power cuts: a program's own stores to a file that it has mapped, which the engine does not see.
//!
//! [`cases`] of allocations, frees and changes run on a heap in the simulated memory, alone or in a mapped file of a pool. [`explore_kept`] cuts
//! the power at each fence and behind each step, in the pool's part of them, too, and inside the openings that follow. In each state the heap must
//! open, and have what it had before the step that was cut off, or behind it: each block named once, none that nothing names, what
//! they hold as it was given.

mod cases;
mod explore;
mod ground;
mod judge;
mod run;

use cases::Step;
pub use cases::{KeptCase, cases};
pub use explore::{KeptFailure, KeptTally, explore_kept};
pub use ground::Ground;
