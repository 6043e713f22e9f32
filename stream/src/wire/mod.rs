//! The bytes of a stream: docs/stream.md describes each.

mod change;
mod frames;
mod header;
mod parts;

pub(crate) use change::Change;
pub(crate) use frames::{FRAME_HEAD, Frames, check_frame, frame_len};
pub use header::Header;
pub(crate) use header::{MAGIC, id_bytes, id_in, read_all};
pub(crate) use parts::Parts;
