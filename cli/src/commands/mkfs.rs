//! `lode mkfs`: makes a pool, and destroys nothing that it was not told to, nor before the
//! new pool is there.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::thread;

use lode_engine::{FormatOptions, OpenOptions, PAGE_BYTES, Pool, Protection};
use lode_host::StdHost;
use lode_pmem::{Draft, DraftsLeft, Mapped, RegionError, RegionOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::MkfsArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::progress::while_working;
use crate::raw::Raw;
use crate::region;
use crate::report::{MkfsReport, PoolFacts};
use crate::superblock;

/// Runs it.
///
/// # Errors
/// `Exists` where something would be lost, and what making the pool gives.
pub(crate) fn run(args: &MkfsArgs, output: &Output) -> Result<()> {
    check_level(args)?;
    let existed = args.pool.exists();
    let bytes = size_to_make(args)?;
    let format_options = format_options(args);
    check_size(args, bytes, &format_options)?;
    remove_draft_when_interrupted();
    let options = region::options(&args.region, false);
    // Nobody is asked to give up what appeared only now.
    let force = existed || args.force;
    let (region, draft) = while_working("reserving space", output.progress, || {
        Draft::create(&args.pool, bytes, &options, force)
    })
    .map_err(|error| explain(args, existed, &error))?;
    let mut report = format(args, region, &draft, &format_options, output)
        .map_err(|failure| unfit(args, failure))?;
    draft.publish().map_err(|error| explain(args, existed, &error))?;
    let path = args.pool.canonicalize().unwrap_or_else(|_| args.pool.clone());
    report.pool.path = path.display().to_string();
    output.print(&report)
}

/// Refuses what would silently be off: who asks for it believes to have it.
fn check_level(args: &MkfsArgs) -> Result<()> {
    let (level, refused) = (args.protect, |what: &str, wanted: &str| {
        let failure =
            Failure::usage(format!("{what} means nothing at level {}", args.protect.name()));
        Err(failure.advise(format!("choose {wanted}, or leave {what} out")))
    });
    match () {
        () if level == Protection::None && args.dead_zone.is_some() => {
            refused("--dead-zone", "--protect metadata or full")
        }
        () if level != Protection::Full && args.strip.is_some() => {
            refused("--strip", "--protect full")
        }
        () => Ok(()),
    }
}

fn format_options(args: &MkfsArgs) -> FormatOptions {
    let default = FormatOptions::default();
    FormatOptions {
        label: args.label.clone().into_bytes(),
        uuid: args.uuid,
        lanes: args.lanes,
        page_class: args.page_size,
        protection: args.protect,
        dead_zone: args.dead_zone.unwrap_or(default.dead_zone),
        strip_bytes: args.strip.unwrap_or(default.strip_bytes),
        root_uid: rustix::process::geteuid().as_raw(),
        root_gid: rustix::process::getegid().as_raw(),
        ..default
    }
}

/// Makes the pool in the draft's region, and looks whether it can be opened.
fn format(
    args: &MkfsArgs,
    region: Mapped,
    draft: &Draft,
    options: &FormatOptions,
    output: &Output,
) -> Result<MkfsReport> {
    let failed = |error| Failure::engine(&args.pool, &error);
    let facts = region::facts(&region);
    while_working("making the pool", output.progress, || {
        Pool::format(region, StdHost::new(), options)
    })
    .map_err(failed)?;
    let options = RegionOptions::new().read_only(true).sysfs(region::sysfs_root());
    let region = Mapped::open(draft.path(), &options)
        .map_err(|error| region::explain(&args.pool, &error))?;
    let is_bad = !region.memory().listed_bad.is_empty();
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(region, StdHost::new(), &read_only);
    let pool = pool.and_then(|pool| match pool.check(&mut |_, _| ())?.damage.first() {
        Some(damage) => Err(lode_engine::Error::Corrupt(*damage)),
        None => Ok(pool),
    });
    let pool =
        pool.map_err(|error| if is_bad { on_bad_memory(args, &error) } else { failed(error) })?;
    Ok(MkfsReport {
        pool: PoolFacts::new(&args.pool, &pool.info().map_err(failed)?),
        region: facts,
        space: pool.statfs().into(),
    })
}

/// What a pool needs lies where the system says that the memory is bad.
fn on_bad_memory(args: &MkfsArgs, error: &lode_engine::Error) -> Failure {
    Failure::new(Kind::Failed, format!("the memory there is bad, by the system's list: {error}"))
        .at(&args.pool)
        .advise("clear it (ndctl clear-errors), choose another place, or keep metadata twice (--protect metadata)")
}

/// Refuses a size that can't become a pool before anything is made or replaced. (0 stands for
/// all of a device, whose size is known when it is open.)
fn check_size(args: &MkfsArgs, bytes: u64, options: &FormatOptions) -> Result<()> {
    if bytes == 0 && args.size.is_none() {
        return Ok(());
    }
    lode_engine::check_format(bytes, options)
        .map_err(|error| unfit(args, Failure::engine(&args.pool, &error)))
}

/// What can't become a pool is, here, a wrong size or number of lanes.
fn unfit(args: &MkfsArgs, failure: Failure) -> Failure {
    if !matches!(failure.kind, Kind::NotAPool | Kind::Corrupt) {
        return failure;
    }
    let options = FormatOptions { label: Vec::new(), ..format_options(args) };
    let least = |size: &u64| lode_engine::check_format(*size, &options).is_ok();
    // (With two copies of metadata: so many times as far as those are apart.)
    let unit = match args.protect {
        Protection::None => PAGE_BYTES,
        Protection::Metadata | Protection::Full => {
            (options.dead_zone + PAGE_BYTES).next_power_of_two()
        }
    };
    let needed = (1..=1u64 << 12).map(|units| units * unit).find(least);
    let lanes = args.lanes;
    let what = match (needed, args.protect) {
        (Some(size), Protection::None) => {
            format!("too small: a pool with {lanes} lanes needs at least {size} bytes")
        }
        (Some(size), _) => {
            format!(
                "too small: a pool with two copies of metadata, so far apart, needs at least {size} bytes"
            )
        }
        (None, _) => failure.what,
    };
    let advice = match args.protect {
        Protection::None => "choose a larger --size, or fewer --lanes",
        _ => "choose a larger --size, fewer --lanes, or a smaller --dead-zone",
    };
    Failure::usage(what).at(&args.pool).advise(advice)
}

/// A region's error, where the user wants to make a pool.
fn explain(args: &MkfsArgs, replaces: bool, error: &RegionError) -> Failure {
    let failure = region::explain(&args.pool, error);
    match error {
        RegionError::NoSpace { .. } if replaces => failure.advise(
            "what is there stays until the new pool is made: free space, choose a smaller \
             --size, or remove it first",
        ),
        RegionError::NotARegion { .. } => Failure::usage("a pool can't be made in this")
            .at(&args.pool)
            .advise("give the path of a new file, an ordinary file or a DAX device (/dev/dax0.0)"),
        RegionError::TooSmall { bytes, bytes_min, .. } if *bytes_min > PAGE_BYTES => {
            let what = format!(
                "too small: {bytes} bytes, less than one of the pages of {bytes_min} bytes that it is mapped by"
            );
            Failure::usage(what)
                .at(&args.pool)
                .advise("give the device more memory (ndctl create-namespace --size)")
        }
        RegionError::TooSmall { .. } => unfit(args, failure),
        _ => failure,
    }
}

/// On SIGINT and SIGTERM no half-made file is left. When the pool is in its place already, it stays, which the
/// command is about to tell.
fn remove_draft_when_interrupted() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return;
    };
    thread::spawn(move || {
        for signal in signals.forever() {
            let left = match Draft::remove_unfinished() {
                DraftsLeft { published: 1.., .. } => continue,
                DraftsLeft { removed: 0, .. } => "",
                _ => "; nothing was made or replaced",
            };
            eprintln!("lode mkfs: interrupted{left}");
            std::process::exit(128 + signal);
        }
    });
}

/// How large the pool is to be; refuses to overwrite what is there.
fn size_to_make(args: &MkfsArgs) -> Result<u64> {
    let metadata = match fs::metadata(&args.pool) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.pool.is_symlink() => {
            let target = fs::read_link(&args.pool).unwrap_or_default();
            let what = format!("a symbolic link to {}, which does not exist", target.display());
            let advice = "name the file itself, or remove the link";
            return Err(Failure::new(Kind::NotFound, what).at(&args.pool).advise(advice));
        }
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
    let file_type = metadata.file_type();
    if file_type.is_block_device() {
        let advice = "make a file system on it, with DAX if it is persistent memory, and the pool \
                      in a file there; or use its DAX device (/dev/dax0.0)";
        return Err(Failure::usage("a block device can't be mapped as memory")
            .at(&args.pool)
            .advise(advice));
    }
    let is_device = file_type.is_char_device();
    if !is_device && !file_type.is_file() {
        let error = RegionError::NotARegion { path: args.pool.clone() };
        return Err(explain(args, false, &error));
    }
    if !is_device && metadata.len() == 0 {
        let advice = "say how large it is to be: --size 1G";
        return args
            .size
            .ok_or_else(|| Failure::usage("the file is empty").at(&args.pool).advise(advice));
    }
    if !args.force {
        refuse_to_overwrite(args)?;
    }
    Ok(args.size.unwrap_or(if is_device { 0 } else { metadata.len() }))
}

/// Lets only through what certainly holds nothing: a file without data, a device of zeros at
/// its start and without superblocks.
fn refuse_to_overwrite(args: &MkfsArgs) -> Result<()> {
    let path = &args.pool;
    let failed = |error: io::Error| Failure::io("looking for what is there", path, &error);
    let raw = Raw::open(path).map_err(|error| explain(args, false, &error))?;
    let bytes = raw.bytes().map_err(failed)?;
    let exists = |what: String| {
        Err(Failure::new(Kind::Exists, what)
            .at(path)
            .advise("choose another path, or pass --force to destroy what is there"))
    };
    let copies =
        if bytes > 0 { superblock::read_copies(&raw, bytes).map_err(failed)? } else { Vec::new() };
    if let Some(copy) = copies.first() {
        let label = &copy.label;
        return exists(format!(
            "there is a Lode pool already (label \"{label}\", UUID {})",
            copy.uuid
        ));
    }
    let Raw::File(file) = &raw else {
        return if starts_with_zeros(&raw).map_err(failed)? {
            Ok(())
        } else {
            exists("the device holds something".to_owned())
        };
    };
    // ENXIO: there is no data behind the start, the whole file is one hole.
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)) {
        Err(rustix::io::Errno::NXIO) => Ok(()),
        _ => exists(format!("the file is not empty ({bytes} bytes)")),
    }
}

/// The first 64 KiB, where file systems and partition tables have their marks, are zeros.
fn starts_with_zeros(raw: &Raw) -> io::Result<bool> {
    let mut start = [0u8; 64 << 10];
    raw.read_exact_at(&mut start, 0)?;
    Ok(start.iter().all(|byte| *byte == 0))
}
