//! Pools in files, and servers of them in other processes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lode_engine::{FormatOptions, Pool};
use lode_fuse::control::Client;
use lode_fuse::{MountOptions, Server, View, mountpoint, notify};
use lode_host::StdHost;
use lode_pmem::{Line, MediaError, Medium};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

/// A medium in a file, by plain system calls: slow, and it outlives its process.
pub struct FileMedium {
    file: File,
    bytes: u64,
}

impl FileMedium {
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let bytes = file.metadata().unwrap().len();
        Self { file, bytes }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        assert!(at + bytes.len() as u64 <= self.bytes);
        self.file.write_all_at(bytes, at).unwrap();
    }
}

impl Medium for FileMedium {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn open(&self) {}
    fn close(&self, (): &mut ()) {}
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        let mut word = [0; 8];
        self.load(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let len = into.len() as u64;
        let outside = MediaError::OutOfBounds { at, len };
        self.file.read_exact_at(into, at).map_err(|_| outside)
    }
    fn store_word(&self, (): &mut (), at: u64, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
    fn store_bytes(&self, (): &mut (), at: u64, bytes: &[u8]) {
        self.put(at, bytes);
    }
    fn store_line(&self, (): &mut (), at: u64, line: &Line) {
        self.put(at, &line.0);
    }
    fn stream_word(&self, (): &mut (), at: u64, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
    fn write_back(&self, (): &mut (), _at: u64) {}
    fn fence(&self) -> Result<(), MediaError> {
        Ok(())
    }
}

/// A pool, a mount point and a place for the control socket; gone when dropped.
pub struct Place {
    dir: TempDir,
}

/// A mounted pool.
pub struct Mount {
    pub place: Place,
    pub root: PathBuf,
    server: Child,
}

/// Whether this machine lets the tests mount; says so when not.
pub fn can_mount() -> bool {
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let root = rustix::process::geteuid().is_root();
    if let (Ok(_), true) = (&fuse, root) {
        return true;
    }
    eprintln!("skipped: mounting needs root and /dev/fuse ({:?}, root: {root})", fuse.err());
    false
}

impl Place {
    /// A new pool of 256 MiB.
    pub fn new() -> Self {
        Self::of_bytes(256 << 20)
    }

    /// A new pool of so many bytes.
    pub fn of_bytes(bytes: u64) -> Self {
        let dir = lode_testkit::real::scratch("lode-mount-");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let place = Self { dir };
        File::create(place.pool()).unwrap().set_len(bytes).unwrap();
        let medium = FileMedium::open(&place.pool());
        Pool::format(medium, StdHost::new(), &FormatOptions::default()).unwrap();
        place
    }

    pub fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    pub fn point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn control(&self) -> PathBuf {
        self.dir.path().join("control")
    }

    /// Starts a server of the pool; it may not answer yet.
    pub fn spawn(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["server_process", "--exact", "--ignored", "--nocapture"])
            .env("LODE_TEST_PLACE", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Mounts the pool and waits until it answers.
    pub fn mount(self) -> Mount {
        let mut server = self.spawn();
        let end = Instant::now() + Duration::from_secs(20);
        while notify::wait_until_answers(&self.point(), Duration::from_millis(200)).is_err() {
            assert!(server.try_wait().unwrap().is_none(), "the server ended");
            assert!(Instant::now() < end, "the mount does not answer");
        }
        Mount { root: self.point(), server, place: self }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while let Ok(Some(_)) = mountpoint::mounted_at(&self.point()) {
            if mountpoint::cut_off(&self.point()).is_err() {
                break;
            }
        }
    }
}

impl Mount {
    /// A new pool, mounted; none where this machine can't.
    pub fn new() -> Option<Self> {
        can_mount().then(|| Place::new().mount())
    }

    /// A new pool of so many bytes, mounted; none where this machine can't.
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        can_mount().then(|| Place::of_bytes(bytes).mount())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn client(&self) -> Client {
        Client::for_mount_in(&self.place.control(), &self.root).unwrap()
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.server.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the server to end.
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.server.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the server does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the server and leaves the mount as it is.
    pub fn kill(mut self) -> Place {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        self.into_place()
    }

    /// Unmounts, once nobody uses the mount: processes that other tests start hold all files for a moment.
    pub fn take_off(&self) {
        eventually(|| match mountpoint::unmount(&self.root) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => false,
            other => other.map(|()| true).unwrap(),
        });
    }

    /// Unmounts cleanly.
    pub fn unmount(mut self) -> Place {
        self.take_off();
        assert!(self.wait().success());
        self.into_place()
    }

    pub fn into_place(mut self) -> Place {
        let empty = Place { dir: tempfile::tempdir().unwrap() };
        std::mem::replace(&mut self.place, empty)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The test is over: nothing is expected of the server any more.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What the mounts of tests show of themselves: how many fences there were.
const VIEW: View = View {
    name: "fences",
    text: |ask| ask(&json!({ "op": "stats" })).map(|stats| format!("{}\n", stats["fences"])),
};

/// The variable of the environment that says that requests are to come by io_uring.
pub const RINGS: &str = "LODE_TEST_IO_URING";

/// What `server_process` does.
pub fn serve() {
    let Some(dir) = std::env::var_os("LODE_TEST_PLACE") else {
        return;
    };
    let dir = PathBuf::from(dir);
    let pool = dir.join("pool");
    let opened = Pool::open(FileMedium::open(&pool), StdHost::new(), &Default::default());
    let mut options = MountOptions::new(&pool);
    (options.suid, options.dev) = (true, true);
    options.views = vec![VIEW];
    options.rings = Some(std::env::var_os(RINGS).is_some());
    options.region = [("medium".to_owned(), "file".to_owned())].into();
    let served =
        Server::mount_with(opened.unwrap(), &dir.join("mnt"), &options, &dir.join("control"))
            .and_then(Server::run);
    if let Err(error) = &served {
        eprintln!("server: {error}");
    }
    std::process::exit(i32::from(served.is_err()));
}

/// Runs a shell script in `dir` as `uid`; it has to succeed.
pub fn shell(dir: &Path, uid: u32, script: &str) -> String {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(dir);
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The error number of a result that has to be an error.
#[track_caller]
pub fn errno<T>(result: std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.raw_os_error().unwrap(),
    }
}

/// Waits for `what` to become true, for a few seconds.
#[track_caller]
pub fn eventually(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !what() {
        assert!(Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}
