//! A second descriptor of a connection: a call of the protocol that has no safe wrapper.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use fuse_abi::linux::FUSE_DEV_IOC_MAGIC;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// Makes `fresh`, an unused descriptor of the device, one more of the connection of `of`.
#[allow(unsafe_code)]
pub fn attach(fresh: impl AsFd, of: impl AsFd) -> io::Result<()> {
    const CLONE: Opcode = opcode::read::<u32>(FUSE_DEV_IOC_MAGIC as u8, 0);
    let number = of.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the device's call of this number reads a 32-bit descriptor number through the
    // pointer it is given, and touches no other memory.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }?;
    Ok(())
}
