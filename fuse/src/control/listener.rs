//! The server's end of the control socket.
//!
//! Whatever comes through it costs at most a few threads, a line of memory each, and
//! a few seconds: lines are bounded, and so are connections and the time of both. Where there are as many as may be, the
//! oldest that has said nothing yet makes room.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::place::{self, Record};
use super::{HEAP_USER, MAX_LINE, SCHEMA};
use crate::error::{MountError, Result};

/// Connections served at a time.
const MAX_CONNECTIONS: usize = 64;
/// How long a request may take to arrive, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request, in bytes.
const MAX_REQUEST: usize = 64 << 10;

/// What the mount answers to a request by its `op`; `None` for one it does not know.
pub type Answers =
    Box<dyn Fn(&str, &Value) -> Option<std::result::Result<Value, String>> + Send + Sync>;

/// Makes a connection that began with this request a session of its own, and answers it; or says why not, and does not.
pub type Sessions =
    Box<dyn Fn(&UnixStream, &Value) -> std::result::Result<(), String> + Send + Sync>;

/// A control socket that is being served.
pub struct Listener {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    socket: Files,
    answers: Arc<Answers>,
    sessions: Sessions,
    connections: AtomicUsize,
    /// Connections that have said nothing yet, the oldest first.
    silent: Mutex<VecDeque<(u64, UnixStream)>>,
    next: AtomicU64,
    stopping: AtomicBool,
    /// How the server ended, once it has.
    ended: Mutex<Option<std::result::Result<(), String>>>,
    end: Condvar,
}

/// A socket that is bound but not served yet.
pub struct Bound {
    listener: UnixListener,
    socket: Files,
}

/// A socket and its record; removed when this goes.
struct Files(PathBuf);

impl Bound {
    /// Binds the socket of the mount of `pool` at `point` in `directory`; replaces one
    /// that a dead server left.
    pub fn new(directory: &Path, pool: &Path, point: &Path) -> Result<Self> {
        place::prepare(directory)?;
        if let Err(error) = place::sweep(directory) {
            tracing::debug!(%error, "what dead servers left stays");
        }
        let socket = place::socket(directory, point);
        let fail = |what| {
            let path = socket.clone();
            move |source| MountError::Control { what, path, source }
        };
        match UnixStream::connect(&socket) {
            Ok(_) => return Err(MountError::Busy(point.into())),
            Err(_) if !socket.exists() => {}
            Err(_) => fs::remove_file(&socket).map_err(fail("can't remove the old socket"))?,
        }
        let listener = UnixListener::bind(&socket).map_err(fail("can't make the socket"))?;
        let only_mine = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&socket, only_mine).map_err(fail("can't protect the socket"))?;
        let bound = Self { listener, socket: Files(socket.clone()) };
        let record = Record::new(pool, point);
        place::write_record(&socket, &record).map_err(fail("can't describe the socket"))?;
        Ok(bound)
    }

    /// Serves it; `sessions` gets connections that ask for memory.
    pub fn serve(self, answers: Arc<Answers>, sessions: Sessions) -> Result<Listener> {
        let Self { listener, socket } = self;
        let shared = Arc::new(Shared {
            socket,
            answers,
            sessions,
            connections: AtomicUsize::new(0),
            silent: Mutex::default(),
            next: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            ended: Mutex::new(None),
            end: Condvar::new(),
        });
        let served = Arc::clone(&shared);
        let builder = thread::Builder::new().name("lode-control".into());
        let accepting = builder
            .spawn(move || served.accept(&listener))
            .map_err(|source| MountError::System { what: "serve the control socket", source })?;
        Ok(Listener { shared, accepting: Some(accepting) })
    }
}

impl Files {
    fn remove(&self) {
        // The record first: who finds it expects a socket.
        for path in [place::record_of(&self.0), self.0.clone()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "could not be removed");
                }
                _ => {}
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Listener {
    /// Tells those who wait how the server ended, and serves no more.
    pub fn end(mut self, how: std::result::Result<(), String>) {
        *self.shared.ended.lock() = Some(how);
        self.shared.end.notify_all();
        self.stop();
        // Those who wait get their answer before the process may go away.
        let end = Instant::now() + Duration::from_secs(2);
        while self.shared.connections.load(Ordering::Acquire) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        let Some(accepting) = self.accepting.take() else {
            return;
        };
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the thread that accepts. If that can't be done it ends with the process.
        if UnixStream::connect(&self.shared.socket.0).is_ok() {
            let _ = accepting.join();
        }
        self.shared.socket.remove();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &UnixListener) {
        loop {
            let accepted = listener.accept();
            if self.stopping.load(Ordering::Acquire) {
                // Who has asked before the end is told of it.
                let _ = listener.set_nonblocking(true);
                let mut waiting = accepted.ok();
                while let Some((stream, _)) = waiting {
                    self.start(stream);
                    waiting = listener.accept().ok();
                }
                return;
            }
            match accepted {
                Ok((stream, _)) => self.start(stream),
                // Out of descriptors, for example: not for ever.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn start(self: &Arc<Self>, mut stream: UnixStream) {
        let there = self.connections.fetch_add(1, Ordering::AcqRel);
        if there >= MAX_CONNECTIONS && !self.makes_room(there) {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = send(&mut stream, &refusal("too many connections; try again later"));
            return;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(same) = stream.try_clone() {
            self.silent.lock().push_back((id, same));
        }
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("lode-control-peer".into());
        let started = builder.spawn(move || {
            let _counted = Counted(&shared.connections);
            // A connection that breaks is its peer's affair.
            let _ = shared.serve(&mut stream, id);
            shared.heard(id);
        });
        if started.is_err() {
            self.heard(id);
            self.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Ends the oldest connection that has said nothing, where there is one. (Its thread may take a moment to end: there
    /// are twice as many at most.)
    fn makes_room(&self, there: usize) -> bool {
        if there >= 2 * MAX_CONNECTIONS {
            return false;
        }
        let oldest = self.silent.lock().pop_front();
        oldest.is_some_and(|(_, stream)| stream.shutdown(Shutdown::Both).is_ok())
    }

    /// A connection has said something, or is gone.
    fn heard(&self, id: u64) {
        self.silent.lock().retain(|(other, _)| *other != id);
    }

    fn serve(&self, stream: &mut UnixStream, id: u64) -> io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut pending = Vec::new();
        loop {
            let line = match read_line(stream, &mut pending) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return send(stream, &refusal("the request is too long"));
                }
                Err(error) => return Err(error),
            };
            self.heard(id);
            let Ok(request) = serde_json::from_slice::<Value>(&line) else {
                return send(stream, &refusal("the request is not a line of JSON"));
            };
            let Some(op) = request.get("op").and_then(Value::as_str) else {
                return send(stream, &refusal("the request has no \"op\""));
            };
            if op == "wait" {
                return self.wait(stream);
            }
            if op == "heap" || op == "kept" || op == HEAP_USER {
                return match self.session(stream, &request, &pending) {
                    Ok(()) => Ok(()),
                    Err(error) => send(stream, &refusal(&error)),
                };
            }
            let answer = match (self.answers)(op, &request) {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => refusal(&error),
                None => refusal("unknown op"),
            };
            send(stream, &answer)?;
        }
    }

    /// Hands the connection on, to be a session.
    fn session(
        &self,
        stream: &UnixStream,
        request: &Value,
        behind: &[u8],
    ) -> std::result::Result<(), String> {
        if !behind.is_empty() {
            return Err("nothing may be sent before the answer to \"heap\" or \"kept\"".into());
        }
        (self.sessions)(stream, request)
    }

    /// Answers when the server has ended, unless the peer goes away before.
    fn wait(&self, stream: &mut UnixStream) -> io::Result<()> {
        let mut ended = self.ended.lock();
        let answer = loop {
            match &*ended {
                Some(Ok(())) => break accept("wait", json!({ "closed": true })),
                Some(Err(error)) => break refusal(error),
                None => {}
            }
            self.end.wait_for(&mut ended, Duration::from_secs(1));
            if ended.is_none() && is_gone(stream) {
                return Ok(());
            }
        };
        drop(ended);
        send(stream, &answer)
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the other end of a connection is closed.
fn is_gone(stream: &UnixStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0_u8];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut byte, flags) {
        Ok((_, bytes)) => bytes == 0,
        Err(error) => error != rustix::io::Errno::AGAIN,
    }
}

/// An answer: what `values` holds, in the frame that every answer has.
pub fn accept(op: &str, values: Value) -> Value {
    let mut answer = json!({ "schema": SCHEMA, "ok": true, "op": op });
    if let (Some(answer), Value::Object(values)) = (answer.as_object_mut(), values) {
        answer.extend(values);
    }
    answer
}

fn refusal(error: &str) -> Value {
    json!({ "schema": SCHEMA, "ok": false, "error": error })
}

/// Sends an answer.
pub(crate) fn send(stream: &mut impl Write, answer: &Value) -> io::Result<()> {
    let mut line = answer.to_string();
    line.push('\n');
    debug_assert!(line.len() <= MAX_LINE);
    stream.write_all(line.as_bytes())
}

/// The next line without its end, or none when the peer has closed. All of it has to
/// come in time.
fn read_line(stream: &mut UnixStream, pending: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + PATIENCE;
    let mut chunk = [0; 4096];
    loop {
        if let Some(at) = pending.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = pending.drain(..=at).collect();
            line.pop();
            return Ok(Some(line));
        }
        if pending.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(bytes) => pending.extend(chunk.iter().take(bytes)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
