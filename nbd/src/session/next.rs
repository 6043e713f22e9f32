//! How a conversation goes on when one thing was done.

/// How it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once.
    Again,
    /// With so many bytes in the input.
    Input(usize),
    /// Encrypted, once what waits has gone out.
    Encrypt,
    /// Not at all.
    End,
}
