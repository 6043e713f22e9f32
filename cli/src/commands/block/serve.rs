//! `lode block serve`: devices for whoever speaks NBD, or for the kernel, until a signal ends it: volumes of a pool, mounted or
//! not, or a whole region.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_block::Volume;
use lode_host::StdHost;
use lode_nbd::{Device, Tls};
use lode_pmem::Mapped;

use super::outlet::{Offer, Outlet};
use super::tls::tls_of;
use super::volumes::mount_of;
use super::{ServeArgs, mounted, raw, refused, ublk};
use crate::commands::mount::log_to_stderr;
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::mounts;
use crate::output::Output;
use crate::region::{self, MappedPool};
use crate::report::{ServedFacts, VolumeFacts, VolumesServed};

/// How often work of the pool is done that waits for a quiet moment.
const MAINTAIN: Duration = Duration::from_secs(1);

pub(super) fn serve(args: &ServeArgs, output: &Output) -> Result<()> {
    log_to_stderr(io::stderr().is_terminal());
    // (Before anything is opened: it has nothing to do with what is wrong there.)
    let tls = tls_of(args)?;
    if args.ublk {
        ublk::must_be_there()?;
    }
    let clean = mounts::clean_path(&args.pool)?;
    if args.raw.raw {
        return raw::serve(args, tls, &clean, output);
    }
    if let Some(mount) = mount_of(&args.pool, &clean)? {
        return mounted::serve(args, tls, &mount, output);
    }
    let interrupt = Interrupt::by_signals()?;
    let options = region::options(&args.raw.of_pool()?, args.is_read_only());
    let pool = Arc::new(region::open_pool_by(&clean, &options, output)?);
    let served = serve_volumes(args, tls, &clean, &pool, output, &interrupt);
    // (Nobody has a volume any more.)
    let closed = match Arc::try_unwrap(pool) {
        Ok(pool) if !args.is_read_only() => {
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
    let (mut facts, mut offers) = (Vec::new(), Vec::new());
    for Open { name, facts: of, volume } in volumes_of(args, path, pool)? {
        let text = format!("volume {} of {}", of.name, path.display());
        let device = args.guarded(&name, volume as Arc<dyn Device>);
        facts.push((of, device.read_only()));
        offers.push(Offer { name, text, device });
    }
    let (outlet, places) = Outlet::open(args, tls, path, offers)?;
    let exports = facts.into_iter().zip(places);
    let facts = |((volume, read_only), at)| ServedFacts { volume, read_only, at };
    let exports = exports.map(facts).collect();
    output.print(&VolumesServed { pool: path.display().to_string(), exports })?;
    let mut maintained = Instant::now();
    outlet.serve(path, interrupt, || {
        if maintained.elapsed() >= MAINTAIN && !pool.is_read_only() {
            pool.maintain().map_err(|error| Failure::engine(path, &error))?;
            maintained = Instant::now();
        }
        Ok(())
    })
}

/// A volume that is open.
struct Open {
    name: String,
    facts: VolumeFacts,
    volume: Arc<Volume<Mapped, StdHost>>,
}

/// The name of a volume that clients can ask for. Of all volumes of a pool those are left out that they can't.
pub(super) fn nameable(name: &[u8]) -> Option<OsString> {
    let is_text = str::from_utf8(name).is_ok();
    if !is_text {
        let name = OsStr::from_bytes(name);
        tracing::warn!(?name, "a volume is not served: the protocol has only names in UTF-8");
    }
    is_text.then(|| OsStr::from_bytes(name).to_owned())
}

/// What clients call a volume that was asked for by its name.
pub(super) fn export_of(name: &OsStr, facts: &VolumeFacts) -> Result<String> {
    let no_text = || {
        let what = format!("{}: the protocol has only names in UTF-8", facts.name);
        Failure::usage(what).advise("rename its file in a mount of the pool: in .lode/volumes")
    };
    name.to_str().map(str::to_owned).ok_or_else(no_text)
}

/// The volumes that are asked for, all of them if none is.
fn volumes_of(args: &ServeArgs, path: &Path, pool: &Arc<MappedPool>) -> Result<Vec<Open>> {
    let all = lode_block::list(pool).map_err(|error| refused(path, OsStr::new(""), &error))?;
    let names = match args.names.as_slice() {
        [] => all.iter().filter_map(|one| nameable(&one.name)).collect(),
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
        let export = export_of(&name, &facts).map_err(|failure| failure.at(path))?;
        let volume = Volume::open(Arc::clone(pool), name.as_bytes()).map_err(failed)?;
        volumes.push(Open { name: export, facts, volume: Arc::new(volume) });
    }
    Ok(volumes)
}
