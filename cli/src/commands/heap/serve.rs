//! `lode heap serve`: a pool whose memory programs use, without a mount.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::Command;

use super::ServeArgs;
use crate::commands::mount::log_to_stderr;
use crate::daemon;
use crate::failure::{Failure, Kind, Result};
use crate::options::MountOptions;
use crate::output::Output;
use crate::progress::while_working;
use crate::region;
use crate::report::HeapServeReport;
use crate::server::{self, Settings};

pub(super) fn serve(args: &ServeArgs, output: &Output) -> Result<()> {
    match &args.serve_with_log {
        Some(log) => serve_for_another(args, log),
        None if args.foreground => {
            log_to_stderr(io::stderr().is_terminal());
            server::serve_heap(&settings(args)?, false, |report| output.print(&report))
        }
        None => start_server(args, output),
    }
}

/// What the command line says, the path made absolute and all of it checked.
fn settings(args: &ServeArgs) -> Result<Settings> {
    let pool = args
        .pool
        .canonicalize()
        .map_err(|error| Failure::io("opening the pool", &args.pool, &error))?;
    if pool.is_dir() {
        return Err(Failure::usage("a directory is no pool").at(&args.pool).advise(
            "give the path of a pool; a pool that is mounted lends its memory already (lode heap stats DIR)",
        ));
    }
    let given = MountOptions {
        windows: args.region.windows,
        flush: args.region.flush,
        emulation: args.emulation,
        ..MountOptions::default()
    };
    let options: Vec<MountOptions> = args.options.iter().cloned().chain([given]).collect();
    let options = MountOptions::join(&options);
    let of_mounts = MountOptions {
        heap: Default::default(),
        index_memory: None,
        windows: None,
        flush: None,
        emulation: Default::default(),
        ..options.clone()
    };
    if of_mounts != MountOptions::default() {
        let what = format!("`{}` is for mounts: without one it means nothing", of_mounts.text());
        return Err(Failure::usage(what).at(&args.pool).advise("leave it out"));
    }
    if options.heap.limit == Some(0) {
        let what = "with heap_limit=0 nothing is lent, and there is nothing to be served";
        return Err(Failure::usage(what)
            .at(&args.pool)
            .advise("choose 2M or more, or leave it out"));
    }
    Ok(Settings { dir: pool.clone(), pool, options })
}

fn start_server(args: &ServeArgs, output: &Output) -> Result<()> {
    let settings = settings(args)?;
    let started = || start(&settings, false);
    output.print(&while_working("opening the pool", output.progress, started)?)
}

/// Has the pool served for a command, until nobody uses the server any more: its process, a child of this one.
pub(super) fn start_for_command(pool: &Path) -> Result<u32> {
    let pool =
        pool.canonicalize().map_err(|error| Failure::io("opening the pool", pool, &error))?;
    let settings = Settings { dir: pool.clone(), pool, options: MountOptions::default() };
    start(&settings, true).map(|report| report.pid)
}

fn start(settings: &Settings, while_used: bool) -> Result<HeapServeReport> {
    let (log_path, log) = daemon::new_log(&settings.pool)?;
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Failed, format!("finding this program failed: {error}"))
    })?;
    let mut server = Command::new(program);
    server.args(["heap", "serve"]).arg(&settings.pool).arg("--serve-with-log").arg(&log_path);
    if while_used {
        server.arg("--while-used");
    }
    if let Some(root) = region::sysfs_root() {
        server.arg("--sysfs-root").arg(root);
    }
    let options = settings.options.text();
    if !options.is_empty() {
        server.args(["-o", &options]);
    }
    daemon::start(server, &log_path, log)
}

fn serve_for_another(args: &ServeArgs, log: &Path) -> Result<()> {
    daemon::detach();
    log_to_stderr(false);
    let mut is_ready = false;
    let served = settings(args).and_then(|settings| {
        server::serve_heap(&settings, args.while_used, |report| {
            is_ready = true;
            let log = Some(log.display().to_string());
            daemon::tell_ready(HeapServeReport { log, ..report })
        })
    });
    if let (Err(failure), false) = (&served, is_ready) {
        daemon::tell_failed(failure);
    }
    if served.is_ok() || !is_ready {
        daemon::remove_quiet_log(log);
    }
    served
}
