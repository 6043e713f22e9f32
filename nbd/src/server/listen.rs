//! Sockets that clients come to: for the owner (a Unix socket), for anyone on this machine (TCP on a loopback address),
//! or for whoever encrypts.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, open};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind,
    connect, listen, socket_with, sockopt,
};

use super::error::ServerError;
use super::places::Origin;
use super::stream::Stream;
use super::tls::{Offer, Tls};

/// Clients that have come and were not taken yet.
const BACKLOG: i32 = 128;
/// How long a server waits for others that begin in the same directory, and how often it looks.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A socket that clients come to. A Unix socket's file goes when this does.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// Clients are offered it.
    offer: Offer,
    /// Where it is, of TCP.
    address: Option<SocketAddr>,
    /// Held for what it does when it goes.
    _file: Option<SocketFile>,
}

/// A socket's file: this one, and no other that took its name.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a socket could not be removed");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Listener {
    /// A socket at `path` that only its owner can connect to. One that a dead server left is replaced.
    pub fn unix(path: &Path, tls: Option<&Tls>) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Socket { path: path.into(), source };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let _lock = lock(directory.unwrap_or(Path::new(".")));
        make_room(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let address = SocketAddrUnix::new(path).map_err(|code| failed(code.into()))?;
        let bound = (|| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // Before there is a file: it never has other permissions.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &address)?;
            Ok(socket)
        })();
        let socket = bound.map_err(|code: rustix::io::Errno| failed(code.into()))?;
        let identity = identity(path).map_err(failed)?;
        let file = SocketFile { path: path.into(), identity };
        listen(&socket, BACKLOG).map_err(|code| failed(code.into()))?;
        Ok(Self { socket, offer: Tls::offer(tls, true), address: None, _file: Some(file) })
    }

    /// A socket at the first of these addresses that can be had. One that other machines reach is only for who encrypts.
    pub fn tcp(addresses: &[SocketAddr], tls: Option<&Tls>) -> Result<Self, ServerError> {
        let is_far = |address: &&SocketAddr| !address.ip().is_loopback();
        if tls.is_none()
            && let Some(far) = addresses.iter().find(is_far)
        {
            return Err(ServerError::NotLoopback(*far));
        }
        // (What is told is about the last one.)
        let last = addresses.last().copied();
        let address = last.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let failed = |source| ServerError::Address { address, source };
        let listener = TcpListener::bind(addresses).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let offer = Tls::offer(tls, bound.ip().is_loopback());
        Ok(Self { socket: listener.into(), offer, address: Some(bound), _file: None })
    }

    /// Its address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where a client comes from that the kernel says this of.
    fn origin(&self, from: Option<SocketAddrAny>) -> Origin {
        match (self.address, from.map(SocketAddr::try_from)) {
            (None, _) => Origin::Unix,
            (_, Some(Ok(from))) => Origin::Tcp(from.ip().to_canonical()),
            // (All of those share what one machine may have.)
            _ => Origin::Tcp(IpAddr::from([0, 0, 0, 0])),
        }
    }

    /// A client that has come, and from where; `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<(Stream, Origin)>> {
        use rustix::io::Errno as Code;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            return match acceptfrom_with(&self.socket, flags) {
                Ok((socket, from)) => {
                    if self.address.is_some() {
                        // Who can't be told does without.
                        let _ = sockopt::set_tcp_nodelay(&socket, true);
                        let _ = sockopt::set_socket_keepalive(&socket, true);
                    }
                    let stream = Stream::new(socket, self.offer.clone());
                    Ok(Some((stream, self.origin(from))))
                }
                Err(Code::INTR | Code::CONNABORTED) => continue,
                Err(Code::AGAIN) => Ok(None),
                Err(code) => Err(code.into()),
            };
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Makes servers that begin in one directory at a time do so one after the other: each would take the other's socket,
/// which does not listen yet, for a dead one's. `None` where the directory can't be locked, or somebody keeps it so.
fn lock(directory: &Path) -> Option<fs::File> {
    // (What is no directory, and may be locked for other reasons, is told of later.)
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let locked = fs::File::from(open(directory, flags, Mode::empty()).ok()?);
    let began = Instant::now();
    loop {
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(locked),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_PATIENCE => {
                thread::sleep(LOCK_PAUSE);
            }
            // (Anybody may lock a directory that all may read, and keep it so.)
            Err(_) => return None,
        }
    }
}

/// Removes the socket of a server that is dead.
fn make_room(path: &Path) -> Result<(), ServerError> {
    let failed = |source| ServerError::Socket { path: path.into(), source };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return Err(ServerError::NotASocket(path.into()));
    }
    match is_alive(path) {
        Ok(true) => Err(ServerError::Served(path.into())),
        Ok(false) => fs::remove_file(path).map_err(failed),
        Err(code) => Err(failed(code.into())),
    }
}

/// Whether somebody listens at a socket; not waiting for somebody who is too busy to answer.
fn is_alive(path: &Path) -> rustix::io::Result<bool> {
    use rustix::io::Errno as Code;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Code::AGAIN) => Ok(true),
        Err(Code::CONNREFUSED) => Ok(false),
        Err(code) => Err(code),
    }
}
