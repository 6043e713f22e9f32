//! Error numbers, as the kernel takes them.

/// The number of an error: what a request that fails is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(i32);

impl Errno {
    /// A file would become too large.
    pub const EFBIG: Self = Self(libc::EFBIG);
    /// An argument makes no sense.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// Something is broken.
    pub const EIO: Self = Self(libc::EIO);
    /// No such name.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// No memory.
    pub const ENOMEM: Self = Self(libc::ENOMEM);
    /// Not done here; most such requests the kernel then does not send again.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// No such control of a device.
    pub const ENOTTY: Self = Self(libc::ENOTTY);
    /// Nothing there.
    pub const ENXIO: Self = Self(libc::ENXIO);
    /// Not done for this kind of thing.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// A number does not fit.
    pub const EOVERFLOW: Self = Self(libc::EOVERFLOW);
    /// Another version of the protocol.
    pub const EPERM: Self = Self(libc::EPERM);
    /// What it is named after.
    pub const EPROTO: Self = Self(libc::EPROTO);
    /// The result does not fit.
    pub const ERANGE: Self = Self(libc::ERANGE);

    /// The error of this number. A number that the kernel would not take becomes [`Self::EIO`]:
    /// it would refuse the answer, and whoever waits for it would wait for ever.
    pub fn new(number: i32) -> Self {
        // The numbers from here on are the kernel's own.
        const END: i32 = 512;
        if (1..END).contains(&number) { Self(number) } else { Self::EIO }
    }

    /// The number, positive.
    pub fn code(self) -> i32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn only_what_the_kernel_takes_is_an_error_number() {
        for number in [i32::MIN, -5, 0, 512, i32::MAX] {
            assert_eq!(Errno::new(number), Errno::EIO);
        }
        for number in [1, 116, 511] {
            assert_eq!(Errno::new(number).code(), number);
        }
    }
}
