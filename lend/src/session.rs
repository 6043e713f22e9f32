//! A connection of a program: frames that come in, bytes that go out.
//!
//! Nothing here waits: what can't be read or sent now is for later. A connection takes memory of two of the
//! longest frames at most, as long as nothing is asked of it while an answer waits to be taken.
//!
//! What is granted is locked before it is said, on the open file description that the program was passed: from then on
//! nobody else uses it, whoever of the two dies, and when. The descriptor is kept as long as the session is: when that
//! ends, the locks are the program's alone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_loan::{CHUNK_BYTES, HEAD_BYTES, Head, Kind, Malformed, Method};
use lode_pmem::loan;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};

use crate::ledger::SessionId;
use crate::source::Source;

/// Chunks that a session wants, and is to be told of later: it is not read until then.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) count: u32,
    pub(crate) tag: u64,
    /// When it is told that there are none, at the latest.
    pub(crate) until: Instant,
}

/// What a session is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// A frame that comes.
    Frame,
    /// That it takes what is for it.
    Room,
    /// Nothing that it does, but its end.
    End,
}

/// A connection of a program.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) pid: u32,
    pub(crate) method: Method,
    pub(crate) source: Arc<dyn Source>,
    stream: UnixStream,
    /// Of the description that the program has.
    pool: OwnedFd,
    /// What was granted by a frame that is not sent wholly, and how many bytes are left until it is.
    unsent: (Vec<u64>, usize),
    /// What has come of the next frame.
    input: Vec<u8>,
    began: Option<Instant>,
    output: Vec<u8>,
    /// The last wish it was sent, and the last that it has answered.
    pub(crate) wish: u64,
    pub(crate) spared: u64,
    pub(crate) pending: Option<Pending>,
    /// What it is registered for.
    pub(crate) registered: WaitsFor,
}

/// A frame that came in.
pub(crate) struct Frame {
    pub(crate) head: Head,
    pub(crate) chunks: Vec<u64>,
}

/// What reading gave.
pub(crate) enum Read {
    Frame(Frame),
    /// More has to come.
    Part,
    /// Nothing more comes.
    Gone,
    Malformed(Malformed),
}

impl Session {
    pub(crate) fn new(
        (id, pid): (SessionId, u32),
        method: Method,
        source: Arc<dyn Source>,
        (stream, pool): (UnixStream, OwnedFd),
    ) -> Self {
        let (input, output, unsent) = (Vec::new(), Vec::new(), (Vec::new(), 0));
        let (wish, spared, pending, registered) = (0, 0, None, WaitsFor::Frame);
        Self {
            id,
            pid,
            method,
            source,
            stream,
            pool,
            unsent,
            input,
            began: None,
            output,
            wish,
            spared,
            pending,
            registered,
        }
    }

    /// Reads as much as belongs to the next frame, so that what is behind it stays where it is.
    pub(crate) fn read(&mut self) -> Read {
        match self.read_until(HEAD_BYTES) {
            Ok(true) => {}
            Ok(false) => return Read::Part,
            Err(_) => return Read::Gone,
        }
        let Some(bytes) = self.input.first_chunk::<HEAD_BYTES>() else { return Read::Part };
        let head = match Head::parse(bytes) {
            Ok(head) => head,
            Err(malformed) => return Read::Malformed(malformed),
        };
        match self.read_until(HEAD_BYTES + head.list_bytes()) {
            Ok(true) => {}
            Ok(false) => return Read::Part,
            Err(_) => return Read::Gone,
        }
        let list = self.input.get(HEAD_BYTES..).unwrap_or_default().as_chunks::<8>().0;
        let chunks = list.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        self.input.clear();
        self.began = None;
        Read::Frame(Frame { head, chunks })
    }

    /// Whether so many bytes of the frame are there.
    fn read_until(&mut self, bytes: usize) -> io::Result<bool> {
        let mut room = [0_u8; 4096];
        while self.input.len() < bytes {
            let most = (bytes - self.input.len()).min(room.len());
            let Some(room) = room.get_mut(..most) else { return Ok(false) };
            match recv(&self.stream, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, got)) => {
                    self.began.get_or_insert_with(Instant::now);
                    self.input.extend(room.iter().take(got));
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Whether a frame has begun, and how long ago.
    pub(crate) fn frame_began(&self) -> Option<Duration> {
        self.began.map(|began| began.elapsed())
    }

    /// Sends a frame, as far as that goes now.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn say(&mut self, head: Head, chunks: &[u64]) -> io::Result<()> {
        self.output.extend(head.bytes());
        self.output.extend(chunks.iter().flat_map(|chunk| chunk.to_le_bytes()));
        self.flush()
    }

    /// Locks a chunk for the program; says whether that could be done: somebody else may have locked some of it.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn lock(&self, chunk: u64) -> io::Result<bool> {
        loan::lock(self.pool.as_fd(), bytes_of(chunk))
    }

    /// Says that chunks, which are locked, are the program's.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn grant(&mut self, tag: u64, chunks: &[u64]) -> io::Result<()> {
        let head = Head { kind: Kind::Granted, count: chunks.len() as u32, tag };
        self.unsent = (chunks.to_vec(), self.output.len() + HEAD_BYTES + head.list_bytes());
        self.say(head, chunks)
    }

    /// The same without a list.
    pub(crate) fn say_count(&mut self, kind: Kind, count: u32, tag: u64) -> io::Result<()> {
        self.say(Head { kind, count, tag }, &[])
    }

    /// Sends what waits, as far as that goes now.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match send(&self.stream, &self.output, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent(sent.min(self.output.len())),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// So many bytes of what waited are sent.
    fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes);
        let (chunks, left) = &mut self.unsent;
        *left = left.saturating_sub(bytes);
        if *left == 0 {
            chunks.clear();
        }
    }

    /// What comes next, as things are.
    pub(crate) fn waits_for(&self) -> WaitsFor {
        match self.pending {
            _ if self.has_output() => WaitsFor::Room,
            Some(_) => WaitsFor::End,
            None => WaitsFor::Frame,
        }
    }

    /// Whether something waits to be sent: nothing more is read until it is.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Of these the program will never hear. It may be one that has gone on without this session, and has the description.
        for chunk in &self.unsent.0 {
            let _ = loan::unlock(self.pool.as_fd(), bytes_of(*chunk));
        }
    }
}

fn bytes_of(chunk: u64) -> std::ops::Range<u64> {
    let start = chunk.saturating_mul(CHUNK_BYTES);
    start..start.saturating_add(CHUNK_BYTES)
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Sends a line, and a descriptor with it.
///
/// # Errors
/// Those of sending: also where the socket does not take all of it at once, which is empty at that time.
pub(crate) fn send_line(stream: &UnixStream, line: &str, descriptor: &OwnedFd) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let parts = [io::IoSlice::new(line.as_bytes())];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(stream, &parts, &mut control, flags) {
        Ok(sent) if sent == line.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) => Err(error.into()),
    }
}
