//! `lode resize`: makes a pool that is not mounted larger.
//!
//! The file gets its new size first, then the pool in it: whatever happens in between, the pool is
//! there, as it was or larger, and the same command goes on. A damaged pool keeps its size and its file. One
//! that lost a superblock gets it back before the file grows: the other one may be found by the file's end alone.

use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lode_engine::{Error, PAGE_BYTES, Pool};
use lode_host::StdHost;
use lode_pmem::{Medium, RegionOptions};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::progress::while_working;
use crate::region;
use crate::report::{PoolFacts, ResizeReport};
use crate::sizes::{human, parse_size};

/// `lode resize`.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// New size of the pool and its file [default: that of the file or device]
    #[arg(long, short = 's', value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,
}

/// Runs it.
///
/// # Errors
/// `Usage` for a size that can't be, `NoSpace` where the file can't have it, `Busy` where the pool is
/// mounted, and what opening gives.
pub(crate) fn run(args: &ResizeArgs, output: &Output) -> Result<()> {
    let failed = |error| Failure::engine(&args.pool, &error);
    let pool = region::open_pool(&args.pool, true, output)?;
    let before = pool.info().map_err(failed)?.bytes;
    let room = pool.medium().bytes();
    let superblock_lost = !pool.opening().superblock_damage.is_empty();
    drop(pool);
    let wanted = wanted(args, before, room)?;
    check(&args.pool, output)?;
    if wanted > room {
        if superblock_lost {
            region::open_pool(&args.pool, false, output)?.close().map_err(failed)?;
        }
        enlarge(&args.pool, room, wanted)?;
    }
    let region = region::open(&args.pool, &RegionOptions::new())?;
    while_working("making the pool larger", output.progress, || Pool::grow(region, StdHost::new()))
        .map_err(failed)?;
    let pool = region::open_pool(&args.pool, true, output)?;
    output.print(&ResizeReport {
        bytes_before: before,
        pool: PoolFacts::new(&args.pool, &pool.info().map_err(failed)?),
        space: pool.statfs().into(),
    })
}

/// Refuses a pool that can't be opened once it is larger; nothing is written by then.
fn check(path: &Path, output: &Output) -> Result<()> {
    let options = RegionOptions { read_only: true, ..RegionOptions::new() };
    let region = region::open(path, &options)?;
    let checked = while_working("checking the pool", output.progress, || {
        Pool::check_growth(region, StdHost::new())
    });
    checked.map_err(|error| {
        let failure = Failure::engine(path, &error);
        match error {
            Error::Corrupt(_) | Error::Lost(_) | Error::Media { .. } => failure.advise(
                "the pool is as it was: `lode fsck -n POOL` lists all damage, `lode fsck -y POOL` \
                 gives it up, then it can grow",
            ),
            _ => failure,
        }
    })
}

/// The bytes that the pool is to have: all of its file or device.
fn wanted(args: &ResizeArgs, before: u64, room: u64) -> Result<u64> {
    let whole = |bytes: u64| bytes / PAGE_BYTES * PAGE_BYTES;
    let wanted = whole(args.size.unwrap_or(room));
    let refuse = |what: String, advice: &str| {
        Err(Failure::usage(what).at(&args.pool).advise(advice.to_owned()))
    };
    if wanted < before {
        return refuse(
            format!("the pool has {} now: a pool can only grow", human(before)),
            "to have a smaller one, make it and copy the files",
        );
    }
    if wanted == before {
        return refuse(
            format!("the pool has {} already", human(before)),
            "say how large it is to be: --size 2G",
        );
    }
    let is_device = std::fs::metadata(&args.pool).is_ok_and(|it| it.file_type().is_char_device());
    if is_device && wanted != whole(room) {
        return refuse(
            format!("the device has {}: the pool gets all of it or stays", human(room)),
            "leave --size out",
        );
    }
    if wanted < whole(room) {
        return refuse(
            format!("the file has {} already, and the pool gets all of it", human(room)),
            "leave --size out, or make the file shorter first (truncate --size)",
        );
    }
    Ok(wanted)
}

/// Gives the file its new size, with the space for it where the file system can promise that.
fn enlarge(path: &Path, before: u64, wanted: u64) -> Result<()> {
    let failed = |error: std::io::Error| Failure::io("making the file larger", path, &error);
    let file: File = FileOptions::new().write(true).open(path).map_err(failed)?;
    match fallocate(&file, FallocateFlags::empty(), before, wanted - before) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(wanted).map_err(failed),
        Err(error) => {
            // Part of it may be there already.
            let _ = file.set_len(before);
            if error == Errno::NOSPC {
                let what = format!("there is no space for a file of {}", human(wanted));
                let failure = Failure::new(Kind::NoSpace, what).at(path);
                return Err(failure.advise("the pool is as it was: choose a smaller --size"));
            }
            Err(failed(error.into()))
        }
    }
}
