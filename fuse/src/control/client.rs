//! The other end: asking a mount.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{HEAP_USER, MAX_LINE, place};
use crate::error::{MountError, Result};
use crate::mountpoint;

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the server of a mount.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// The server of the mount at `dir`.
    ///
    /// # Errors
    /// [`MountError::NoServer`] where none of this user's answers.
    pub fn for_mount(dir: &Path) -> Result<Self> {
        Self::for_mount_in(&place::directory(), dir)
    }

    /// The server that has the pool at `path` mounted.
    ///
    /// # Errors
    /// [`MountError::NoServer`] where none of this user's answers.
    pub fn for_pool(path: &Path) -> Result<Self> {
        Self::for_pool_in(&place::directory(), path)
    }

    /// As [`Client::for_mount`], with the sockets in `directory`.
    pub fn for_mount_in(directory: &Path, dir: &Path) -> Result<Self> {
        let none = || MountError::NoServer(dir.into());
        let point = mountpoint::canonical(dir).map_err(|_| none())?;
        place::check(directory).map_err(|_| none())?;
        Self::connect(place::socket(directory, &point)).map_err(|_| none())
    }

    /// As [`Client::for_pool`], with the sockets in `directory`.
    pub fn for_pool_in(directory: &Path, path: &Path) -> Result<Self> {
        let none = || MountError::NoServer(path.into());
        let pool = std::fs::canonicalize(path).map_err(|_| none())?;
        place::check(directory).map_err(|_| none())?;
        let sockets = place::sockets_of_pool(directory, &pool).map_err(|_| none())?;
        sockets.into_iter().find_map(|socket| Self::connect(socket).ok()).ok_or_else(none)
    }

    fn connect(socket: PathBuf) -> io::Result<Self> {
        let stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, stream: BufReader::new(stream) })
    }

    /// Waits no longer than `patience` for an answer: 30 s where this is not said.
    ///
    /// # Errors
    /// [`MountError::Control`] where the system can't.
    pub fn set_patience(&mut self, patience: Duration) -> Result<()> {
        let set = self.stream.get_ref().set_read_timeout(Some(patience));
        set.map_err(|source| self.failed("can't wait for", source))
    }

    /// Asks `{"op": op}` and returns the answer.
    ///
    /// # Errors
    /// [`MountError::Answer`] where the server refuses, [`MountError::Control`] where
    /// it does not answer.
    pub fn ask(&mut self, op: &str) -> Result<Value> {
        self.request(&serde_json::json!({ "op": op }))
    }

    /// Sends any request and returns the answer.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn request(&mut self, request: &Value) -> Result<Value> {
        self.send(request)?;
        self.answer()
    }

    /// Asks to be told when the server has closed the pool; [`Client::ended`] waits.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn watch(&mut self) -> Result<()> {
        self.send(&serde_json::json!({ "op": "wait" }))
    }

    /// Waits until the server, [watched](Client::watch) before, has closed the pool.
    ///
    /// # Errors
    /// [`MountError::Answer`] where it could not be closed cleanly,
    /// [`MountError::Control`] where the server went away or takes longer than
    /// `timeout`.
    pub fn ended(mut self, timeout: Duration) -> Result<()> {
        self.set_patience(timeout)?;
        self.answer().map(|_| ())
    }

    /// Says that programs are going to be lent memory: what the server is to do about it.
    ///
    /// # Errors
    /// [`MountError::Answer`] where it lends none, and those of [`Client::ask`].
    pub fn use_heap(mut self) -> Result<Standing> {
        let answer = match self.ask(HEAP_USER) {
            // One of an older version stays, as it knows nothing else.
            Err(MountError::Answer { answer, .. }) if answer == "unknown op" => {
                return Ok(Standing::Stays);
            }
            answer => answer?,
        };
        Ok(match answer.get("standing").and_then(Value::as_str) {
            Some("kept") => Standing::Kept(HeapUse(self)),
            Some("ending") => Standing::Ending,
            _ => Standing::Stays,
        })
    }

    fn send(&mut self, request: &Value) -> Result<()> {
        let line = format!("{request}\n");
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        sent.map_err(|source| self.failed("can't ask", source))
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(MAX_LINE as u64);
        let read = bounded.read_until(b'\n', &mut line);
        read.map_err(|source| self.failed("no answer from", source))?;
        if line.is_empty() {
            let gone = io::ErrorKind::UnexpectedEof.into();
            return Err(self.failed("no answer from", gone));
        }
        let wrong = |answer| MountError::Answer { path: self.socket.clone(), answer };
        let answer: Value = serde_json::from_slice(&line)
            .map_err(|_| wrong(String::from_utf8_lossy(&line).trim().to_owned()))?;
        if answer.get("ok").and_then(Value::as_bool) == Some(true) {
            return Ok(answer);
        }
        let error = answer.get("error").and_then(Value::as_str);
        Err(wrong(error.map_or_else(|| answer.to_string(), str::to_owned)))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> MountError {
        MountError::Control { what, path: self.socket.clone(), source }
    }
}

/// What becomes of a server that programs are lent memory by.
#[derive(Debug)]
pub enum Standing {
    /// It stays, whoever uses it.
    Stays,
    /// It stays while this is there.
    Kept(HeapUse),
    /// It is about to end.
    Ending,
}

/// A command's use of a server that ends when nobody uses it; ends when it is dropped, or its process ends.
#[derive(Debug)]
pub struct HeapUse(Client);

/// How it is with a server that was [left](HeapUse::leave).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// Programs have memory of it still.
    Lends,
    /// Another command uses it.
    Used,
    /// It has ended.
    Ended,
}

impl HeapUse {
    /// The command has ended.
    pub fn leave(&self) {
        // (Where that can't be done the server is gone.)
        let _ = self.0.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// How it is with the server, or will be within this time.
    pub fn farewell(&mut self, patience: Duration) -> Farewell {
        if self.0.set_patience(patience).is_err() {
            return Farewell::Ended;
        }
        match self.0.answer() {
            Ok(_) => Farewell::Used,
            Err(MountError::Control { source, .. })
                if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted]
                    .contains(&source.kind()) =>
            {
                Farewell::Lends
            }
            Err(_) => Farewell::Ended,
        }
    }
}
