//! What a heap lies in.

/// Memory that a heap lies in: a file that is mapped, or a simulation of one. Offsets are from its beginning. It belongs to the
/// heap and to who has blocks of it.
///
/// Stores to one line of 64 bytes become durable in their order; an aligned word becomes so wholly.
pub trait Memory {
    /// Why it can't be loaded, stored to or made larger.
    type Error;

    /// Bytes in it.
    fn bytes(&self) -> u64;

    /// Loads bytes from `at` on, all of which are inside.
    ///
    /// # Errors
    /// Bad memory.
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Self::Error>;

    /// Stores bytes at `at`, through the caches; all of them are inside.
    ///
    /// # Errors
    /// Memory that can't be stored to.
    #[track_caller]
    fn store(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Starts the write-back of the lines that bytes are in, whoever stored them.
    ///
    /// # Errors
    /// As of [`Memory::store`].
    #[track_caller]
    fn write_back(&self, at: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Completes the write-backs of this thread, which were of these bytes: offset and length of each part.
    ///
    /// # Errors
    /// It could not be made durable; nothing may be stored any more then.
    #[track_caller]
    fn fence(&self, parts: &[(u64, u64)]) -> Result<(), Self::Error>;

    /// Makes it so long at least, durably; what is new is zeros. It lies behind the rest, in one piece of the address space.
    ///
    /// # Errors
    /// There is no space; nothing has changed then.
    fn grow(&mut self, bytes: u64) -> Result<(), Self::Error>;

    /// Whether what begins at `at` lies elsewhere in the address space than behind what ends there: no block goes across.
    fn is_seam(&self, at: u64) -> bool {
        let _ = at;
        false
    }
}
