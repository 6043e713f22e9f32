//! `tpcc`: PostgreSQL and pgbench, its data directory in the file system, as a user who may do nothing else.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::program::{Program, Work, bounded, missing, wrong};
use crate::error::{BenchError, Result};
use crate::file_system::find_program;
use crate::place::run_program;

/// Where Debian has a directory for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The server refuses to be root's; the first of these that there is.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Of pgbench: rows of accounts in units of 100,000, and connections.
const SCALE: &str = "2";
const CLIENTS: u32 = 4;
/// How long a server may take to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Transactions.
pub(super) struct Tpcc;

impl Program for Tpcc {
    fn id(&self) -> &'static str {
        "tpcc"
    }

    fn about(&self) -> &'static str {
        "a transaction of pgbench, of four clients of PostgreSQL (TPC-B's; the paper's are TPC-C's)"
    }

    fn missing(&self, dir: &Path) -> Option<String> {
        let no_server = || {
            let said = "initdb, postgres and pgbench are missing: apt install postgresql";
            Server::programs().is_none().then(|| said.to_owned())
        };
        let no_user = || {
            let said = format!("there is no user {}", USERS.join(" and no "));
            user().is_none().then_some(said)
        };
        missing(&[]).or_else(no_server).or_else(no_user).or_else(|| closed_above(dir))
    }

    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        let database = Database::of(work)?;
        let failed = |error| BenchError::io("making the directory", &database.dir, error);
        fs::create_dir(&database.dir).map_err(failed)?;
        chown(&database.dir, Some(database.user.0), Some(database.user.1)).map_err(failed)?;
        let mut initdb = database.bounded("initdb");
        initdb.args(["--no-sync", "--data-checksums", "--auth=trust", "--username=postgres"]);
        initdb.args(["--encoding=UTF8", "--no-locale", "--pgdata"]).arg(database.data());
        run_program(&mut initdb)?;
        let server = Server::start(&database)?;
        let mut fill = database.pgbench();
        run_program(fill.args(["--initialize", "--quiet", "--scale", SCALE, "postgres"]))?;
        server.stop()
    }

    fn run(&self, work: &Work<'_>) -> Result<f64> {
        let database = Database::of(work)?;
        let server = Server::start(&database)?;
        let (clients, each) = (CLIENTS, work.kit.load.transactions);
        let mut pgbench = database.pgbench();
        pgbench.args(["--no-vacuum", "--jobs", "2", "--client", &clients.to_string()]);
        pgbench.args(["--transactions", &each.to_string(), "postgres"]);
        // What is committed is durable: nothing is owed at the end.
        let began = Instant::now();
        run_program(&mut pgbench)?;
        let ns = began.elapsed().as_secs_f64() * 1e9;
        server.stop()?;
        Ok(ns / f64::from(clients * each))
    }

    fn verify(&self, work: &Work<'_>) -> Result<()> {
        let database = Database::of(work)?;
        run_program(
            database.bounded("pg_checksums").args(["--check", "--pgdata"]).arg(database.data()),
        )
    }
}

/// A database's directory, its user, and its programs.
struct Database {
    dir: PathBuf,
    /// Of the run, where the server writes what it has to say.
    beside: PathBuf,
    bin: PathBuf,
    user: (u32, u32),
}

impl Database {
    fn of(work: &Work<'_>) -> Result<Self> {
        let (Some(bin), Some(user)) = (Server::programs(), user()) else {
            return Err(wrong("postgres", "it is missing".to_owned()));
        };
        Ok(Self { dir: work.root.join("database"), beside: work.beside.to_owned(), bin, user })
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// A program of PostgreSQL's, as its user, behind `first`.
    fn as_user(&self, mut first: Command, program: &str) -> Command {
        let (user, group) = self.user;
        first.args([&format!("--reuid={user}"), &format!("--regid={group}"), "--clear-groups"]);
        // The server must not outlive this process: it would keep a mount in use.
        first.args(["--pdeathsig", "KILL"]).arg(self.bin.join(program));
        first.current_dir(&self.dir).env("LC_ALL", "C");
        first
    }

    fn bounded(&self, program: &str) -> Command {
        self.as_user(bounded("setpriv"), program)
    }

    fn pgbench(&self) -> Command {
        let mut pgbench = self.bounded("pgbench");
        pgbench.arg("--host").arg(&self.dir).args(["--username", "postgres"]);
        pgbench
    }
}

/// A server that runs; ended when this is dropped.
struct Server(Option<Child>);

impl Server {
    /// The newest directory of programs.
    fn programs() -> Option<PathBuf> {
        let needed = ["initdb", "postgres", "pgbench", "pg_isready", "pg_checksums"];
        let mut dirs: Vec<PathBuf> = Vec::new();
        if let Ok(versions) = fs::read_dir(VERSIONS) {
            dirs.extend(versions.flatten().map(|version| version.path().join("bin")));
        }
        dirs.sort_by_key(|dir| version(dir));
        dirs.extend(find_program("postgres").and_then(|found| Some(found.parent()?.to_owned())));
        dirs.into_iter().rev().find(|dir| needed.iter().all(|name| dir.join(name).is_file()))
    }

    fn start(database: &Database) -> Result<Self> {
        let log = database.beside.join("postgres.log");
        let failed = |error| BenchError::io("making the log of the server", &log, error);
        let to = File::create(&log).map_err(failed)?;
        let mut command = database.as_user(Command::new("setpriv"), "postgres");
        command.arg("-D").arg(database.data()).arg("-k").arg(&database.dir);
        command.args(["-c", "listen_addresses=", "-c", "shared_buffers=32MB"]);
        command.args(["-c", "min_wal_size=32MB", "-c", "max_wal_size=96MB"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(to);
        let child = command.spawn().map_err(|error| wrong("postgres", error.to_string()))?;
        let mut server = Self(Some(child));
        let began = Instant::now();
        loop {
            let mut ask = Command::new(database.bin.join("pg_isready"));
            ask.arg("--quiet").arg("--host").arg(&database.dir).env("LC_ALL", "C");
            if run_program(&mut ask).is_ok() {
                return Ok(server);
            }
            let ended = server.0.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || began.elapsed() > PATIENCE {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(wrong("postgres", format!("it did not begin: {}", said.trim())));
            }
            sleep(PAUSE);
        }
    }

    /// Ends it in order: what it has is durable.
    fn stop(mut self) -> Result<()> {
        let Some(child) = self.0.as_mut() else { return Ok(()) };
        signal(child, Signal::INT);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => {
                    self.0 = None;
                    return Ok(());
                }
                Ok(None) => sleep(PAUSE),
                ended => return Err(wrong("postgres", format!("it ended with {ended:?}"))),
            }
        }
        Err(wrong("postgres", "it does not end".to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = self.0.as_mut() {
            // At once, its children too; what is killed has nothing more to say.
            signal(child, Signal::QUIT);
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < PATIENCE / 10 {
                sleep(PAUSE);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One that is over is not there to be told.
fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The number in `/usr/lib/postgresql/15/bin`.
fn version(bin: &Path) -> u32 {
    let name = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// Who the server is to be: the numbers of a user and of the group.
fn user() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    USERS.iter().find_map(|user| numbers(&text, user))
}

fn numbers(passwd: &str, user: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(2);
    let (user, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    // Root by another name is root.
    (user != 0).then_some((user, group))
}

/// Why PostgreSQL's user can't reach what is below `dir`: a directory above lets nobody else through.
fn closed_above(dir: &Path) -> Option<String> {
    let is_closed = |above: &&Path| {
        fs::metadata(above).is_ok_and(|found| found.permissions().mode() & 0o001 == 0)
    };
    let above = dir.ancestors().skip(1).find(is_closed)?;
    Some(format!("PostgreSQL's user can't get through {}: chmod o+x it", above.display()))
}

/// Lets other users reach what lies below a directory by its name; they can't list it.
pub(super) fn let_through(dir: &Path) -> Result<()> {
    let set = fs::set_permissions(dir, Permissions::from_mode(0o711));
    set.map_err(|error| BenchError::io("letting PostgreSQL's user through", dir, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_user_is_found_and_never_root() {
        let passwd =
            "root:x:0:0:r:/root:/bin/sh\npostgres:x:101:104::/var:/bin/bash\ntoor:x:0:0:::\n";
        assert_eq!(numbers(passwd, "postgres"), Some((101, 104)));
        for none in ["toor", "nobody", "post", ""] {
            assert_eq!(numbers(passwd, none), None, "{none}");
        }
    }

    #[test]
    fn a_directory_that_lets_nobody_through_is_told() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("a/b/c");
        fs::create_dir_all(&dir).unwrap();
        for (closed, mode, is_told) in
            [("a", 0o700, true), ("a", 0o711, false), ("a/b/c", 0o700, false)]
        {
            fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(base.path().join(closed), Permissions::from_mode(mode)).unwrap();
            let told = closed_above(&dir);
            assert_eq!(
                told.is_some_and(|told| told.contains("/a: chmod")),
                is_told,
                "{closed} {mode:o}"
            );
        }
        let_through(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o711);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let mut all = ["9.6", "15", "17", "9"].map(|v| PathBuf::from(format!("/v/{v}/bin")));
        all.sort_by_key(|dir| version(dir));
        assert_eq!(all[3], Path::new("/v/17/bin"));
        assert_eq!(version(Path::new("/usr/bin")), 0);
    }
}
