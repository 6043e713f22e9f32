//! Error numbers of the protocol: these and no others go to a client.

/// Why a request failed, as the protocol says it. The numbers are Linux's.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// Not allowed, as a write to what is read-only.
    #[error("operation not permitted")]
    EPERM = 1,
    /// The device is broken there.
    #[error("input/output error")]
    EIO = 5,
    /// No memory.
    #[error("cannot allocate memory")]
    ENOMEM = 12,
    /// A request makes no sense.
    #[error("invalid argument")]
    EINVAL = 22,
    /// No space.
    #[error("no space left on device")]
    ENOSPC = 28,
    /// A read that was to come in one piece is too long for that.
    #[error("value too large")]
    EOVERFLOW = 75,
    /// This can't be done here, or not as fast as was asked for.
    #[error("operation not supported")]
    ENOTSUP = 95,
    /// The server is about to end.
    #[error("server is being shut down")]
    ESHUTDOWN = 108,
}

impl Errno {
    /// The number on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }
}
