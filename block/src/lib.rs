//! Volumes: files of a pool that are block devices (PMBD: persistent memory that any file system, database or virtual
//! machine uses unchanged).
//!
//! * [`settings`]: what a volume is told to be, as text beside it
//! * [`list`]: where volumes are in a pool; made, listed, resized, deleted
//! * `space`: written and zeroed where it is, or given back, as a volume's settings say
//! * [`volume`]: one of them, read and written by sectors; `device`: as it is served by NBD
//! * `raw`: a whole region as one device, without a file system
#![forbid(unsafe_code)]

mod device;
mod error;
mod list;
mod raw;
mod settings;
mod space;
mod volume;

pub use error::Error;
pub use list::{
    DIRECTORY, NewVolume, PATH, VOLUMES, VolumeInfo, create, delete, home, info, is_name, list,
    make_home, resize,
};
pub use raw::{Batching, BatchingError, Protection, RawDevice, RawSettings, UnknownProtection};
pub use settings::{Sector, Settings, XATTR};
pub use space::{fallocate, write_short_of_space};
pub use volume::{Extent, Volume};

/// Result of a call about volumes.
pub type Result<T> = core::result::Result<T, Error>;
