//! `lode mkfs`: makes a pool, and destroys nothing that it was not told to.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use lode_engine::{FormatOptions, OpenOptions, Pool};
use lode_host::StdHost;
use lode_pmem::Mapped;

use crate::args::MkfsArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::progress::while_working;
use crate::region;
use crate::report::{MkfsReport, PoolFacts};
use crate::superblock;

const LABEL_MAX: usize = 64;

/// Runs it.
///
/// # Errors
/// `Exists` where something would be lost, and what making the pool gives.
pub(crate) fn run(args: &MkfsArgs, output: &Output) -> Result<()> {
    if args.label.len() > LABEL_MAX {
        return Err(Failure::usage(format!(
            "the label has {} bytes, at most {LABEL_MAX} are possible",
            args.label.len()
        )));
    }
    let existed = args.pool.exists();
    let bytes = size_to_make(args)?;
    let options = region::options(&args.region, false);
    let region = while_working("reserving space", output.progress, || {
        Mapped::create(&args.pool, bytes, &options, true)
    })
    .map_err(|error| too_small(region::explain(&args.pool, &error)))?;
    let report = format(args, region, output).map_err(too_small).inspect_err(|_| {
        // A file of zeros is of no use to anybody.
        if !existed {
            let _ = fs::remove_file(&args.pool);
        }
    })?;
    output.print(&report)
}

fn format(args: &MkfsArgs, region: Mapped, output: &Output) -> Result<MkfsReport> {
    let failed = |error| Failure::engine(&args.pool, &error);
    let facts = region::facts(&region);
    let options = FormatOptions {
        label: args.label.clone().into_bytes(),
        uuid: args.uuid,
        lanes: args.lanes,
        page_class: args.page_size,
        root_uid: rustix::process::geteuid().as_raw(),
        root_gid: rustix::process::getegid().as_raw(),
        ..FormatOptions::default()
    };
    while_working("making the pool", output.progress, || {
        Pool::format(region, StdHost::new(), &options)
    })
    .map_err(failed)?;
    let path = args.pool.canonicalize().unwrap_or_else(|_| args.pool.clone());
    let region = region::open(&args.pool, &lode_pmem::RegionOptions::new().read_only(true))?;
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(region, StdHost::new(), &read_only).map_err(failed)?;
    Ok(MkfsReport {
        pool: PoolFacts::new(&path, &pool.info().map_err(failed)?),
        region: facts,
        space: pool.statfs().into(),
    })
}

/// What is too small to be a pool is, here, a wrong size.
fn too_small(failure: Failure) -> Failure {
    if failure.kind != Kind::NotAPool {
        return failure;
    }
    Failure { kind: Kind::Usage, ..failure }.advise("choose a larger --size")
}

/// How large the pool is to be; refuses to overwrite what is there.
fn size_to_make(args: &MkfsArgs) -> Result<u64> {
    let metadata = match fs::metadata(&args.pool) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let advice = "say how large it is to be: --size 1G";
            return args.size.ok_or_else(|| {
                Failure::usage("the pool does not exist yet").at(&args.pool).advise(advice)
            });
        }
        Err(error) => return Err(Failure::io("looking at the pool", &args.pool, &error)),
    };
    if metadata.is_dir() {
        return Err(Failure::usage("this is a directory")
            .at(&args.pool)
            .advise("give the path of a file"));
    }
    let is_device = metadata.file_type().is_block_device() || metadata.file_type().is_char_device();
    if !is_device && metadata.len() == 0 {
        let advice = "say how large it is to be: --size 1G";
        return args
            .size
            .ok_or_else(|| Failure::usage("the file is empty").at(&args.pool).advise(advice));
    }
    if !args.force {
        refuse_to_overwrite(&args.pool, is_device)?;
    }
    Ok(args.size.unwrap_or(if is_device { 0 } else { metadata.len() }))
}

/// Lets only through what certainly holds nothing: a file without data, a device of zeros at
/// its start and without superblocks.
fn refuse_to_overwrite(path: &Path, is_device: bool) -> Result<()> {
    let failed = |error: io::Error| Failure::io("looking for what is there", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let exists = |what: String| {
        Err(Failure::new(Kind::Exists, what)
            .at(path)
            .advise("choose another path, or pass --force to destroy what is there"))
    };
    let copies =
        if bytes > 0 { superblock::read_copies(&file, bytes).map_err(failed)? } else { Vec::new() };
    if let Some(copy) = copies.first() {
        let label = &copy.label;
        return exists(format!(
            "there is a Lode pool already (label \"{label}\", UUID {})",
            copy.uuid
        ));
    }
    if is_device {
        return if starts_with_zeros(&file) {
            Ok(())
        } else {
            exists("the device holds something".to_owned())
        };
    }
    // ENXIO: there is no data behind the start, the whole file is one hole.
    match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) {
        Err(rustix::io::Errno::NXIO) => Ok(()),
        _ => exists(format!("the file is not empty ({bytes} bytes)")),
    }
}

/// The first 64 KiB, where file systems and partition tables have their marks, are zeros.
/// A character device, which can't be read, is judged when it is mapped.
fn starts_with_zeros(file: &File) -> bool {
    use std::os::unix::fs::FileExt;
    let mut start = [0u8; 64 << 10];
    match file.read_at(&mut start, 0) {
        Ok(read) => start[..read].iter().all(|byte| *byte == 0),
        Err(_) => false,
    }
}
