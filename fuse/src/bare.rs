//! A mount without a pool: the same device, options, capabilities and threads, and whatever
//! [`Handler`] answers. With one that stores nothing it shows what FUSE alone costs.

use std::path::Path;

use crate::awake::{self, Wakeful};
use crate::device::mount_fuse;
use crate::error::{MountError, Result};
use crate::fs::MAX_WRITE;
use crate::introduction::introduce;
use crate::mountpoint;
use crate::options::MountOptions;
use crate::wire::{Agreed, Channel, Handler, Session};

pub use crate::fs::{FOREVER, Keeping, ROOT_TTL};

/// Mounts at the directory `dir` and serves until the mount is taken off. The handler is made
/// when it is known what was agreed upon with the kernel.
///
/// # Errors
/// Where it can't be mounted, or the device fails.
pub fn serve<H: Handler>(
    dir: &Path,
    options: &MountOptions,
    handler: impl FnOnce(&Agreed) -> H,
) -> Result<()> {
    let point = mountpoint::prepare(dir)?;
    let watched = awake::watch(options.awake)?;
    let kernel = |source| MountError::Kernel { path: point.clone(), source };
    let channel = Channel::new(mount_fuse(&point, options).map_err(kernel)?);
    let (agreed, queues) = introduce(&channel, options).map_err(|source| {
        // What can't be taken off is dead, and told as that to whoever looks.
        let _ = mountpoint::cut_off(&point);
        MountError::Protocol { path: point.clone(), source }
    })?;
    if let Ok(Some(mount)) = mountpoint::mounted_at(&point) {
        mountpoint::set_read_ahead(&mount.device, MAX_WRITE >> 10);
    }
    let handler = Wakeful { handler: handler(&agreed), watched };
    let session = Session::new(channel, handler, MAX_WRITE).with_queues(queues);
    session.run(options.server_threads()).map_err(|source| {
        // Nobody serves it any more.
        let _ = mountpoint::cut_off(&point);
        MountError::Session { path: point, source }
    })
}
