//! `lode heap run`: a program that knows nothing of it, with memory of a pool.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lode_fuse::control::place::{self, Record};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::HeapRunArgs;
use super::stats::{lent_of, server_of};
use crate::failure::{Failure, Kind, Result};
use crate::mounts;

/// The library that programs get their memory by.
const LIBRARY: &str = "liblode_malloc.so";
/// Says where it is, where it is not beside this program.
const LIBRARY_VARIABLE: &str = "LODE_HEAP_LIBRARY";
/// Exit codes for a command that can't be run, and one that is not there: as those of `env` and shells.
const CANT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;
/// How long a server may take to close a pool.
const CLOSING: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the command; its exit code.
pub(super) fn run(args: &HeapRunArgs) -> Result<u8> {
    let target = mounts::clean_path(&args.pool)?;
    let library = library()?;
    let found = server_of(&target);
    let server = match &found {
        Some(_) => None,
        None if target.is_dir() => {
            return Err(Failure::new(Kind::NotMounted, "no pool is mounted there by this user")
                .at(&args.pool));
        }
        None => Some(Server::start(&target)?),
    };
    let record = match found {
        Some(record) => record,
        None => server_of(&target).ok_or_else(|| no_server(&target))?,
    };
    let command = command(args, &library, &record)?;
    match server {
        // Nothing is left to be done here: the command takes this process's place.
        None => Ok(cant_start(args, &{ command }.exec())),
        Some(server) => attend(args, command, server, &record),
    }
}

fn no_server(pool: &Path) -> Failure {
    Failure::new(Kind::Failed, "the server of the pool has ended").at(pool)
}

fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
        return Ok(path.into());
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Failed, format!("finding this program failed: {error}"))
    })?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = ["", "../lib/lode", "../lib", ".."].map(|place| beside.join(place).join(LIBRARY));
    let found = places.into_iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        Failure::new(Kind::NotFound, format!("{LIBRARY} is not where this program is"))
            .advise(format!("set {LIBRARY_VARIABLE} to its path"))
    })
}

fn command(args: &HeapRunArgs, library: &Path, record: &Record) -> Result<Command> {
    let (program, rest) =
        args.command.split_first().ok_or_else(|| Failure::usage("a command is needed"))?;
    let socket = place::socket(&place::directory(), Path::new(&record.mount));
    let mut preloaded = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloaded.push(":");
        preloaded.push(others);
    }
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preloaded).env("LODE_HEAP_SOCKET", socket);
    command.env("LODE_HEAP_METHOD", args.method.name());
    command.env("LODE_HEAP_DRAM_BELOW", args.dram_below.unwrap_or(0).to_string());
    command.env("LODE_HEAP_MAP_FROM", args.map_from.text());
    if let Some(ledger) = &args.ledger {
        let path = ledger
            .canonicalize()
            .map_err(|error| Failure::io("finding the ledger's directory", ledger, &error))?;
        command.env("LODE_HEAP_LEDGER", path);
    }
    Ok(command)
}

/// Says why the command could not be started; the exit code that says so, too.
fn cant_start(args: &HeapRunArgs, error: &io::Error) -> u8 {
    let program = args.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    eprintln!(
        "lode heap run: starting {} failed: {error}",
        crate::human::printable(program.as_bytes())
    );
    if error.kind() == io::ErrorKind::NotFound { NOT_THERE } else { CANT_RUN }
}

/// The process of a server for the command and what it starts; ends with this value.
struct Server(Option<Pid>);

impl Server {
    /// Has the pool served. What goes wrong is said by the command that is run for it.
    fn start(pool: &Path) -> Result<Self> {
        let failed = |error: io::Error| {
            Failure::new(Kind::Failed, format!("starting a server failed: {error}"))
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["heap", "serve"]).arg(pool).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().map_err(failed)?;
        let record = server_of(pool);
        match record {
            Some(record) if status.success() => {
                Ok(Self(i32::try_from(record.pid).ok().and_then(Pid::from_raw)))
            }
            // Another command may have come first: it is that one's server.
            Some(_) => Ok(Self(None)),
            None => Err(Failure::new(Kind::Failed, "the pool can't be served").at(pool)),
        }
    }

    /// Whether there is a server to be ended.
    fn lives(&self) -> bool {
        self.0.is_some_and(|pid| mounts::is_running(pid.as_raw_nonzero().get() as u32))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(pid) = self.0 else {
            return;
        };
        let end = Instant::now() + CLOSING;
        let _ = kill_process(pid, Signal::TERM);
        while self.lives() && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }
}

fn send(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Runs the command, passes signals on, and ends the server when nobody has memory of it any more.
fn attend(args: &HeapRunArgs, mut command: Command, server: Server, record: &Record) -> Result<u8> {
    let failed = |error: io::Error| {
        Failure::new(Kind::Failed, format!("waiting for the command failed: {error}"))
    };
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
        .map_err(failed)?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(cant_start(args, &error)),
    };
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        for signal in signals.wait() {
            // A terminal has sent these to the command itself.
            let from_terminal = [SIGINT, SIGQUIT].contains(&signal) && io::stdin().is_terminal();
            if let Some(signal) =
                Signal::from_named_raw(signal).filter(|_| signal != SIGCHLD && !from_terminal)
            {
                send(&child, signal);
            }
        }
    };
    let ends = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
    while server.lives() && !signals.pending().any(|signal| ends.contains(&signal)) {
        match lent_of(record) {
            Ok(pool) if pool.lent.facts.sessions > 0 || pool.lent.facts.apart_bytes > 0 => {
                thread::sleep(PAUSE)
            }
            _ => break,
        }
    }
    Ok(code(status))
}

/// As a shell says it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
