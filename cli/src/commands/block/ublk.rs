//! `lode block serve --ublk`: whether the kernel has such devices, and why it has none.

use std::io;
use std::path::Path;

use lode_ublk::{CONTROL, Error};

use crate::failure::{Failure, Kind, Result};

/// Fails where the kernel has no such devices.
pub(super) fn must_be_there() -> Result<()> {
    match Path::new(CONTROL).exists() {
        true => Ok(()),
        false => Err(explained(&Error::NoDriver)),
    }
}

/// Why there is no device, for the user.
pub(super) fn explained(error: &Error) -> Failure {
    let is = |error: &io::Error, kind| error.kind() == kind;
    let (kind, advice) = match error {
        Error::NoDriver => (
            Kind::Failed,
            "`modprobe ublk_drv` as root loads it, if the kernel has it (Linux 6.4 or later, CONFIG_BLK_DEV_UBLK); or serve volumes by NBD, with --socket",
        ),
        Error::Open { error, .. } | Error::Command { error, .. }
            if is(error, io::ErrorKind::PermissionDenied) =>
        {
            (Kind::Denied, "run it as root: only root makes devices")
        }
        Error::Open { error, .. } if is(error, io::ErrorKind::NotFound) => (
            Kind::Failed,
            "let the system make the files of devices in /dev: mount a devtmpfs there",
        ),
        Error::Ring(_) => (
            Kind::Denied,
            "see /proc/sys/kernel/io_uring_disabled, and what the container lets its processes do",
        ),
        Error::Command { what: "make", .. } => (
            Kind::Failed,
            "use Linux 6.4 or later, whose driver has the commands that are given here",
        ),
        Error::Shape => (Kind::Failed, "give the volume another size with `lode block resize`"),
        _ => (Kind::Failed, "see what the kernel says, by `dmesg`"),
    };
    Failure::new(kind, error.to_string()).advise(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_driver_is_told_how_to_have_it() {
        let failure = explained(&Error::NoDriver);
        assert_eq!(failure.kind, Kind::Failed);
        assert!(failure.what.contains("/dev/ublk-control"), "{}", failure.what);
        assert!(failure.advice.is_some_and(|advice| advice.contains("modprobe ublk_drv")));
    }

    #[test]
    fn who_is_not_root_is_told_so_wherever_that_is_noticed() {
        let denied = || io::Error::from_raw_os_error(1);
        for error in [
            Error::Open { path: CONTROL.into(), error: denied() },
            Error::Command { what: "make", error: denied() },
        ] {
            assert_eq!(explained(&error).kind, Kind::Denied, "{error}");
        }
    }
}
