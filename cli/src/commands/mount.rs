//! `lode mount`: starts a server and returns once the mount answers, or serves itself.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::Command;

use lode_fuse::mountpoint::Life;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::args::MountArgs;
use crate::commands::remount;
use crate::daemon;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::options::MountOptions;
use crate::output::Output;
use crate::progress::while_working;
use crate::region;
use crate::report::MountReport;
use crate::server::{self, Settings};

/// Runs it.
///
/// # Errors
/// `Busy` where the pool or the directory is in use, and what opening and mounting give.
pub(crate) fn run(args: &MountArgs, output: &Output) -> Result<()> {
    let options = MountOptions::join(&args.options);
    if args.fake {
        return check(args, &options);
    }
    if options.remount {
        return remount::run(args, &options, output);
    }
    match &args.serve_with_log {
        Some(log) => serve_for_another(args, log),
        None if args.foreground => serve_here(args, output),
        None => start_server(args, output),
    }
}

/// What can be known to be wrong before anything is mounted.
fn check(args: &MountArgs, options: &MountOptions) -> Result<()> {
    if options.remount {
        return mounts::lode_at(&args.dir).map(drop);
    }
    settings(args).map(drop)
}

/// What the command line says, paths made absolute and checked.
fn settings(args: &MountArgs) -> Result<Settings> {
    let pool = args
        .pool
        .canonicalize()
        .map_err(|error| Failure::io("opening the pool", &args.pool, &error))?;
    let dir = mount_point(args)?;
    let given = MountOptions {
        page_class: args.page_size,
        windows: args.region.windows,
        flush: args.region.flush,
        emulation: args.emulation,
        ..MountOptions::default()
    };
    let options: Vec<MountOptions> = args.options.iter().cloned().chain([given]).collect();
    let options = MountOptions::join(&options);
    if options.snapshot.is_some() && options.read_only != Some(true) {
        return Err(Failure::usage("a snapshot can't be changed: the option snapshot= needs ro")
            .at(&dir)
            .advise("mount it with `-o ro,snapshot=NAME`, or leave snapshot= out"));
    }
    if options.scrub_rate.is_some() && options.scrub.is_none() {
        return Err(Failure::usage("scrub-rate= means nothing where no scrub= says how often")
            .at(&dir)
            .advise("mount it with `-o scrub=PERIOD,scrub-rate=SIZE`, or leave scrub-rate= out; `lode scrub DIR --rate SIZE` scrubs once"));
    }
    let wants_root = [options.suid, options.dev, options.awake].contains(&Some(true));
    if wants_root && !rustix::process::geteuid().is_root() {
        return Err(Failure::new(Kind::Denied, "only root may mount with suid, dev or awake")
            .at(&dir)
            .advise("leave these options out, or mount as root"));
    }
    Ok(Settings { pool, dir, options })
}

/// The directory to mount at: there, a directory, and free. What a killed server left mounted
/// there is taken away by the mount itself.
fn mount_point(args: &MountArgs) -> Result<PathBuf> {
    let dir = match mounts::clean_path(&args.dir) {
        Err(failure) if failure.kind == Kind::NotFound => {
            let failure =
                Failure::new(Kind::NotFound, "the mount point does not exist").at(&args.dir);
            return Err(failure.advise(format!("make it first: mkdir -p {}", args.dir.display())));
        }
        cleaned => cleaned?,
    };
    if let Some(mount) = mounts::at(&dir)? {
        match mounts::life(&mount) {
            Life::Alive => {}
            Life::Dead => return Ok(dir),
            Life::Silent => return Err(mounts::silent(&mount)),
        }
        let pool = mount.source.display();
        return Err(Failure::new(Kind::Busy, format!("{pool} is mounted here already"))
            .at(&args.dir)
            .advise(format!(
                "choose another directory, or `lode umount {}` first",
                args.dir.display()
            )));
    }
    if !dir.is_dir() {
        let failure = Failure::usage("the mount point is not a directory").at(&args.dir);
        return Err(failure.advise("give the path of an existing directory"));
    }
    Ok(dir)
}

fn start_server(args: &MountArgs, output: &Output) -> Result<()> {
    let settings = settings(args)?;
    let (log_path, log) = daemon::new_log(&settings.dir)?;
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Failed, format!("finding this program failed: {error}"))
    })?;
    let mut server = Command::new(program);
    server
        .arg("mount")
        .arg(&settings.pool)
        .arg(&settings.dir)
        .arg("--serve-with-log")
        .arg(&log_path);
    if let Some(root) = region::sysfs_root() {
        server.arg("--sysfs-root").arg(root);
    }
    let options = settings.options.text();
    if !options.is_empty() {
        server.args(["-o", &options]);
    }
    let report: MountReport =
        while_working("mounting", output.progress, || daemon::start(server, &log_path, log))?;
    output.print(&report)
}

fn serve_here(args: &MountArgs, output: &Output) -> Result<()> {
    log_to_stderr(io::stderr().is_terminal());
    let settings = settings(args)?;
    server::serve(&settings, |facts| output.print(&MountReport { log: None, ..facts }))
}

fn serve_for_another(args: &MountArgs, log: &std::path::Path) -> Result<()> {
    daemon::detach();
    log_to_stderr(false);
    let mut mounted = false;
    let served = settings(args).and_then(|settings| {
        server::serve(&settings, |facts| {
            mounted = true;
            daemon::tell_ready(MountReport { log: Some(log.display().to_string()), ..facts })
        })
    });
    if let (Err(failure), false) = (&served, mounted) {
        daemon::tell_failed(failure);
    }
    if served.is_ok() || !mounted {
        daemon::remove_quiet_log(log);
    }
    served
}

pub(crate) fn log_to_stderr(colours: bool) {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .with_span_events(FmtSpan::NONE)
        .init();
}
