//! Taking a mount off from outside its server.

use std::path::Path;
use std::time::Duration;

use crate::control::Client;
use crate::error::{MountError, Result};
use crate::mountpoint::{self, FS_TYPE};

/// Unmounts the Lode file system at `dir` and waits until its server has closed the
/// pool. A mount whose server is gone is taken off too. With `lazy` the mount leaves
/// the tree at once and ends when its last user does; that is not waited for.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::Unmount`] (with EBUSY where it is in use),
/// [`MountError::Answer`] where the pool could not be closed cleanly.
pub fn unmount(dir: &Path, lazy: bool, timeout: Duration) -> Result<()> {
    let fail = |source| MountError::Unmount {
        path: dir.into(),
        source,
    };
    let point = mountpoint::canonical(dir).map_err(fail)?;
    let top = mountpoint::mounted_at(&point).map_err(fail)?;
    if top.is_none_or(|top| top.fs_type != FS_TYPE) {
        return Err(MountError::NotMounted(dir.into()));
    }
    // Before: the server may be gone before it could be asked.
    let watch = Client::for_mount(&point).and_then(|mut client| {
        client.watch()?;
        Ok(client)
    });
    if lazy {
        return mountpoint::detach(&point).map_err(fail);
    }
    mountpoint::unmount(&point).map_err(fail)?;
    match watch {
        Ok(client) => client.ended(timeout),
        // Dead, or another user's: there is nobody to wait for.
        Err(_) => Ok(()),
    }
}
