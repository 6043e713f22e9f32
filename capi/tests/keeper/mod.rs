//! An owner of a pool, as a mount is one, that keeps heaps for the programs that come to its socket.

use std::fs;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lode_engine::{FormatOptions, OpenOptions, Pool};
use lode_host::StdHost;
use lode_lend::kept::{Keepers, PoolFiles};
use lode_pmem::{Mapped, RegionOptions};

const BYTES: u64 = 64 << 20;

pub struct Keeper {
    pool: Arc<Pool<Mapped, StdHost>>,
    keepers: Arc<Keepers>,
    socket: PathBuf,
    ending: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Of the pool in this directory, which is made where there is none.
    pub fn start(directory: &Path) -> Self {
        let (path, socket) = (directory.join("pool"), directory.join("socket"));
        let options = RegionOptions::default();
        if !path.exists() {
            let region = Mapped::create(&path, BYTES, &options, false).unwrap();
            Pool::format(&region, StdHost::new(), &FormatOptions::default()).unwrap();
        }
        let region = Mapped::open(&path, &options).unwrap();
        let pool = Arc::new(Pool::open(region, StdHost::new(), &OpenOptions::default()).unwrap());
        let keepers = Arc::new(Keepers::new(Box::new(PoolFiles(Arc::clone(&pool))), BYTES));
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let ending = Arc::new(AtomicBool::new(false));
        let (kept, is_ending) = (Arc::clone(&keepers), Arc::clone(&ending));
        let accepting = thread::spawn(move || {
            while !is_ending.load(Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => admit(&kept, &stream),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self { pool, keepers, socket, ending, accepting: Some(accepting) }
    }

    /// Ends it; all programs have let go.
    pub fn end(mut self) {
        self.ending.store(true, Relaxed);
        self.accepting.take().unwrap().join().unwrap();
        fs::remove_file(&self.socket).unwrap();
        assert!(self.keepers.stop(), "a program has a heap still");
        assert_eq!(self.pool.check(&mut |_, _| ()).unwrap().damage, []);
        self.pool.close().unwrap();
    }
}

/// Reads the first line of a program, and answers it.
fn admit(keepers: &Keepers, mut stream: &UnixStream) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    let line = String::from_utf8(line).unwrap();
    let (_, path) = line.split_once("\"path\":\"").unwrap();
    stream.set_read_timeout(None).unwrap();
    keepers.admit(stream, path.trim_end().trim_end_matches("\"}")).unwrap();
}
