//! By NBD: what `lode block serve` does beside nbdkit's memory plugin, which holds what it is given until it ends. The client is the
//! same: fio's, in a process of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::subject::region_file;

/// Sizes and depths that are asked for.
pub const SIZES: [u64; 2] = [4 << 10, 1 << 20];
/// Requests under way.
pub const DEPTHS: [usize; 2] = [1, 16];
/// Bytes of what is served.
const BYTES: u64 = 128 << 20;
/// A server is there after so long.
const START: Duration = Duration::from_secs(10);

/// A server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// A whole region.
    Raw,
    /// A volume of a pool.
    Volume,
    /// nbdkit, with its plugin `memory`.
    Nbdkit,
}

impl Server {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Volume, Self::Nbdkit];

    /// What rows call it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Raw => "lode-raw",
            Self::Volume => "lode-volume",
            Self::Nbdkit => "nbdkit-memory",
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// It writes.
    pub writes: bool,
    /// How many bytes at a time.
    pub bytes: u64,
    /// How many requests are under way.
    pub depth: usize,
}

impl Asked {
    /// All of it.
    pub fn all() -> Vec<Self> {
        let sized = |writes| move |bytes| DEPTHS.map(|depth| Self { writes, bytes, depth });
        [false, true]
            .into_iter()
            .flat_map(|writes| SIZES.into_iter().flat_map(sized(writes)))
            .collect()
    }

    /// What rows call it.
    pub fn workload(&self) -> String {
        let what = if self.writes { "write" } else { "read" };
        format!("nbd-{what}-{}k", self.bytes >> 10)
    }

    /// The same with its depth.
    pub fn short(&self) -> String {
        format!("{}, depth {}", self.workload(), self.depth)
    }
}

/// A program that is not here.
pub fn missing() -> Option<String> {
    ["fio", "nbdkit"].into_iter().find_map(|program| {
        let mut told = Command::new(program);
        told.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        let is_here = told.status().is_ok_and(|status| status.success());
        (!is_here).then(|| format!("{program} is missing: apt install fio nbdkit"))
    })
}

/// A server that runs, and where: it is ended when this is dropped.
pub struct Running {
    child: Child,
    uri: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            // (It may have ended.)
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts it; what it needs is made in `dir`.
    ///
    /// # Errors
    /// A program fails.
    pub fn start(self, lode: &Path, dir: &Path) -> io::Result<Running> {
        let socket = dir.join(format!("{}.sock", self.id()));
        let mut command = self.command(lode, dir, &socket)?;
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn()?;
        let name = if self == Self::Volume { "volume" } else { "" };
        let uri = format!("nbd+unix:///{name}?socket={}", socket.display());
        let mut running = Running { child, uri };
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            let ended = running.child.try_wait()?;
            if ended.is_some() || begin.elapsed() > START {
                return Err(io::Error::other(format!("{} does not serve: {ended:?}", self.id())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    fn command(self, lode: &Path, dir: &Path, socket: &Path) -> io::Result<Command> {
        let mut command =
            Command::new(if self == Self::Nbdkit { Path::new("nbdkit") } else { lode });
        match self {
            Self::Raw => {
                let region = dir.join("served-region");
                region_file(&region, BYTES)?;
                command.args(["block", "serve", "--raw"]).arg(region).arg("--socket").arg(socket);
            }
            Self::Volume => {
                let pool: PathBuf = dir.join("served-pool");
                let size = (BYTES * 2).to_string();
                run(Command::new(lode).args(["mkfs", "--size", &size]).arg(&pool))?;
                let bytes = BYTES.to_string();
                let create = ["block", "create"];
                run(Command::new(lode).args(create).arg(&pool).args(["volume", "--size", &bytes]))?;
                command.args(["block", "serve"]).arg(pool).arg("--socket").arg(socket);
            }
            Self::Nbdkit => {
                command.args(["--foreground", "--unix"]).arg(socket);
                command.args(["memory", &BYTES.to_string()]);
            }
        }
        Ok(command)
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// What fio says, as far as it is wanted.
#[derive(Deserialize)]
struct Told {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Done,
    write: Done,
}

#[derive(Deserialize)]
struct Done {
    iops: f64,
}

impl Running {
    /// Writes all of it, once and in order: to read what nobody has written costs nbdkit no copy.
    ///
    /// # Errors
    /// fio fails.
    pub fn fill(&self) -> io::Result<()> {
        run(self.fio("write", 1 << 20, 1).arg("--name=fill"))
    }

    fn fio(&self, what: &str, bytes: u64, depth: usize) -> Command {
        let mut command = Command::new("fio");
        command
            .args(["--ioengine=nbd", "--output-format=json"])
            .arg(format!("--uri={}", self.uri))
            .arg(format!("--rw={what}"))
            .arg(format!("--bs={bytes}"))
            .arg(format!("--iodepth={depth}"))
            .arg(format!("--size={BYTES}"));
        command
    }

    /// Requests a second, over so long.
    ///
    /// # Errors
    /// fio fails.
    pub fn ask(&self, asked: Asked, time: Duration) -> io::Result<f64> {
        let what = if asked.writes { "randwrite" } else { "randread" };
        let output = self
            .fio(what, asked.bytes, asked.depth)
            .args(["--name=ask", "--time_based"])
            .arg(format!("--runtime={}ms", time.as_millis()))
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = || {
            let said = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("fio says: {} {}", said.trim(), text.trim()))
        };
        // (Notes may stand before it.)
        let json = text.find('{').and_then(|at| text.get(at..)).filter(|_| output.status.success());
        let told: Told = serde_json::from_str(json.ok_or_else(failed)?).map_err(|_| failed())?;
        let job = told.jobs.first().ok_or_else(failed)?;
        Ok(if asked.writes { job.write.iops } else { job.read.iops })
    }
}
