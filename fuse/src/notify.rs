//! Readiness: who started the server learns that the mount answers.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{MountError, Result};
use crate::mountpoint;

/// Waits until a live Lode mount answers at `path`.
pub fn wait_until_answers(path: &Path, timeout: Duration) -> Result<()> {
    wait_while(path, timeout, &|| true)
}

/// The same, and gives up when it may not answer any more.
pub(crate) fn wait_while(path: &Path, timeout: Duration, may: &dyn Fn() -> bool) -> Result<()> {
    let end = Instant::now() + timeout;
    let mut pause = Duration::from_millis(1);
    let point = mountpoint::canonical(path)
        .map_err(|source| MountError::MountPoint { path: path.into(), source })?;
    loop {
        if mountpoint::answers(&point) {
            return Ok(());
        }
        if Instant::now() + pause > end || !may() {
            return Err(MountError::NoAnswer { path: path.into(), seconds: timeout.as_secs() });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Tells the service manager, where one wants to know (`NOTIFY_SOCKET`). What goes
/// wrong is no reason to stop.
pub fn tell_manager(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(Path::new(&socket), message) {
        tracing::warn!(%error, "the service manager could not be told: {message}");
    }
}

fn send(socket: &Path, message: &str) -> io::Result<()> {
    let address = match socket.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_mount_that_is_gone_does_not_wait_on() {
        let dir = tempfile::tempdir().unwrap();
        let began = Instant::now();
        assert!(wait_while(dir.path(), Duration::from_secs(30), &|| false).is_err());
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn the_manager_gets_the_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(&path, "READY=1").unwrap();
        let mut got = [0; 64];
        let bytes = manager.recv(&mut got).unwrap();
        assert_eq!(&got[..bytes], b"READY=1");
    }

    #[test]
    fn abstract_names_work() {
        let name = format!("lode-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(Path::new(&format!("@{name}")), "STOPPING=1").unwrap();
        let mut got = [0; 64];
        assert_eq!(manager.recv(&mut got).unwrap(), 10);
    }

    #[test]
    fn waiting_for_nothing_ends() {
        let dir = tempfile::tempdir().unwrap();
        let waited = wait_until_answers(dir.path(), Duration::from_millis(30));
        assert!(matches!(waited, Err(MountError::NoAnswer { .. })));
    }
}
