//! A directory of a real file system beside the model: the same operations by system calls, and
//! what came of them compared. And a place for such things.

mod compare;
mod directory;
mod scratch;

pub use compare::{Tree, askable, difference, model_tree, real_tree, same};
pub use directory::{Can, Directory};
pub use scratch::{SCRATCH, scratch};
