//! Files without a name, with permissions of one's own.

use std::sync::Arc;

use lode_engine::mode;
use lode_posix::{birth, xattrs};

use super::File;
use crate::error::Cause;
use crate::inner::Inner;
use crate::options::OpenOptions;

impl File {
    /// Makes a file without a name.
    pub(crate) fn temporary_with_mode(
        inner: &Arc<Inner>,
        path: &[u8],
        mode: u32,
    ) -> std::result::Result<Self, Cause> {
        let wish = OpenOptions::new().read(true).write(true).mode(mode).wish()?;
        let pass = inner.enter()?;
        let dir = inner.pin_found(&pass, path, true)?;
        let mode = mode::FILE | wish.mode;
        let (new, brought) = birth::new_in(&*pass, &dir.attr, inner.maker, mode, true)?;
        let made = pass.create_nameless(dir.ino(), &new, &xattrs::changes(&brought))?;
        // It is open from the start.
        Ok(Self::over(inner, pass.take_over(made.ino)?, &wish))
    }
}
