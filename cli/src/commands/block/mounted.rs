//! `lode block serve DIR`: volumes of a mounted pool, by their files in the mount: what is written is in the server, which stores it
//! as it does all else, and every other way to the volume sees it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lode_nbd::{BlockSizes, Device, Errno, Extent, Tls, WriteZeroes};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::outlet::{Offer, Outlet};
use super::serve::{export_of, nameable};
use super::volumes::with;
use super::{ServeArgs, refused, taken};
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::mounts;
use crate::output::Output;
use crate::report::{ServedFacts, VolumeFacts, VolumesServed};
use lode_fuse::mountpoint::Mounted;

/// How long the mount's server may take to say that it lives, when this is to end.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn serve(
    args: &ServeArgs,
    tls: Option<Tls>,
    mount: &Mounted,
    output: &Output,
) -> Result<()> {
    args.raw.of_mount()?;
    let (mut facts, mut offers) = (Vec::new(), Vec::new());
    for of in volumes_of(args, mount, output)? {
        let name = OsStr::from_bytes(&of.name_bytes);
        let export = export_of(name, &of).map_err(|failure| failure.at(&mount.point))?;
        let file = mount.point.join(lode_block::PATH).join(name);
        let read_only = args.is_only_read(&export);
        let opened = File::options().read(true).write(!read_only).open(&file);
        let opened = opened.map_err(|error| unopened(&file, &error))?;
        if !read_only {
            taken::hold_to_serve(&opened, &file)?;
        }
        let device = Mounts {
            file: opened,
            sector: of.sector,
            thin: of.thin,
            read_only,
            last_size: AtomicU64::new(of.bytes),
        };
        let text = format!("volume {} of {}", of.name, mount.point.display());
        offers.push(Offer { name: export, text, device: Arc::new(device) });
        facts.push((of, read_only));
    }
    // (Not before: who waits here for a server that is stopped is ended by signals as any program is.)
    let interrupt = Interrupt::by_signals()?;
    let (outlet, places) = Outlet::open(args, tls, &mount.point, offers)?;
    let exports = facts.into_iter().zip(places);
    let facts = |((volume, read_only), at)| ServedFacts { volume, read_only, at };
    let exports = exports.map(facts).collect();
    output.print(&VolumesServed { pool: mount.point.display().to_string(), exports })?;
    let is_silent = || mounts::is_silent(mount, PATIENCE);
    outlet.serve_of_another(&mount.point, args.socket.as_deref(), &interrupt, is_silent)
}

/// Why a volume's file can't be served.
fn unopened(file: &Path, error: &io::Error) -> Failure {
    let failure = Failure::io("opening the volume", file, error);
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            failure.advise("the pool is mounted read-only: serve it with --read-only")
        }
        _ => failure,
    }
}

/// The volumes that are asked for, all of them if none is.
fn volumes_of(args: &ServeArgs, mount: &Mounted, output: &Output) -> Result<Vec<VolumeFacts>> {
    let all = with(&mount.point, true, output, |volumes| volumes.list())?;
    if args.names.is_empty() {
        let all = all.into_iter().filter(|one| nameable(&one.name_bytes).is_some());
        let all: Vec<VolumeFacts> = all.collect();
        let none = Failure::new(Kind::NotFound, "the pool has no volumes")
            .at(&mount.point)
            .advise("make one with `lode block create`");
        return if all.is_empty() { Err(none) } else { Ok(all) };
    }
    let named = |name: &std::ffi::OsString| {
        let found = all.iter().find(|one| one.name_bytes == name.as_bytes()).cloned();
        found.ok_or_else(|| refused(&mount.point, name, &lode_block::Error::NotFound))
    };
    args.names.iter().map(named).collect()
}

/// A volume's file in a mount.
struct Mounts {
    file: File,
    sector: u64,
    thin: bool,
    read_only: bool,
    /// Of the file, when it was last told: where the mount is gone, what fails is what is asked of it, not for want of size.
    last_size: AtomicU64,
}

fn told(error: io::Error) -> Errno {
    tracing::debug!(%error, "a client's request of a mounted volume failed");
    match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => Errno::ENOSPC,
        Some(code) if code == rustix::io::Errno::NOMEM.raw_os_error() => Errno::ENOMEM,
        Some(code) if code == rustix::io::Errno::ROFS.raw_os_error() => Errno::EPERM,
        _ if error.kind() == io::ErrorKind::UnexpectedEof => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

impl Mounts {
    fn allocate(&self, how: FallocateFlags, at: u64, len: u64) -> std::result::Result<(), Errno> {
        let how = how | FallocateFlags::KEEP_SIZE;
        fallocate(self.file.as_fd(), how, at, len).map_err(|error| told(error.into()))
    }

    /// Durable, where the mount does not do that at once.
    fn settle(&self, fua: bool) -> std::result::Result<(), Errno> {
        if fua { self.flush() } else { Ok(()) }
    }
}

impl Device for Mounts {
    fn size(&self) -> u64 {
        let size = match self.file.metadata() {
            Ok(metadata) => {
                self.last_size.store(metadata.len(), Relaxed);
                metadata.len()
            }
            Err(error) => {
                told(error);
                self.last_size.load(Relaxed)
            }
        };
        size - size % self.sector
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::new(self.sector as u32, 4096, BlockSizes::MAX).unwrap_or_default()
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), Errno> {
        self.file.read_exact_at(into, at).map_err(told)
    }

    fn write(&self, at: u64, from: &[u8], fua: bool) -> std::result::Result<(), Errno> {
        // (A file would become larger; the volume may have become smaller since the request came.)
        if at + from.len() as u64 > self.size() {
            return Err(Errno::ENOSPC);
        }
        self.file.write_all_at(from, at).map_err(told)?;
        self.settle(fua)
    }

    fn flush(&self) -> std::result::Result<(), Errno> {
        self.file.sync_data().map_err(told)
    }

    fn trim(&self, at: u64, len: u64, fua: bool) -> std::result::Result<(), Errno> {
        if self.thin {
            self.allocate(FallocateFlags::PUNCH_HOLE, at, len)?;
        }
        self.settle(fua)
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> std::result::Result<(), Errno> {
        let gives_back = self.thin && !how.no_hole;
        if how.fast_zero && !gives_back {
            // Zeros are written as all else is.
            return Err(Errno::ENOTSUP);
        }
        let flag = if gives_back { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        self.allocate(flag, at, len)?;
        self.settle(how.fua)
    }

    fn status(
        &self,
        at: u64,
        len: u64,
        found: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> std::result::Result<(), Errno> {
        let (mut at, end) = (at, at + len);
        let next = |from: SeekFrom| match seek(self.file.as_fd(), from) {
            Ok(place) => Ok(place.min(end)),
            // Nothing more of it.
            Err(rustix::io::Errno::NXIO) => Ok(end),
            Err(error) => Err(told(error.into())),
        };
        while at < end {
            let data = next(SeekFrom::Data(at))?;
            let hole = data > at;
            let until = if hole { data } else { next(SeekFrom::Hole(at))? };
            // (What changes meanwhile must not keep this from its end.)
            let until = until.max(at + self.sector).min(end);
            if found(Extent { len: until - at, hole, zero: hole }).is_break() {
                return Ok(());
            }
            at = until;
        }
        Ok(())
    }
}
