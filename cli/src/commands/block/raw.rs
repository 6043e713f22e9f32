//! `lode block serve --raw`: a whole file or DAX device, without a pool, and the design space of PMBD.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use lode_block::{Batching, Protection, RawDevice, RawSettings, Sector};
use lode_nbd::{Device, Tls};
use lode_pmem::{ProtectIo, RawError, RegionError, Slowdown, WindowMode, WriteScheme};

use super::outlet::{Offer, Outlet};
use super::{ServeArgs, parse_sector};
use crate::args::RegionArgs;
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::mounts;
use crate::output::Output;
use crate::raw::Raw;
use crate::region;
use crate::report::RawServed;
use crate::sizes::parse_size;
use crate::superblock::read_copies;

/// Name of the export.
const EXPORT: &str = "raw";

/// How devices are protected and stored to, and whether they are whole regions.
#[derive(Args, Debug)]
pub(crate) struct RawArgs {
    /// Serve a whole file or DAX device, which is no pool: its sectors are written in place, and may be torn when the power fails
    #[arg(long)]
    pub(crate) raw: bool,
    /// With --raw: though it holds a pool
    #[arg(long, requires = "raw")]
    pub(crate) force: bool,
    /// With --raw: bytes of a sector, 512 or 4096 [default: 512]
    #[arg(long, value_name = "BYTES", requires = "raw", value_parser = parse_sector)]
    pub(crate) sector: Option<Sector>,
    /// What keeps stray stores out: none, key or mprotect; with --raw also key-rw (loads as well), mprotect-batch (writes wait
    /// in buffers) and private-map (only what is accessed is mapped) [default: key where the CPU has it, else none]
    #[arg(long, value_name = "MODE")]
    pub(crate) protect_io: Option<Protection>,
    /// With --raw: how what is written reaches the memory: nt (past the caches), clwb or clflush (through them), cached (at the
    /// next flush) [default: nt]
    #[arg(long, value_name = "SCHEME", requires = "raw")]
    pub(crate) write_scheme: Option<WriteScheme>,
    /// With --raw: reads take so many times as long, 1 to 1000
    #[arg(long, value_name = "N", requires = "raw")]
    pub(crate) slow_read: Option<Slowdown>,
    /// With --raw: writes take so many times as long, 1 to 1000
    #[arg(long, value_name = "N", requires = "raw")]
    pub(crate) slow_write: Option<Slowdown>,
    /// Of mprotect-batch: how many buffers, 1 to 16 [default: 1]
    #[arg(long, value_name = "N", requires = "protect_io")]
    pub(crate) buffers: Option<u8>,
    /// Of mprotect-batch: bytes of a buffer, 64K to 1G [default: 16M]
    #[arg(long, value_name = "SIZE", requires = "protect_io", value_parser = parse_size)]
    pub(crate) buffer_size: Option<u64>,
    /// Of mprotect-batch: a buffer is written when so many percent of it are used, 1 to 100 [default: 50]
    #[arg(long, value_name = "PERCENT", requires = "protect_io")]
    pub(crate) watermark: Option<u8>,
    /// Of mprotect-batch: how many threads write buffers, 1 to 16 [default: one for each buffer]
    #[arg(long, value_name = "N", requires = "protect_io")]
    pub(crate) syncers: Option<u8>,
}

impl RawArgs {
    /// What guards a pool.
    ///
    /// # Errors
    /// `Usage` for what only whole regions have.
    pub(super) fn of_pool(&self) -> Result<RegionArgs> {
        self.has_buffers(false)?;
        let windows = match self.protect_io {
            None => None,
            Some(Protection::Each(ProtectIo::None)) => Some(WindowMode::None),
            Some(Protection::Each(ProtectIo::Key)) => Some(WindowMode::Key),
            Some(Protection::Each(ProtectIo::Mprotect)) => Some(WindowMode::Mprotect),
            Some(other) => {
                let what = format!("--protect-io {other} is for whole regions");
                return Err(Failure::usage(what).advise(
                    "choose none, key or mprotect, or serve a file that is no pool with --raw",
                ));
            }
        };
        Ok(RegionArgs { windows, flush: None })
    }

    /// Nothing was said of what a mount has decided.
    ///
    /// # Errors
    /// `Usage`.
    pub(super) fn of_mount(&self) -> Result<()> {
        match self.protect_io {
            None => Ok(()),
            Some(_) => Err(Failure::usage("--protect-io is the mount's to choose")
                .advise("mount the pool with -o windows=MODE")),
        }
    }

    /// Whether something was said of buffers, which may be.
    fn has_buffers(&self, may_be: bool) -> Result<bool> {
        let counts = [self.buffers, self.watermark, self.syncers];
        let said = self.buffer_size.is_some() || counts.iter().any(Option::is_some);
        match said && !may_be {
            true => Err(Failure::usage("only mprotect-batch has buffers")
                .advise("choose --raw and --protect-io mprotect-batch, or leave them out")),
            false => Ok(said),
        }
    }

    fn protection(&self) -> Result<Option<Protection>> {
        let is_batch = matches!(self.protect_io, Some(Protection::Batch(_)));
        if !self.has_buffers(is_batch)? {
            return Ok(self.protect_io);
        }
        let buffers = self.buffers.unwrap_or(1);
        let batching = Batching::new(
            buffers,
            self.buffer_size.unwrap_or(16 << 20),
            self.watermark.unwrap_or(50),
            self.syncers.unwrap_or(buffers),
        );
        batching.map(|it| Some(Protection::Batch(it))).map_err(|error| {
            Failure::usage(error.to_string())
                .advise("see --buffers, --buffer-size, --watermark and --syncers in `lode block serve --help`")
        })
    }
}

/// Serves the region at `path`.
pub(super) fn serve(
    args: &ServeArgs,
    tls: Option<Tls>,
    path: &Path,
    output: &Output,
) -> Result<()> {
    if !args.names.is_empty() {
        return Err(
            Failure::usage("a whole region has no volumes").advise("leave the names out, or --raw")
        );
    }
    let read_only = args.is_only_read(EXPORT);
    let settings = RawSettings {
        sector: args.raw.sector.unwrap_or(Sector::Small),
        read_only,
        protection: args.raw.protection()?,
        scheme: args.raw.write_scheme.unwrap_or(WriteScheme::Nt),
        slow_read: args.raw.slow_read.unwrap_or_default(),
        slow_write: args.raw.slow_write.unwrap_or_default(),
        sysfs: region::sysfs_root(),
    };
    if !read_only {
        no_file_of_a_mount(path)?;
        if !args.raw.force {
            no_pool(path)?;
        }
    }
    let interrupt = Interrupt::by_signals()?;
    let device = RawDevice::open(path, &settings).map_err(|error| explained(path, &error))?;
    let device = Arc::new(device);
    let text = format!("all of {}", path.display());
    let offered = Arc::clone(&device) as Arc<dyn Device>;
    let offers = vec![Offer { name: EXPORT.to_owned(), text, device: offered }];
    let (outlet, places) = Outlet::open(args, tls, path, offers)?;
    for at in places {
        output.print(&RawServed {
            region: path.display().to_string(),
            kind: device.region().kind().to_string(),
            bytes: device.bytes(),
            read_only,
            sector: device.sector().bytes(),
            protect_io: device.protection().to_string(),
            write_scheme: device.region().scheme().to_string(),
            durable_when_written: device.is_durable_when_written(),
            at,
        })?;
    }
    let served = outlet.serve(path, &interrupt, || Ok(()));
    let flushed = if read_only { Ok(()) } else { device.flush() };
    served.and(flushed.map_err(|error| {
        let advice = match error {
            RawError::Cut { .. } => {
                "make the file as long as it was; what was written there is lost"
            }
            _ => "see the kernel's log",
        };
        Failure::new(Kind::Failed, error.to_string()).at(path).advise(advice)
    }))
}

/// Fails for a file of a mounted pool: when the mount's server ends, the kernel tells nobody that what it was given is not written.
fn no_file_of_a_mount(path: &Path) -> Result<()> {
    let Some(mount) = mounts::around(path) else { return Ok(()) };
    let whole = mount.point.display();
    Err(Failure::usage("it is a file of a mounted pool, which can't be served as a region that is written")
        .at(path)
        .advise(format!(
            "`lode block serve {whole} NAME` serves a volume of it; a file that is only read is served with --raw --read-only"
        )))
}

/// Fails where a pool is, which clients would destroy.
fn no_pool(path: &Path) -> Result<()> {
    let io = |error| Failure::io("looking for a pool", path, &error);
    let raw = Raw::open(path).map_err(|error| explained(path, &error))?;
    let copies = read_copies(&raw, raw.bytes().map_err(io)?).map_err(io)?;
    match copies.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Kind::Exists, "it holds a pool")
            .at(path)
            .advise("serve its volumes, without --raw; --force gives all of it away, and clients destroy the pool")),
    }
}

/// Why a region can't be served, for the user.
fn explained(path: &Path, error: &RegionError) -> Failure {
    let (kind, advice) = match error {
        RegionError::NoWindows { .. } => {
            (Kind::Usage, "choose another --protect-io, such as mprotect or private-map")
        }
        RegionError::NoSuchInstruction { .. } => (Kind::Usage, "choose another --write-scheme"),
        RegionError::TooSmall { .. } => (Kind::Usage, "`truncate -s 1G FILE` makes a larger file"),
        RegionError::NotARegion { .. } => {
            (Kind::Usage, "name a file or a DAX device (/dev/dax0.0)")
        }
        RegionError::NoSpace { .. } => {
            (Kind::NoSpace, "free space there, or make the file smaller")
        }
        RegionError::Busy { holder, .. } => return region::busy(path, *holder, "the region"),
        _ => return region::explain(path, error),
    };
    Failure::new(kind, error.to_string()).at(path).advise(advice)
}
