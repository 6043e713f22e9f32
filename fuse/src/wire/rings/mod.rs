//! Requests by io_uring: each CPU has a queue of its own, served by a thread on that CPU, so that
//! who asks and who answers take turns without waking another CPU; and one system call answers a
//! request and takes the next. What nobody waits for (forgotten inodes) still comes by the device.

mod command;
mod cpus;
mod entry;
mod layout;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use command::Ring;
use entry::{Entry, Spare, Work};

pub use cpus::{Cpus, stay_on};
pub use layout::OVER_IO_URING;

/// Requests of a queue that may be in memory at once; a thread works on one of them.
const ENTRIES: usize = 2;

/// Whether this process may use io_uring as it is needed here. To be asked before the kernel is: once
/// agreed upon, requests wait for the rings.
///
/// # Errors
/// Those of making a ring.
pub fn possible(connection: Arc<OwnedFd>) -> io::Result<()> {
    Ring::new(connection, Vec::new()).map(drop)
}

/// Works on requests of these queues until the mount is gone; to be called on the thread that stays with it.
///
/// # Errors
/// Where the kernel does not take the ring, or stops serving it.
pub fn serve(
    connection: Arc<OwnedFd>,
    queues: &[u16],
    data_bytes: usize,
    work: &mut Work<'_>,
) -> io::Result<()> {
    let each =
        |queue: &u16| (0..ENTRIES).map(|_| Entry::new(*queue, data_bytes)).collect::<Vec<_>>();
    let mut ring = Ring::new(connection, queues.iter().flat_map(each).collect())?;
    let mut spare = Spare::new(data_bytes);
    ring.register()?;
    let mut left = ring.entries();
    while left > 0 {
        ring.submit(true)?;
        while let Some((index, result)) = ring.completed() {
            if let Err(error) = result {
                if !is_end(&error) {
                    return Err(error);
                }
                left -= 1;
                continue;
            }
            let Some(entry) = ring.entry(index) else { continue };
            entry.work(&mut spare, work);
            ring.commit(index)?;
            // Who waits for this answer does not wait for the next one's.
            ring.submit(false)?;
        }
    }
    Ok(())
}

/// Whether the mount is gone.
fn is_end(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::ENOTCONN | libc::ECANCELED | libc::ENODEV | libc::ECONNABORTED))
}

#[cfg(test)]
mod tests;
