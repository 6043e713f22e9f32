//! What a ring's entries and commands are made of, as `linux/fuse.h` has it since 7.42.

use std::mem::offset_of;

use fuse_abi::linux::{fuse_in_header, fuse_out_header};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The capability: requests come through rings, of io_uring.
pub const OVER_IO_URING: u64 = 1 << 41;
/// The command that gives the kernel an entry.
pub const REGISTER: u32 = 1;
/// The command that answers what is in an entry, and gives it back.
pub const COMMIT_AND_FETCH: u32 = 2;
/// Parts of memory that an entry consists of: its heads, and its data.
pub const PARTS: u32 = 2;

/// Bytes for a header, and for an operation's own structure.
const HEAD_BYTES: usize = 128;

/// The heads of a request, and of its answer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Heads {
    /// A request's header, or an answer's.
    header: [u8; HEAD_BYTES],
    /// The structure that the operation begins with, if it has one.
    operation: [u8; HEAD_BYTES],
    flags: u64,
    /// By what number the answer is to be handed over.
    pub commit: u64,
    /// Bytes of data of the request, or of the answer.
    pub data_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// What a command says beside its number.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct Command {
    flags: u64,
    /// The number of [`Heads::commit`].
    pub commit: u64,
    /// The queue that the entry belongs to.
    pub queue: u16,
    padding: [u8; 6],
}

const _: () = assert!(size_of::<Heads>() == 288 && offset_of!(Heads, commit) == 264);
const _: () = assert!(size_of::<Command>() == 24 && offset_of!(Command, queue) == 16);
const _: () = assert!(size_of::<fuse_in_header>() == 40 && size_of::<fuse_out_header>() == 16);

impl Command {
    /// A command for this queue about the request with this number.
    pub fn new(queue: u16, commit: u64) -> Self {
        Self { commit, queue, ..Self::default() }
    }
}

impl Heads {
    /// Nothing yet.
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// The header of a request, and the operation's structure: what the whole is longer than header and data.
    /// None if the lengths don't fit together.
    pub fn request(&self) -> Option<(fuse_in_header, &[u8])> {
        let (header, _) = fuse_in_header::read_from_prefix(&self.header).ok()?;
        let others = (size_of::<fuse_in_header>() as u32).checked_add(self.data_bytes)?;
        let own = header.len.checked_sub(others)?;
        Some((header, self.operation.get(..own as usize)?))
    }

    /// Puts the header of an answer in.
    pub fn answer(&mut self, header: &fuse_out_header, data_bytes: u32) {
        let bytes = header.as_bytes();
        if let Some(place) = self.header.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self.data_bytes = data_bytes;
    }

    #[cfg(test)]
    pub fn of_request(header: &fuse_in_header, operation: &[u8], data_bytes: u32) -> Self {
        let mut heads = Self::empty();
        heads.header[..40].copy_from_slice(header.as_bytes());
        heads.operation[..operation.len()].copy_from_slice(operation);
        heads.data_bytes = data_bytes;
        heads
    }

    #[cfg(test)]
    pub fn answered(&self) -> fuse_out_header {
        fuse_out_header::read_from_prefix(&self.header).unwrap().0
    }
}
