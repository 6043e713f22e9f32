//! The beginning of a mount: what the kernel and a server agree upon.

use crate::fs::{MAX_WRITE, wish};
use crate::options::MountOptions;
use crate::wire::{Agreed, Channel, InitError, OVER_IO_URING, Queues, shake_hands};

/// Agrees with the kernel at the other end of `channel`; with the threads that requests
/// come to, where they come by io_uring.
///
/// # Errors
/// See [`InitError`].
pub(crate) fn introduce(
    channel: &Channel,
    options: &MountOptions,
) -> Result<(Agreed, Option<Queues>), InitError> {
    let mut wish = wish(options.permissions());
    // From when it is agreed upon requests wait for the rings: they have to be there.
    let queues = options.wants_rings().then(|| channel.queues(MAX_WRITE as usize)).flatten();
    wish.groups.extend(queues.as_ref().map(|_| OVER_IO_URING));
    let agreed = shake_hands(channel, &wish)?;
    let queues = queues.filter(|_| agreed.by_rings());
    if queues.is_none() && options.rings == Some(true) {
        return Err(InitError::NoRings);
    }
    Ok((agreed, queues))
}
