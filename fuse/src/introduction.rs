//! The beginning of a mount: what the kernel and a server agree upon.

use crate::fs::wish;
use crate::options::MountOptions;
use crate::wire::{Agreed, Channel, Cpus, InitError, OVER_IO_URING, shake_hands};

/// Agrees with the kernel at the other end of `channel`; with the CPUs that have a queue each,
/// where requests come by io_uring.
///
/// # Errors
/// See [`InitError`].
pub(crate) fn introduce(
    channel: &Channel,
    options: &MountOptions,
) -> Result<(Agreed, Option<Cpus>), InitError> {
    let mut wish = wish(options.permissions());
    // From when it is agreed upon requests wait for the rings: they have to be possible.
    let cpus = options.wants_rings().then(|| channel.could_have_rings()).flatten();
    wish.groups.extend(cpus.as_ref().map(|_| OVER_IO_URING));
    let agreed = shake_hands(channel, &wish)?;
    let cpus = cpus.filter(|_| agreed.by_rings());
    if cpus.is_none() && options.rings == Some(true) {
        return Err(InitError::NoRings);
    }
    Ok((agreed, cpus))
}
