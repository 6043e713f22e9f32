//! `lode block serve`: volumes of a pool for whoever speaks NBD, or (`ublk`) for the kernel, until a signal ends it.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_block::Volume;
use lode_host::StdHost;
use lode_nbd::{Device, Export, Server, ServerError, Tls, TlsError};
use lode_pmem::Mapped;

use super::{ServeArgs, TlsUse, refused, ublk};
use crate::commands::snapshot::mount_of;
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::mounts;
use crate::output::Output;
use crate::region::{self, MappedPool};
use crate::report::{ServedFacts, VolumeFacts, VolumesServed};

/// How often it is looked whether a signal came.
const LOOK: Duration = Duration::from_millis(50);
/// How often work of the pool is done that waits for a quiet moment.
const MAINTAIN: Duration = Duration::from_secs(1);
/// How long clients may take to hear the end of what they have asked for.
const FAREWELL: Duration = Duration::from_secs(10);

pub(super) fn serve(args: &ServeArgs, output: &Output) -> Result<()> {
    let clean = mounts::clean_path(&args.pool)?;
    if let Some(mount) = mount_of(&args.pool, &clean)? {
        return Err(Failure::new(Kind::Busy, "the pool is mounted")
            .at(&mount.point)
            .advise("`lode block attach` makes a volume of a mounted pool a loop device; or unmount the pool and serve it"));
    }
    // (Before the pool is opened: it has nothing to do with what is wrong there.)
    let tls = tls_of(args)?;
    if args.ublk {
        ublk::must_be_there()?;
    }
    let interrupt = Interrupt::by_signals()?;
    let pool = Arc::new(region::open_pool(&clean, args.read_only, output)?);
    let served = match args.ublk {
        true => ublk::serve(args, &clean, &pool, output, &interrupt),
        false => serve_volumes(args, tls, &clean, &pool, output, &interrupt),
    };
    // (Nobody has a volume any more.)
    let closed = match Arc::try_unwrap(pool) {
        Ok(pool) if !args.read_only => {
            pool.close().map_err(|error| Failure::engine(&clean, &error))
        }
        _ => Ok(()),
    };
    // What went wrong first is what to tell.
    served.and(closed)
}

/// Serves, and does the pool's own work, until a signal comes.
fn serve_volumes(
    args: &ServeArgs,
    tls: Option<Tls>,
    path: &Path,
    pool: &Arc<MappedPool>,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<()> {
    let volumes = volumes_of(args, path, pool)?;
    let mut builder = Server::builder();
    for Open { name, facts, volume } in &volumes {
        let device: Arc<dyn Device> = Arc::clone(volume) as Arc<dyn Device>;
        let text = format!("volume {} of {}", facts.name, path.display());
        builder = builder.export(Export::new(name, device).described(text));
    }
    if let Some(socket) = &args.socket {
        builder = builder.unix(socket);
    }
    if let Some(address) = args.listen {
        builder = builder.tcp(address);
    }
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let server = builder.start().map_err(|error| explained(path, &error))?;
    let at = (args.socket.as_deref(), server.addresses().first().copied());
    let exports = volumes.into_iter();
    let exports =
        exports.map(|one| with_schemes(args, ServedFacts::new(one.facts, &one.name, at))).collect();
    output.print(&VolumesServed { pool: path.display().to_string(), exports })?;
    until_interrupted(path, pool, || interrupt.came())?;
    server.shutdown(FAREWELL);
    Ok(())
}

/// Does the pool's own work until there is an end.
pub(super) fn until_interrupted(
    path: &Path,
    pool: &MappedPool,
    mut is_over: impl FnMut() -> bool,
) -> Result<()> {
    let mut maintained = Instant::now();
    while !is_over() {
        std::thread::sleep(LOOK);
        if maintained.elapsed() >= MAINTAIN && !pool.is_read_only() {
            pool.maintain().map_err(|error| Failure::engine(path, &error))?;
            maintained = Instant::now();
        }
    }
    Ok(())
}

/// The certificates that are to be used.
fn tls_of(args: &ServeArgs) -> Result<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return match args.listen {
            Some(address) if !address.ip().is_loopback() => Err(far(address)),
            _ => Ok(None),
        };
    };
    let tls = Tls::from_files(certificate, key, args.tls_ca.as_deref()).map_err(|error| {
        let (kind, advice) = match &error {
            TlsError::File { source, .. } if source.kind() == ErrorKind::NotFound => {
                (Kind::NotFound, "name files in PEM that are there")
            }
            TlsError::File { .. } => (Kind::Denied, "make them readable to who serves"),
            TlsError::Pair { .. } => (Kind::Usage, "--tls-key is to be the key that the certificate of --tls-cert is for"),
            _ => (Kind::Usage, "--tls-cert and --tls-ca are certificates and --tls-key is a key that no passphrase protects, all in PEM: the guide shows how to make some"),
        };
        Failure::new(kind, error.to_string()).advise(advice)
    })?;
    Ok(Some(if args.tls == TlsUse::Required { tls.required() } else { tls }))
}

/// Why this address is not listened at without TLS.
fn far(address: SocketAddr) -> Failure {
    Failure::usage(ServerError::NotLoopback(address).to_string()).advise(
        "give --tls-cert and --tls-key (and --tls-ca, so that not everybody may come); or listen at 127.0.0.1, [::1] or a Unix socket, and reach that from elsewhere through ssh -L",
    )
}

/// URIs say where TLS has to be used.
fn with_schemes(args: &ServeArgs, mut served: ServedFacts) -> ServedFacts {
    let required = args.tls == TlsUse::Required;
    let far = args.listen.is_some_and(|address| !address.ip().is_loopback());
    for uri in &mut served.uris {
        if required || (far && uri.starts_with("nbd:")) {
            uri.insert(3, 's');
        }
    }
    served
}

/// A volume that is open.
pub(super) struct Open {
    pub(super) name: String,
    pub(super) facts: VolumeFacts,
    pub(super) volume: Arc<Volume<Mapped, StdHost>>,
}

/// The volumes that are asked for, all of them if none is.
pub(super) fn volumes_of(
    args: &ServeArgs,
    path: &Path,
    pool: &Arc<MappedPool>,
) -> Result<Vec<Open>> {
    let all = lode_block::list(pool).map_err(|error| refused(path, OsStr::new(""), &error))?;
    let names = match args.names.as_slice() {
        [] => all.iter().map(|one| OsStr::from_bytes(&one.name).to_owned()).collect(),
        names => names.to_vec(),
    };
    if names.is_empty() {
        return Err(Failure::new(Kind::NotFound, "the pool has no volumes")
            .at(path)
            .advise("make one with `lode block create`"));
    }
    let mut volumes = Vec::new();
    for name in names {
        let failed = |error| refused(path, &name, &error);
        let info = lode_block::info(pool, name.as_bytes()).map_err(failed)?;
        let facts = VolumeFacts::from(&info);
        let Some(export) = name.to_str() else {
            let what = format!("{}: the protocol has only names in UTF-8", facts.name);
            return Err(Failure::usage(what).at(path));
        };
        let volume = Volume::open(Arc::clone(pool), name.as_bytes()).map_err(failed)?;
        volumes.push(Open { name: export.to_owned(), facts, volume: Arc::new(volume) });
    }
    Ok(volumes)
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
