//! Why there is no device.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::wire::CONTROL;

/// An error of a device of the kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver is not there.
    #[error("the kernel's driver ublk_drv is not there: there is no {CONTROL}")]
    NoDriver,
    /// A file of the driver can't be opened.
    #[error("{path} can't be opened: {error}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The kernel lets this process have no io_uring.
    #[error("no requests by io_uring: {0}")]
    Ring(#[source] io::Error),
    /// The driver refuses a command.
    #[error("the driver does not {what} a device: {error}")]
    Command {
        /// What it was to do.
        what: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The kernel can't have such a device.
    #[error("the kernel can have no device of such blocks or of this size")]
    Shape,
    /// What answers requests has failed.
    #[error("a queue of requests ended: {0}")]
    Queue(#[source] io::Error),
}
