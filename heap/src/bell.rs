//! What the keeper is woken by: a pair of sockets.
//!
//! What this guarantees: no byte of it goes to, and none is taken from, a descriptor that the program has at the same number by
//! now, and none of those is closed: programs close what isn't theirs. So it is no `eventfd`: all of these have one inode.
use crate::sys;

type Identity = (u64, u64);

/// One end: its number, and what it was when it was made.
#[derive(Clone, Copy)]
struct End(i32, Identity);

impl End {
    const NONE: Self = Self(sys::NONE, (0, 0));

    fn new(number: i32) -> Self {
        Self(number, sys::identity(number).unwrap_or_default())
    }

    fn is_mine(self) -> bool {
        self.0 != sys::NONE && sys::identity(self.0) == Some(self.1)
    }

    fn close(self) {
        if self.is_mine() {
            sys::close(self.0);
        }
    }
}

/// Such a pair; or none.
pub(crate) struct Bell {
    heard: End,
    rung: End,
}

impl Bell {
    pub(crate) const NONE: Self = Self { heard: End::NONE, rung: End::NONE };

    /// None where no descriptors are left.
    pub(crate) fn new() -> Self {
        match sys::socket_pair() {
            Ok((heard, rung)) => Self { heard: End::new(heard), rung: End::new(rung) },
            Err(_) => Self::NONE,
        }
    }

    /// Whether both ends are there still.
    pub(crate) fn is_whole(&self) -> bool {
        self.heard.is_mine() && self.rung.is_mine()
    }

    /// To wait at.
    pub(crate) const fn heard(&self) -> i32 {
        self.heard.0
    }

    /// Rings; whether it can be heard.
    pub(crate) fn ring(&self) -> bool {
        // (What is full can be heard, too.)
        self.is_whole() && matches!(sys::send(self.rung.0, &[1]), Ok(_) | Err(libc::EAGAIN))
    }

    /// Takes in that it was rung.
    pub(crate) fn hush(&self) {
        if self.heard.is_mine() {
            let _ = sys::receive(self.heard.0, &mut [0; 64]);
        }
    }

    /// Closes what is left of it.
    pub(crate) fn close(&mut self) {
        let Self { heard, rung } = core::mem::replace(self, Self::NONE);
        heard.close();
        rung.close();
    }
}
