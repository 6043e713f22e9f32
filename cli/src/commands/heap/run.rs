//! `lode heap run`: a program that knows nothing of it, with memory of a pool.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use lode_fuse::MountError;
use lode_fuse::control::place::{self, Record};
use lode_fuse::control::{Client, Farewell, HeapUse, Standing};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::stats::server_of;
use super::{HeapRunArgs, serve};
use crate::commands::umount;
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;

/// The library that programs get their memory by.
const LIBRARY: &str = "liblode_malloc.so";
/// Says where it is, where it is not beside this program.
const LIBRARY_VARIABLE: &str = "LODE_HEAP_LIBRARY";
/// Exit codes for a command that can't be run, and one that is not there: as those of `env` and shells.
const CANT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;
/// How long a server may take to end, or another to begin.
const COMING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the command; its exit code.
pub(super) fn run(args: &HeapRunArgs) -> Result<u8> {
    let target = mounts::clean_path(&args.pool)?;
    let (library, ledger) = (library()?, ledger(args)?);
    let server = Server::find(&target, &args.pool)?;
    let command = command(args, &library, ledger.as_deref(), &server.record)?;
    match server.used {
        // Nothing is left to be done here: the command takes this process's place.
        None => Ok(cant_start(args, &{ command }.exec())),
        Some(used) => attend(args, command, used, server.child),
    }
}

/// The server that the command's programs have memory of.
struct Server {
    record: Record,
    /// Where it ends when nobody uses it any more.
    used: Option<Used>,
    /// Its process, where it is a child of this one.
    child: Option<Pid>,
}

/// A use of a server, and its process.
struct Used(HeapUse, Option<OwnedFd>);

impl Server {
    /// The one that the pool, or mount, has, or else one that is started now. One that is just ending is waited for.
    fn find(target: &Path, named: &Path) -> Result<Self> {
        let (began, mut child) = (Instant::now(), None);
        loop {
            let failure = match server_of(target) {
                Some(record) => {
                    let used = match Self::ask(&record) {
                        Ok(Standing::Stays) => return Ok(Self { record, used: None, child }),
                        Ok(Standing::Kept(used)) => Some(used),
                        Ok(Standing::Ending) => None,
                        Err(MountError::Answer { answer, .. }) => {
                            return Err(refused(named, &answer));
                        }
                        Err(error) if began.elapsed() > COMING => {
                            return Err(mount_failure(named, &error));
                        }
                        Err(_) => None,
                    };
                    if let Some(used) = used {
                        let process = umount::process(record.pid);
                        return Ok(Self { record, used: Some(Used(used, process)), child });
                    }
                    Failure::new(Kind::Busy, "the server of the pool does not end").at(named)
                }
                None if target.is_dir() => {
                    return Err(Failure::new(
                        Kind::NotMounted,
                        "no pool is mounted there by this user",
                    )
                    .at(named)
                    .advise(
                        "`lode mount POOL DIR` mounts one; only mounts of one's own user are found",
                    ));
                }
                None => match serve::start_for_command(target) {
                    Ok(pid) => {
                        child = i32::try_from(pid).ok().and_then(Pid::from_raw);
                        continue;
                    }
                    Err(failure) => failure,
                },
            };
            // Another command may just be starting a server, or the last one's may not be gone yet.
            let may_come = failure.kind == Kind::Busy && mounts::of_pool(target)?.is_none();
            if !may_come || began.elapsed() > COMING {
                return Err(failure);
            }
            thread::sleep(PAUSE);
        }
    }

    fn ask(record: &Record) -> std::result::Result<Standing, MountError> {
        Client::for_mount(Path::new(&record.mount))?.use_heap()
    }
}

/// A server that is there says that it lends nothing.
fn refused(named: &Path, answer: &str) -> Failure {
    Failure::new(Kind::Denied, answer)
        .at(named)
        .advise("`lode mount` without `ro`, and `lode heap serve`, lend a pool's memory")
}

/// Where the ledger is to be written.
fn ledger(args: &HeapRunArgs) -> Result<Option<PathBuf>> {
    let Some(ledger) = &args.ledger else { return Ok(None) };
    match ledger.canonicalize() {
        Ok(path) if path.is_dir() => Ok(Some(path)),
        Ok(_) => Err(Failure::usage("the ledger's directory is none").at(ledger)),
        Err(error) => Err(Failure::io("finding the ledger's directory", ledger, &error)),
    }
    .map_err(|failure| {
        failure.advise("give the path of a directory that is there; mkdir -p makes one")
    })
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

fn command(
    args: &HeapRunArgs,
    library: &Path,
    ledger: Option<&Path>,
    record: &Record,
) -> Result<Command> {
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
    if let Some(ledger) = ledger {
        command.env("LODE_HEAP_LEDGER", ledger);
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

fn send(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// The signals that are passed on, and that of a child's end. What was ignored stays so, for the command, too: `nohup` says it so, and shells for
/// what they start in the background.
fn heeded(ignored: u64) -> impl Iterator<Item = i32> {
    let all = [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    all.into_iter().filter(move |signal| *signal == SIGCHLD || ignored >> (signal - 1) & 1 == 0)
}

/// What this process ignores: a bit for each signal.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    found.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// Runs the command, passes signals on, and waits until the server has ended, unless somebody else uses it.
fn attend(args: &HeapRunArgs, mut command: Command, used: Used, server: Option<Pid>) -> Result<u8> {
    let failed = |error: io::Error| {
        Failure::new(Kind::Failed, format!("waiting for the command failed: {error}"))
    };
    let mut signals = Signals::new(heeded(ignored())).map_err(failed)?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let code = cant_start(args, &error);
            leave(used, || true);
            return Ok(code);
        }
    };
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        // (A server that was killed is not to be seen as one any more.)
        let _ = server.map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
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
    leave(used, || !signals.pending().any(|signal| ends.contains(&signal)));
    Ok(code(status))
}

/// The command needs the server no more: waits until that has ended, unless others use it, or it is waited no longer.
fn leave(Used(mut used, process): Used, mut waits: impl FnMut() -> bool) {
    used.leave();
    while waits() {
        match used.farewell(PAUSE) {
            Farewell::Lends => {}
            Farewell::Used => return,
            Farewell::Ended => {
                if let Some(process) = process {
                    umount::wait_for_end(&process);
                }
                return;
            }
        }
    }
}

/// As a shell says it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
