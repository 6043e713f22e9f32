//! Kept heaps: files of the pool that a program, one at a time, has as its memory.
//!
//! The owner finds or makes the file, claims it, tells the program where it is, and leaves all of it in place until the program has let go: until
//! its mark ([`lode_pmem::loan::mark`]) is gone, by its own doing or by its end. What is stored there, and made durable, is the program's affair.
//!
//! * `file`: the file; `session`: one connection, which has a thread

mod file;
mod session;

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lode_loan::kept::VERSION;
use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;

use crate::KeptFacts;
use crate::complaints::Complaints;
use crate::facts::now_ns;
use crate::service::{may, name_of};
use crate::session::send_line;
use session::Session;

pub use file::{Files, PoolFiles};

/// Sessions at a time: each has a thread.
pub const KEPT_MOST: usize = 256;
/// How long a program may take to let go at the owner's end.
const LETS_GO_WITHIN: Duration = Duration::from_secs(2);

/// What is wrong, as error numbers tell it.
pub type Errno = i32;

const EIO: Errno = 5;
const EPERM: Errno = 1;
const EBUSY: Errno = 16;
const EUSERS: Errno = 87;

/// A file that a session has for itself. It is given up when this is dropped.
pub trait KeptFile: Send {
    /// Makes it so long, backed with zeros.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG` and others of the pool.
    fn grow(&mut self, to: u64) -> Result<(), Errno>;

    /// Where its bytes `from .. to`, whole pages, are in the region: offset and length, in the order of the file. They stay there.
    ///
    /// # Errors
    /// `EINVAL` for what is not inside of it; those of the pool.
    fn map(&mut self, from: u64, to: u64) -> Result<Vec<(u64, u64)>, Errno>;

    /// Gives a new one its name.
    ///
    /// # Errors
    /// `EEXIST` where another one has it by now; those of the pool.
    fn name(&mut self) -> Result<(), Errno>;

    /// Whether the program has not let go of it yet.
    fn is_held(&self) -> bool;
}

/// A file that was opened for a session.
pub struct Opened {
    /// It.
    pub file: Box<dyn KeptFile>,
    /// A descriptor of the pool's file, marked as the session's.
    pub descriptor: OwnedFd,
    /// Bytes it has.
    pub bytes: u64,
    /// It has no name yet.
    pub is_new: bool,
}

struct Shared {
    files: Box<dyn Files>,
    complaints: Complaints,
    sessions: Mutex<BTreeMap<u64, Connection>>,
    next: AtomicU64,
    ending: AtomicBool,
}

/// A session, as others see it.
struct Connection {
    stream: UnixStream,
    /// None before it has its file.
    facts: Option<KeptFacts>,
}

/// The kept heaps of a pool that programs have.
pub struct Keepers {
    shared: Arc<Shared>,
    region_bytes: u64,
}

impl Keepers {
    /// Those of the pool that `files` is of, a region of so many bytes.
    pub fn new(files: Box<dyn Files>, region_bytes: u64) -> Self {
        let shared = Shared {
            files,
            complaints: Complaints::new(),
            sessions: Mutex::default(),
            // (Marks of a former owner's programs are gone: the pool would not be open.)
            next: AtomicU64::new(1),
            ending: false.into(),
        };
        Self { shared: Arc::new(shared), region_bytes }
    }

    /// Makes a connection, whose program has asked for the file at `path` and said nothing behind it, a session, and answers it; one
    /// that is refused is told so.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn admit(&self, stream: &UnixStream, path: &str) -> std::io::Result<()> {
        match self.open(stream, path) {
            Ok(()) => Ok(()),
            Err((errno, words)) => {
                let words = words.replace(['"', '\\'], "'");
                let line = format!(
                    "{{\"schema\":1,\"ok\":false,\"error\":\"{words}\",\"errno\":{errno}}}\n"
                );
                std::io::Write::write_all(&mut &*stream, line.as_bytes())
            }
        }
    }

    fn open(&self, stream: &UnixStream, path: &str) -> Result<(), (Errno, String)> {
        let shared = &self.shared;
        let broken = |error: &dyn std::fmt::Display| (EIO, error.to_string());
        let peer = socket_peercred(stream).map_err(|error| broken(&error))?;
        let (pid, uid, gid) =
            (peer.pid.as_raw_pid().unsigned_abs(), peer.uid.as_raw(), peer.gid.as_raw());
        if !may(uid) {
            shared.note(
                pid,
                &format!("files are kept for the pool's user alone, not for user {uid}"),
            );
            return Err((EPERM, "files are kept for the pool's user alone".into()));
        }
        let id = shared.next.fetch_add(1, Relaxed);
        let ours = stream.try_clone().map_err(|error| broken(&error))?;
        {
            let mut sessions = shared.sessions.lock();
            if shared.ending.load(Relaxed) {
                return Err((EIO, "the owner of the pool is ending".into()));
            }
            if sessions.len() >= KEPT_MOST {
                drop(sessions);
                shared.note(pid, &format!("{KEPT_MOST} programs have files already"));
                return Err((EUSERS, format!("{KEPT_MOST} programs have kept heaps already")));
            }
            sessions.insert(id, Connection { stream: ours, facts: None });
        }
        let begun = self.begin(stream, path, (id, pid), (uid, gid));
        if begun.is_err() {
            shared.sessions.lock().remove(&id);
        }
        begun
    }

    fn begin(
        &self,
        stream: &UnixStream,
        path: &str,
        (id, pid): (u64, u32),
        owner: (u32, u32),
    ) -> Result<(), (Errno, String)> {
        let shared = &self.shared;
        let opened = shared.files.open(path, id, owner).map_err(|errno| {
            let why = match errno {
                EBUSY => "somebody has the file open as a heap already".into(),
                errno => std::io::Error::from_raw_os_error(errno).to_string(),
            };
            (errno, format!("{path}: {why}"))
        })?;
        let stream = stream.try_clone().map_err(|error| (EIO, error.to_string()))?;
        let (name, path, bytes) = (name_of(pid), path.to_owned(), opened.bytes);
        let facts = KeptFacts { pid, uid: owner.0, name, path, bytes, since_ns: now_ns() };
        if let Some(connection) = shared.sessions.lock().get_mut(&id) {
            connection.facts = Some(facts);
        }
        let line = format!(
            "{{\"schema\":1,\"ok\":true,\"op\":\"kept\",\"version\":{VERSION},\"region_bytes\":{},\"bytes\":{},\"new\":{}}}\n",
            self.region_bytes, opened.bytes, opened.is_new
        );
        let sent = send_line(&stream, &line, &opened.descriptor);
        // Ours is closed: the mark is the program's alone.
        drop(opened.descriptor);
        let mut session = Session::new((id, pid), stream, opened.file);
        let shared = Arc::clone(shared);
        let builder = thread::Builder::new().name("lode-lend-kept".into());
        let started = builder.spawn(move || {
            let is_done = sent.is_ok() && session.run(&shared);
            session.end(is_done);
            shared.sessions.lock().remove(&id);
        });
        started.map(drop).map_err(|error| (EIO, error.to_string()))
    }

    /// The heaps that programs have, the largest first; those, too, that are still to be let go by a program whose connection has ended.
    pub fn facts(&self) -> Vec<KeptFacts> {
        let sessions = self.shared.sessions.lock();
        let mut all: Vec<_> = sessions.values().filter_map(|one| one.facts.clone()).collect();
        all.sort_by_key(|one| (std::cmp::Reverse(one.bytes), one.since_ns));
        all
    }

    /// Ends all sessions: says whether all programs have let go. Where one has not (a process that is stopped) the pool must not be closed: what
    /// it has may be stored to still, and nobody opens the pool before it has ended.
    #[must_use]
    pub fn stop(&self) -> bool {
        self.shared.ending.store(true, Relaxed);
        let end = Instant::now() + LETS_GO_WITHIN;
        loop {
            let sessions = self.shared.sessions.lock();
            if sessions.is_empty() {
                return true;
            }
            sessions.values().for_each(|one| drop(one.stream.shutdown(Shutdown::Both)));
            drop(sessions);
            if Instant::now() >= end {
                tracing::error!(
                    "a program does not let go of a kept heap: the pool is left as after a crash"
                );
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Shared {
    /// The file of a session has so many bytes by now.
    fn has_grown(&self, id: u64, bytes: u64) {
        if let Some(Connection { facts: Some(facts), .. }) = self.sessions.lock().get_mut(&id) {
            facts.bytes = facts.bytes.max(bytes);
        }
    }

    /// Notes who does what no program does.
    fn note(&self, pid: u32, what: &dyn std::fmt::Display) {
        self.complaints.note(pid, what);
    }
}
