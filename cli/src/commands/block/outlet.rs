//! Where devices are given out: by NBD, or as devices of the kernel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
        mut aside: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut done = Ok(());
        while done.is_ok() && !interrupt.came() && !self.is_over() {
            std::thread::sleep(LOOK);
            if let Self::Nbd(_, Some(certificates)) = &self {
                certificates.look();
            }
            done = aside();
        }
        if done.is_ok() && !interrupt.came() {
            done = Err(Failure::new(Kind::Failed, "somebody else has ended a device").at(path));
        }
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
    if let Some(address) = args.listen {
        builder = builder.tcp(address);
    }
    let certificates = tls.as_ref().map(Renewed::new).transpose()?;
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let server = builder.start().map_err(|error| explained(path, &error))?;
    let at = (args.socket.as_deref(), server.addresses().first().copied());
    let places = names.iter().map(|name| with_schemes(args, ServedAt::new(name, at))).collect();
    Ok((Outlet::Nbd(server, certificates), places))
}

/// URIs say where TLS has to be used.
fn with_schemes(args: &ServeArgs, mut served: ServedAt) -> ServedAt {
    let required = args.tls == TlsUse::Required;
    let far = args.listen.is_some_and(|address| !address.ip().is_loopback());
    for uri in &mut served.uris {
        if required || (far && uri.starts_with("nbd:")) {
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
        ServerError::Address { .. } | ServerError::Socket { .. } => {
            (Kind::Failed, "choose another address or path")
        }
        _ => (Kind::Failed, ""),
    };
    let failure = Failure::new(kind, error.to_string()).at(path);
    if advice.is_empty() { failure } else { failure.advise(advice) }
}
