//! Errors of mounts, in a user's words: what is wrong, where, and what to do.

use std::path::Path;

use lode_fuse::MountError;

use crate::failure::{Failure, Kind};
use crate::mounts::{self, FirstPlace};

/// A mount's error for the user.
pub(crate) fn mount_failure(dir: &Path, error: &MountError) -> Failure {
    use std::io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
    let text = without_place(error);
    let (kind, advice) = match error {
        MountError::Kernel { source, .. } if source.kind() == PermissionDenied => {
            return may_not_mount(dir, source);
        }
        MountError::NotMounted(_) => {
            (Kind::NotMounted, "`findmnt -t fuse.lode` lists Lode's mounts")
        }
        MountError::Busy(_) => (Kind::Busy, "choose another directory, or unmount this one first"),
        MountError::Unmount { source, .. } if source.kind() == ResourceBusy => {
            (Kind::Busy, "end who uses it, then try again; --lazy detaches it now")
        }
        MountError::NotADirectory(_) => (Kind::Usage, "give the path of an existing directory"),
        MountError::MountPoint { source, .. } if source.kind() == NotFound => {
            (Kind::NotFound, "make the directory first, with mkdir -p")
        }
        MountError::Kernel { source, .. } if source.kind() == NotFound => {
            (Kind::Failed, "FUSE is missing here: load the module (modprobe fuse), install fuse3")
        }
        MountError::MountPoint { source, .. }
        | MountError::Unmount { source, .. }
        | MountError::DeadMount { source, .. }
            if source.kind() == PermissionDenied =>
        {
            (Kind::Denied, "run as root, or install fusermount3 (package fuse3)")
        }
        MountError::Asleep(_) => (
            Kind::Denied,
            "leave the option awake out, or let the server have /dev/cpu_dma_latency",
        ),
        MountError::NoServer(_) => return unreached(dir, text),
        MountError::Close(error) => return Failure::engine(dir, error),
        _ => return Failure::new(Kind::Failed, text).at(dir),
    };
    Failure::new(kind, text).at(dir).advise(advice)
}

/// A server's socket is in a directory that its user alone may enter, root does not look there either;
/// and it is found by the place where the pool was mounted.
fn unreached(dir: &Path, what: String) -> Failure {
    let mount = mounts::at(dir).ok().flatten();
    let owner = mount.as_ref().and_then(|mount| mount.owner);
    let this = rustix::process::geteuid().as_raw();
    let advice = match (owner, mount.as_ref().and_then(mounts::first_place)) {
        (Some(0), _) if this != 0 => "run as root, who mounted it".to_owned(),
        (Some(owner), _) if owner != this => {
            format!("run as the user who mounted it, whose number is {owner}")
        }
        (_, Some(first)) => return elsewhere(dir, &first),
        _ => "run it with XDG_RUNTIME_DIR as it was when the pool was mounted".to_owned(),
    };
    Failure::new(Kind::Denied, what).at(dir).advise(advice)
}

/// `mount --move` or `mount --bind` has put a mount here whose server knows it as `first`.
fn elsewhere(dir: &Path, first: &FirstPlace) -> Failure {
    let (place, here) = (first.point.display(), dir.display());
    let (what, advice) = if first.still_there {
        (
            format!("its server knows it as {place}, where it is mounted, too"),
            format!("name {place}"),
        )
    } else {
        let advice =
            format!("`umount {here}` unmounts it, `mount --move {here} {place}` moves it back");
        (format!("the mount was moved here from {place}, by which its server knows it"), advice)
    };
    Failure::new(Kind::Denied, what).at(dir).advise(advice)
}

/// What is wrong, without the mount point, which is said beside it.
fn without_place(error: &MountError) -> String {
    match error {
        MountError::NotMounted(_) => "no Lode pool is mounted here".to_owned(),
        MountError::Busy(_) => "a Lode pool is mounted here already".to_owned(),
        MountError::NotADirectory(_) => "the mount point is not a directory".to_owned(),
        MountError::MountPoint { source, .. } => format!("can't mount here: {source}"),
        MountError::Kernel { source, .. } => format!("the kernel refused to mount: {source}"),
        MountError::Protocol { source, .. } => format!("can't serve a mount: {source}"),
        MountError::Unmount { source, .. } => format!("can't unmount: {source}"),
        MountError::DeadMount { source, .. } => {
            format!("the server of this mount is gone, and it can't be taken off: {source}")
        }
        MountError::NoServer(_) => "no server of this mount can be reached".to_owned(),
        other => other.to_string(),
    }
}

/// Who may mount is decided by the kernel and by the helper program; here it was not allowed.
fn may_not_mount(dir: &Path, source: &std::io::Error) -> Failure {
    let said = source.to_string();
    let (what, advice) = if said.contains("allow_other") {
        (
            "allow_other is not allowed to you".to_owned(),
            "leave it out, or let root write user_allow_other into /etc/fuse.conf",
        )
    } else if said.contains("write access") {
        (
            "you may not write to this directory, so you may not mount here".to_owned(),
            "choose a directory of your own, or mount as root",
        )
    } else if said.contains("/dev/fuse") {
        (
            format!("mounting was not allowed: {said}"),
            "let root open the device to you (chmod 0666 /dev/fuse), or mount as root",
        )
    } else {
        (
            format!("mounting was not allowed: {said}"),
            "run as root, or install fusermount3 (package fuse3)",
        )
    };
    Failure::new(Kind::Denied, what).at(dir).advise(advice)
}
