//! Whether a conversation is encrypted, and what is answered before it is.

use crate::wire::{Opt, Refused};

/// Whether a conversation is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// It can't be: there are no certificates.
    Impossible,
    /// If the client wants it.
    Possible,
    /// Nothing is told or done before it is.
    Required,
    /// It is.
    Begun,
}

impl Encryption {
    /// Whether `option` is looked at.
    pub fn admits(self, option: Opt) -> bool {
        self != Self::Required || matches!(option, Opt::StartTls | Opt::Abort)
    }

    /// Whether it can begin now.
    ///
    /// # Errors
    /// Why it can't.
    pub fn begin(self) -> Result<(), Refused> {
        match self {
            Self::Impossible => Err(Refused::Unsupported),
            Self::Begun => Err(Refused::Invalid),
            Self::Possible | Self::Required => Ok(()),
        }
    }
}
