//! Where devices are given out: by NBD, or as devices of the kernel.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lode_nbd::{Device, Export, Server, ServerError, Tls};
use lode_ublk::{Disk, Settings};

use super::tls::{Renewed, far};
use super::{ServeArgs, TlsUse, ublk};
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::report::ServedAt;

/// How often it is looked whether a signal came.
const LOOK: Duration = Duration::from_millis(50);
/// How long clients may take to hear the end of what they have asked for.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long an end takes at most that waits for nobody.
const SOON: Duration = Duration::from_millis(500);
/// How often in a row somebody gives no answer who will give none.
const SILENCES: u32 = 2;

/// A device that is to be served.
pub(super) struct Offer {
    /// The export's name.
    pub(super) name: String,
    /// What it is, for people.
    pub(super) text: String,
    pub(super) device: Arc<dyn Device>,
}

/// What serves them.
pub(super) enum Outlet {
    /// With the certificates for those who come from elsewhere.
    Nbd(Server, Option<Renewed>),
    Kernel(Vec<Disk>),
}

impl Outlet {
    /// Starts it; tells where each device is. `path` is what they are of.
    ///
    /// # Errors
    /// Another server is there, an address can't be had, the kernel has no driver.
    pub(super) fn open(
        args: &ServeArgs,
        tls: Option<Tls>,
        path: &Path,
        offers: Vec<Offer>,
    ) -> Result<(Self, Vec<ServedAt>)> {
        let names: Vec<String> = offers.iter().map(|offer| offer.name.clone()).collect();
        args.has_all_read_only(path, &names)?;
        match args.ublk {
            true => disks(path, offers),
            false => server(args, tls, path, offers),
        }
    }

    /// Whether somebody else has ended a device.
    fn is_over(&self) -> bool {
        match self {
            Self::Nbd(..) => false,
            Self::Kernel(disks) => disks.iter().any(Disk::is_over),
        }
    }

    /// Serves until a signal comes, and does `aside` now and then.
    ///
    /// # Errors
    /// Those of `aside`; a device was ended by somebody else, or fails.
    pub(super) fn serve(
        self,
        path: &Path,
        interrupt: &Interrupt,
        aside: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let done = self.last(path, interrupt, aside);
        self.end(path, interrupt, done)
    }

    /// The same of devices whose calls wait for somebody else's answers, who may never give them: `is_silent` says whether he does not,
    /// and is asked when to end takes long. Then nothing is waited for, what was asked for has no answer, and the socket's file goes.
    ///
    /// # Errors
    /// A device was ended by somebody else, or fails; requests were left without an answer.
    pub(super) fn serve_of_another(
        self,
        path: &Path,
        socket: Option<&Path>,
        interrupt: &Interrupt,
        is_silent: impl Fn() -> bool,
    ) -> Result<()> {
        let file = socket.and_then(identity);
        let done = self.last(path, interrupt, || Ok(()));
        let (of, by) = (path.to_owned(), interrupt.clone());
        let begun = Instant::now();
        let ending = thread::Builder::new().name("lode-ends".into());
        let ending = ending.spawn(move || self.end(&of, &by, done));
        let ending = ending.map_err(|error| Failure::io("ending the devices of", path, &error))?;
        let (mut next, mut silences) = (SOON, 0);
        while !ending.is_finished() {
            thread::sleep(LOOK / 10);
            if begun.elapsed() < next {
                continue;
            }
            silences = if is_silent() { silences + 1 } else { 0 };
            if silences == SILENCES || begun.elapsed() > FAREWELL + SOON {
                // (It may be gone by now, or be another server's.)
                if let Some(socket) = socket.filter(|socket| identity(socket) == file) {
                    let _ = fs::remove_file(socket);
                }
                let what = "the mount's server does not answer: requests that it has are left without an answer";
                return Err(Failure::new(Kind::Failed, what).at(path));
            }
            next = begun.elapsed() + SOON;
        }
        ending.join().unwrap_or_else(|_| {
            Err(Failure::new(Kind::Failed, "ending the devices panicked").at(path))
        })
    }

    /// Waits for a signal, and does `aside` meanwhile.
    fn last(
        &self,
        path: &Path,
        interrupt: &Interrupt,
        mut aside: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut done = Ok(());
        while done.is_ok() && !interrupt.came() && !self.is_over() {
            thread::sleep(LOOK);
            if let Self::Nbd(_, Some(certificates)) = self {
                certificates.look();
            }
            done = aside();
        }
        if done.is_ok() && !interrupt.came() {
            done = Err(Failure::new(Kind::Failed, "somebody else has ended a device").at(path));
        }
        done
    }

    /// Ends it, after what was done.
    fn end(self, path: &Path, interrupt: &Interrupt, done: Result<()>) -> Result<()> {
        match self {
            Self::Nbd(server, _) => {
                server.shutdown(FAREWELL);
                done
            }
            Self::Kernel(disks) => disks.into_iter().fold(done, |done, disk| {
                let stopped = disk.stop().map_err(|error| ublk::explained(&error).at(path));
                // What went wrong itself tells more than that something is over.
                if interrupt.came() { done.and(stopped) } else { stopped.and(done) }
            }),
        }
    }
}

/// Which file this is, whatever its name leads to later.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn disks(path: &Path, offers: Vec<Offer>) -> Result<(Outlet, Vec<ServedAt>)> {
    let (mut disks, mut places) = (Vec::new(), Vec::new());
    for offer in offers {
        let disk = Disk::start(offer.device, Settings::default());
        let disk = disk.map_err(|error| ublk::explained(&error).at(path))?;
        places.push(ServedAt::device(disk.path()));
        disks.push(disk);
    }
    Ok((Outlet::Kernel(disks), places))
}

fn server(
    args: &ServeArgs,
    tls: Option<Tls>,
    path: &Path,
    offers: Vec<Offer>,
) -> Result<(Outlet, Vec<ServedAt>)> {
    let names: Vec<String> = offers.iter().map(|offer| offer.name.clone()).collect();
    let mut builder = Server::builder();
    for Offer { name, text, device } in offers {
        builder = builder.export(Export::new(name, device).described(text));
    }
    if let Some(socket) = &args.socket {
        builder = builder.unix(socket);
    }
    if let Some(listen) = &args.listen {
        builder = builder.tcp_first_of(listen.addresses());
    }
    let certificates = tls.as_ref().map(Renewed::new).transpose()?;
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let server = builder.start().map_err(|error| explained(path, &error))?;
    let at = (args.socket.as_deref(), server.addresses().first().copied());
    let has_tls = args.tls == TlsUse::Required;
    let is_far = at.1.is_some_and(|address| !address.ip().is_loopback());
    let schemes = |served| with_schemes(served, has_tls, is_far);
    let places = names.iter().map(|name| schemes(ServedAt::new(name, at))).collect();
    Ok((Outlet::Nbd(server, certificates), places))
}

/// URIs say where TLS has to be used: everywhere, or by those from elsewhere.
fn with_schemes(mut served: ServedAt, required: bool, is_far: bool) -> ServedAt {
    for uri in &mut served.uris {
        if required || (is_far && uri.starts_with("nbd:")) {
            uri.insert(3, 's');
        }
    }
    served
}

/// Why nothing is served, for the user.
fn explained(path: &Path, error: &ServerError) -> Failure {
    let (kind, advice) = match error {
        ServerError::Served(_) => (Kind::Busy, "choose another socket, or end that server"),
        ServerError::NotASocket(_) => (Kind::Exists, "choose another path for the socket"),
        ServerError::TwoExports(_) => (Kind::Usage, "name each volume once"),
        ServerError::NotLoopback(address) => return far(*address).at(path),
        ServerError::Socket { path, source } => return unbound(path, source),
        ServerError::Address { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                (Kind::Busy, "choose another port, or end who listens there")
            }
            io::ErrorKind::PermissionDenied => (Kind::Denied, "choose a port from 1024 on"),
            _ => (Kind::Failed, "choose an address that this machine has"),
        },
        _ => (Kind::Failed, ""),
    };
    let failure = Failure::new(kind, error.to_string()).at(path);
    if advice.is_empty() { failure } else { failure.advise(advice) }
}

/// Why there is no socket at this path.
fn unbound(socket: &Path, error: &io::Error) -> Failure {
    let parent = socket.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).display();
    let failure = match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Kind::NotFound, format!("there is no directory {parent} for the socket"))
                .advise("make it, or choose another path for --socket")
        }
        io::ErrorKind::NotADirectory => {
            Failure::usage(format!("{parent} is no directory, in which the socket could be"))
                .advise("choose another path for --socket")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Failure::new(Kind::Denied, format!("no socket can be made there: {error}"))
                .advise("choose a directory for --socket that you may write")
        }
        io::ErrorKind::InvalidFilename => Failure::usage("the path is too long for a socket")
            .advise("choose one of 107 bytes at most"),
        _ => Failure::new(Kind::Failed, format!("no socket can be made there: {error}"))
            .advise("choose another path for --socket"),
    };
    failure.at(socket)
}
