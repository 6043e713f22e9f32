//! What can go wrong with volumes.

use thiserror::Error;

/// An error of a call about volumes.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Error {
    /// There is no volume of this name.
    #[error("there is no such volume")]
    NotFound,
    /// There is one of this name.
    #[error("there is a volume of this name")]
    Exists,
    /// No volume can have this name.
    #[error(
        "this can't be the name of a volume: it needs 1 to 128 bytes, no /, no control characters, and not . or .."
    )]
    BadName,
    /// No volume can have this size.
    #[error("a volume has a whole number of sectors, one at least, and {most} bytes at most")]
    BadSize {
        /// The most that it may be, in bytes.
        most: u64,
    },
    /// It would become smaller: what is behind its new end would be lost.
    #[error("the volume has {bytes} bytes")]
    Shrinks {
        /// What it has, in bytes.
        bytes: u64,
    },
    /// Somebody has it open, who would lose what it holds.
    #[error("the volume is in use")]
    InUse,
    /// A file where volumes are, that is none.
    #[error("this is no volume: nothing says what its sectors are")]
    NotAVolume,
    /// Sectors that it has not, or parts of them.
    #[error("{len} bytes at {at} are not whole sectors of the volume")]
    Outside {
        /// Offset in bytes.
        at: u64,
        /// How many bytes.
        len: u64,
    },
    /// What the pool says.
    #[error("{0}")]
    Pool(lode_engine::Error),
}

impl From<lode_engine::Error> for Error {
    fn from(error: lode_engine::Error) -> Self {
        Self::Pool(error)
    }
}

impl Error {
    /// The Linux error number for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => lode_engine::Error::NotFound.errno(),
            Self::Exists => lode_engine::Error::Exists.errno(),
            Self::InUse => lode_engine::Error::Busy.errno(),
            Self::BadName | Self::BadSize { .. } | Self::Shrinks { .. } => EINVAL,
            Self::NotAVolume | Self::Outside { .. } => EINVAL,
            Self::Pool(error) => error.errno(),
        }
    }
}

const EINVAL: i32 = 22;
