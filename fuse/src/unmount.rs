//! Taking a mount off from outside its server.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::control::Client;
use crate::error::{MountError, Result};
use crate::mountpoint::{self, FS_TYPE, Mounted};

/// How long a mount may stay in use before that is an error.
const IN_USE: Duration = Duration::from_millis(500);

/// Unmounts the Lode file system at `dir` and waits until its server has closed the
/// pool. A mount whose server is gone is taken off too. With `lazy` the mount leaves
/// the tree at once and ends when its last user does; that is not waited for.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::Unmount`] (with EBUSY where it is in use),
/// [`MountError::Answer`] where the pool could not be closed cleanly.
pub fn unmount(dir: &Path, lazy: bool, timeout: Duration) -> Result<()> {
    let fail = |source| MountError::Unmount { path: dir.into(), source };
    let point = mountpoint::canonical(dir).map_err(fail)?;
    let Some(mount) = lode_at(&point).map_err(fail)? else {
        return Err(MountError::NotMounted(dir.into()));
    };
    // Before: the server may be gone before it could be asked.
    let watch = Client::for_mount(&point).and_then(|mut client| {
        client.watch()?;
        Ok(client)
    });
    let off = if lazy { mountpoint::detach(&point) } else { unmount_soon(&point) };
    match off {
        // Somebody else was faster.
        Err(_) if lode_at(&point).map_err(fail)?.is_none_or(|now| now.device != mount.device) => {
            return Err(MountError::NotMounted(dir.into()));
        }
        off => off.map_err(fail)?,
    }
    match watch {
        _ if lazy => Ok(()),
        Ok(client) => client.ended(timeout),
        // Dead, or another user's: there is nobody to wait for.
        Err(_) => Ok(()),
    }
}

/// The Lode mount at `point`.
fn lode_at(point: &Path) -> io::Result<Option<Mounted>> {
    Ok(mountpoint::mounted_at(point)?.filter(|top| top.fs_type == FS_TYPE))
}

/// Unmounts; what ended just now may still hold files for a moment.
fn unmount_soon(point: &Path) -> io::Result<()> {
    let end = Instant::now() + IN_USE;
    loop {
        match mountpoint::unmount(point) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}
