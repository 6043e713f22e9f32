//! What the engine asks of who shows pages of a file to a program.

use alloc::sync::Arc;

use crate::{MapExtent, Result};

/// Makes a map that shows these pages, and that nobody can store to yet.
pub type MakeShown<'a> = dyn FnMut(&[MapExtent]) -> Result<Arc<dyn Shown>> + 'a;

/// A map as its maker has it: memory that shows pages of a file to a program, which stores there by itself.
///
/// The engine calls these while it holds the inode, or makes a snapshot: nothing here may call back into the pool, nor wait for
/// who is in it.
pub trait Shown: Send + Sync {
    /// Keeps the program from storing to anything that is shown, until [`Shown::allow`]: when this returns, all that any
    /// thread has stored is in the pages, and who stores waits for [`Pool::allow_stores`](crate::Pool::allow_stores).
    ///
    /// # Errors
    /// Where that is not possible. Part of it may be kept from stores all the same.
    fn protect(&self) -> Result<()>;

    /// Shows other pages, at offset `to` of the pool and with the same bytes, where those of `from` are shown now, and keeps the program from
    /// storing there. (What is not shown, or shows others by now, is left.)
    ///
    /// # Errors
    /// Where that is not possible: some of it may be shown, nobody can store there.
    fn moved(&self, from: &MapExtent, to: u64) -> Result<()>;

    /// Lets the program store to bytes `offset .. offset + len` of the file, as far as they are shown, if it may store to the map.
    ///
    /// # Errors
    /// Where that is not possible.
    fn allow(&self, offset: u64, len: u64) -> Result<()>;
}
