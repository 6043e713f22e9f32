//! A program with a file: it asks, one thing after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use lode_loan::kept::{EXTENTS_MOST, FRAME_BYTES, Frame, Kind};

use super::{Errno, KeptFile, Shared};

/// How long a frame may take to come once it has begun, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether a program whose connection has ended has let go: at first, and at last.
const LOOKS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(100));

const EINVAL: Errno = 22;
const EFBIG: Errno = 27;

pub(super) struct Session {
    id: u64,
    pid: u32,
    stream: UnixStream,
    file: Box<dyn KeptFile>,
}

/// What the program wants next.
enum Next {
    Frame(Frame),
    /// It is gone.
    End,
}

impl Session {
    pub(super) fn new((id, pid): (u64, u32), stream: UnixStream, file: Box<dyn KeptFile>) -> Self {
        Self { id, pid, stream, file }
    }

    /// Answers until the connection ends; says whether the program has said that it is done.
    pub(super) fn run(&mut self, shared: &Shared) -> bool {
        let _ = self.stream.set_write_timeout(Some(PATIENCE));
        let mut told = 0;
        loop {
            match self.next() {
                Ok(Next::Frame(Frame { kind: Kind::Close, .. })) => return true,
                Ok(Next::Frame(frame)) => {
                    // (A connection that breaks is its program's affair.)
                    if self.answer(shared, frame, &mut told).is_err() {
                        return false;
                    }
                }
                Ok(Next::End) => return false,
                Err(error) => {
                    if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::WouldBlock) {
                        shared.note(self.pid, &format!("of a kept heap: {error}"));
                    }
                    return false;
                }
            }
        }
    }

    /// Waits until the program has let go, and gives the file up; all that the program has been told of stays where it is till then.
    pub(super) fn end(self, is_done: bool) {
        let Self { mut stream, file, .. } = self;
        if !is_done {
            // It is told, if it is there.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let (mut pause, last) = LOOKS;
        while file.is_held() {
            thread::sleep(pause);
            pause = (2 * pause).min(last);
        }
        drop(file);
        if is_done {
            let _ = stream.write_all(&Frame::of(Kind::Done, 0).bytes());
        }
    }

    fn next(&mut self) -> io::Result<Next> {
        let mut bytes = [0; FRAME_BYTES];
        let (mut filled, mut is_timed) = (0, false);
        self.stream.set_read_timeout(None)?;
        while filled < bytes.len() {
            match self.stream.read(bytes.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => return Ok(Next::End),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !is_timed && filled < bytes.len() {
                self.stream.set_read_timeout(Some(PATIENCE))?;
                is_timed = true;
            }
        }
        let frame = Frame::parse(&bytes);
        Ok(Next::Frame(frame.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?))
    }

    /// Answers a frame. `told` is up to where the program knows the file.
    fn answer(&mut self, shared: &Shared, frame: Frame, told: &mut u64) -> io::Result<()> {
        let value = frame.value;
        let done = match frame.kind {
            Kind::Grow => self.file.grow(value).map(|()| shared.has_grown(self.id, value)),
            Kind::Map => match self.file.map(*told, value) {
                Ok(extents) => {
                    *told = value;
                    return self.send_extents(&extents);
                }
                Err(errno) => Err(errno),
            },
            Kind::Name => self.file.name(),
            Kind::Close | Kind::Done | Kind::Refused | Kind::Extents => {
                let what = "of a kept heap: it sends what only an owner sends";
                shared.note(self.pid, &what);
                return Err(ErrorKind::InvalidData.into());
            }
        };
        if let Err(errno @ (EINVAL | EFBIG)) = done {
            let what = format!("of a kept heap: {:?} {value} (error {errno})", frame.kind);
            shared.note(self.pid, &what);
        }
        let answer = match done {
            Ok(()) => Frame::of(Kind::Done, 0),
            Err(errno) => Frame { kind: Kind::Refused, count: errno.unsigned_abs(), value: 0 },
        };
        self.stream.write_all(&answer.bytes())
    }

    fn send_extents(&mut self, extents: &[(u64, u64)]) -> io::Result<()> {
        let mut left = extents;
        loop {
            let (now, rest) = left.split_at(left.len().min(EXTENTS_MOST as usize));
            left = rest;
            let (count, value) = (now.len() as u32, left.len() as u64);
            let mut bytes = Frame { kind: Kind::Extents, count, value }.bytes().to_vec();
            for (at, len) in now {
                bytes.extend(at.to_le_bytes());
                bytes.extend(len.to_le_bytes());
            }
            self.stream.write_all(&bytes)?;
            if left.is_empty() {
                return Ok(());
            }
        }
    }
}
