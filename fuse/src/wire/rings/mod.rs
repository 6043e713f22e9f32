//! Requests by io_uring: each CPU has a queue of its own, served by a thread on that CPU, so that
//! who asks and who answers take turns without waking another CPU; and one system call answers a
//! request and takes the next. What nobody waits for (forgotten inodes) still comes by the device.

mod command;
mod cpus;
mod entry;
mod layout;
mod queues;

use std::io;

use command::Ring;
use entry::{Spare, Work};

pub use layout::OVER_IO_URING;
pub use queues::{ALLOWED, Queues};

/// Works on requests until the mount is gone. What `work` returns is held until the request has been
/// answered.
///
/// # Errors
/// Where the kernel does not take the ring, or stops serving it.
pub fn serve<P>(mut ring: Ring, data_bytes: usize, work: &mut Work<'_, P>) -> io::Result<()> {
    let mut spare = Spare::new(data_bytes);
    ring.register()?;
    while ring.is_used() {
        ring.submit(true)?;
        while let Some((index, result)) = ring.completed() {
            match result {
                Ok(()) => {}
                Err(error) if is_end(&error) => continue,
                Err(error) => return Err(error),
            }
            let Some(entry) = ring.entry(index) else { continue };
            let held = entry.work(&mut spare, work);
            ring.commit(index)?;
            // Who waits for this answer does not wait for the next one's.
            ring.submit(false)?;
            drop(held);
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
