//! Why a region can't be opened.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::RegionKind;
use crate::flush::FlushStrategy;
use crate::windows::WindowMode;

/// Why a region can't be opened or created.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// Somebody else uses it.
    Busy {
        /// What was to be opened.
        path: PathBuf,
        /// The process that holds it, where the system tells.
        holder: Option<u32>,
    },
    /// There is not enough space below it for all of its bytes.
    NoSpace {
        /// What was to be allocated.
        path: PathBuf,
        /// How many bytes.
        bytes: u64,
    },
    /// It is there already, and replacing it was not asked for.
    Exists {
        /// What was to be created.
        path: PathBuf,
    },
    /// It is to be created by a symbolic link that leads to nothing.
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// It has too few bytes.
    TooSmall {
        /// What was to be opened.
        path: PathBuf,
        /// Bytes it has.
        bytes: u64,
        /// Bytes it has to have.
        bytes_min: u64,
    },
    /// A device is not mapped by parts of its pages, and is asked for one.
    Misaligned {
        /// The device.
        path: PathBuf,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes of its pages.
        page_bytes: u64,
    },
    /// It has, or is asked to have, too many bytes.
    TooLarge {
        /// What was to be opened.
        path: PathBuf,
        /// Bytes it has or was to have.
        bytes: u64,
        /// Bytes it may have.
        bytes_max: u64,
    },
    /// It is nothing that can be mapped as a region: a directory, a pipe, a terminal.
    NotARegion {
        /// What was to be opened.
        path: PathBuf,
    },
    /// It is a device of which sysfs does not tell what it is, or how large.
    NotInSysfs {
        /// The device.
        path: PathBuf,
        /// Where sysfs was looked for.
        sysfs: PathBuf,
    },
    /// A region can't be created read-only.
    CreateReadOnly,
    /// This CPU can't carry out the strategy that was asked for.
    NoSuchInstruction {
        /// What was asked for.
        strategy: FlushStrategy,
        /// The instruction it lacks.
        missing: &'static str,
    },
    /// These parts of the region can't be mapped by themselves.
    Unviewable {
        /// Its kind.
        kind: RegionKind,
        /// Bytes of the pages that it can be mapped in.
        page_bytes: u64,
    },
    /// There is no `msync` for regions of this kind.
    NoMsync {
        /// The kind.
        kind: RegionKind,
    },
    /// The window mode that was asked for is not to be had.
    NoWindows {
        /// What was asked for.
        mode: WindowMode,
        /// Why not.
        why: &'static str,
    },
    /// A system call failed.
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl RegionError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { path, holder } => {
                write!(f, "{} is in use", path.display())?;
                match holder {
                    Some(pid) => write!(f, " by process {pid}"),
                    None => Ok(()),
                }
            }
            Self::NoSpace { path, bytes } => {
                write!(f, "no space for the {bytes} bytes of {}", path.display())
            }
            Self::Exists { path } => write!(f, "{} exists already", path.display()),
            Self::DanglingLink { path, target } => write!(
                f,
                "{} is a symbolic link to {}, which does not exist",
                path.display(),
                target.display()
            ),
            Self::TooSmall { path, bytes, bytes_min } => write!(
                f,
                "{} is too small: {bytes} bytes, at least {bytes_min} are needed",
                path.display()
            ),
            Self::Misaligned { path, bytes, page_bytes } => write!(
                f,
                "{} is mapped by pages of {page_bytes} bytes: {bytes} bytes are no multiple of that",
                path.display()
            ),
            Self::TooLarge { path, bytes, bytes_max } => write!(
                f,
                "{} is too large: {bytes} bytes, at most {bytes_max} are possible",
                path.display()
            ),
            Self::NotARegion { path } => {
                write!(f, "{} is not a file or DAX device", path.display())
            }
            Self::NotInSysfs { path, sysfs } => {
                let (path, sysfs) = (path.display(), sysfs.display());
                write!(f, "{path}: nothing of this device is in {sysfs}; is sysfs mounted there?")
            }
            Self::CreateReadOnly => f.write_str("a region can't be created read-only"),
            Self::NoSuchInstruction { strategy, missing } => {
                write!(f, "flush strategy {strategy}: this CPU has no {missing}")
            }
            Self::Unviewable { kind: RegionKind::Anonymous, .. } => {
                f.write_str("parts of anonymous memory can't be mapped: it has no file")
            }
            Self::Unviewable { kind, page_bytes } => {
                write!(
                    f,
                    "a part of the {kind} can't be mapped that is not of pages of {page_bytes} bytes"
                )
            }
            Self::NoMsync { kind } => {
                write!(f, "flush strategy msync: does nothing for {kind}")
            }
            Self::NoWindows { mode, why } => write!(f, "window mode {mode}: {why}"),
            Self::Io { doing, path, source } => {
                write!(f, "{doing} {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
