//! The FUSE device: mounting by the system call where that is allowed, else by the
//! helper program.

use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use lode_engine::AccessTimes;
use rustix::mount::{MountFlags, mount};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::mountpoint::{FS_TYPE, helper_program};
use crate::options::MountOptions;
use crate::wire::DEVICE;

/// Mounts at `point`; what is returned is the connection to the kernel.
pub fn mount_fuse(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    match mount_directly(point, options) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            mount_by_helper(point, options)
        }
        other => other,
    }
}

fn mount_directly(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{DEVICE}: {error}"));
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(named)?;
    let device = OwnedFd::from(device);
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
    if options.permissions() {
        data.push_str(",default_permissions");
    }
    if options.others() {
        data.push_str(",allow_other");
    }
    let data = std::ffi::CString::new(data)?;
    mount(&options.pool, point, FS_TYPE, flags(options), data.as_c_str())?;
    Ok(device)
}

fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOATIME, options.atime == AccessTimes::Never);
    flags.set(MountFlags::STRICTATIME, options.atime == AccessTimes::Always);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags
}

/// Options as the helper takes them; it adds `nosuid` and `nodev` by itself.
fn helper_options(options: &MountOptions) -> String {
    let source = options.pool.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
    let mut all = format!("fsname={source},subtype=lode");
    let switches = [
        (options.read_only, ",ro"),
        (options.atime == AccessTimes::Never, ",noatime"),
        (options.noexec, ",noexec"),
        (options.permissions(), ",default_permissions"),
        (options.others(), ",allow_other"),
    ];
    for (on, text) in switches {
        if on {
            all.push_str(text);
        }
    }
    all
}

fn mount_by_helper(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let helper = helper_program();
    let kind = (AddressFamily::UNIX, SocketType::STREAM);
    // The helper has to inherit its end; it sends the device through it.
    let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    let child = Command::new(helper)
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(point)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{helper}: {error}")))?;
    drop(theirs);
    let device = receive(&ours);
    drop(ours);
    let output = child.wait_with_output()?;
    match device {
        Ok(Some(device)) => Ok(device),
        Ok(None) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(io::Error::new(kind_of(&said), said))
        }
        Err(error) => Err(error),
    }
}

/// The kind of error that the helper's words mean.
fn kind_of(said: &str) -> io::ErrorKind {
    const DENIED: [&str; 4] =
        ["ermission denied", "not permitted", "only allowed if", "no write access"];
    if DENIED.iter().any(|words| said.contains(words)) {
        io::ErrorKind::PermissionDenied
    } else {
        io::ErrorKind::Other
    }
}

/// The descriptor that comes through `socket`, or none when it is closed.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| recvmsg(socket.as_fd(), &mut parts, &mut control, flags))?;
    let mut device = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            device = descriptors.last().or(device);
        }
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_gets_commas_escaped() {
        let mut options = MountOptions::new("/a,b\\c");
        options.allow_other = Some(false);
        options.read_only = true;
        assert_eq!(
            helper_options(&options),
            "fsname=/a\\,b\\\\c,subtype=lode,ro,default_permissions"
        );
    }

    #[test]
    fn what_the_helper_does_not_allow_is_a_matter_of_permission() {
        for (said, kind) in [
            ("fusermount3: failed to open /dev/fuse: Permission denied", "denied"),
            ("fusermount3: user has no write access to mountpoint /x", "denied"),
            ("fusermount3: option allow_other only allowed if 'user_allow_other' is set", "denied"),
            ("fusermount3: failed to open /dev/fuse: No such device", "other"),
        ] {
            let denied = kind_of(said) == io::ErrorKind::PermissionDenied;
            assert_eq!(denied, kind == "denied", "{said}");
        }
    }

    #[test]
    fn a_closed_socket_gives_no_device() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        drop(theirs);
        assert!(receive(&ours).unwrap().is_none());
    }
}
