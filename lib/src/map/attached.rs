//! A file of a pool that another process has open: what its owner is asked (`lode_loan::kept`), and the memory that it tells of.
//!
//! Guarantees: nothing is mapped but what the owner has told of the file. When the owner is gone, whatever is stored to that memory afterwards stays
//! in this process, and no call succeeds any more: a thread waits for that moment. Then, or when it is closed, the mark that kept others from the pool ends.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lode_loan::kept::{EXTENT_BYTES, EXTENTS_MOST, FRAME_BYTES, Frame, Hello, Kind, VERSION};
use lode_pmem::{Borrowed, Lent, ViewOptions};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::pieces::Maps;
use super::{GIANT, HUGE, PAGE};
use crate::error::Cause;

type Outcome<T> = std::result::Result<T, Cause>;

/// How long an owner may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer to the first line.
const LINE_MOST: usize = 4096;

/// A conversation with the owner, and what is mapped by it.
pub(super) struct Attached {
    link: Arc<Link>,
    watcher: Option<JoinHandle<()>>,
    process: u32,
}

/// What the thread that waits for the end has of it, too.
pub(super) struct Link {
    stream: Mutex<UnixStream>,
    /// The same, to be waited for beside who speaks.
    ending: UnixStream,
    borrowed: Borrowed,
    maps: Arc<Maps>,
    path: PathBuf,
}

/// What the owner has said of the file.
pub(super) struct Told {
    pub(super) bytes: u64,
    pub(super) is_new: bool,
}

impl Attached {
    /// Asks the owner at this control socket for the file at `path` of its pool, which `maps` are to be of.
    pub(super) fn open(socket: &Path, path: &str, maps: &Arc<Maps>) -> Outcome<(Self, Told)> {
        let system = |what| move |source| Cause::System { what, source };
        let stream = UnixStream::connect(socket).map_err(system("reach the pool's owner"))?;
        let speak = system("speak with the pool's owner");
        stream.set_read_timeout(Some(PATIENCE)).map_err(speak)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(speak)?;
        let mut hello = &stream;
        hello.write_all(Hello(path).to_string().as_bytes()).map_err(speak)?;
        let (line, descriptor) = receive_line(&stream).map_err(speak)?;
        if !line.contains("\"ok\":true") {
            return Err(Cause::Refused { errno: refused(&line), words: words(&line) });
        }
        let numbers =
            [number(&line, "version"), number(&line, "region_bytes"), number(&line, "bytes")];
        let ([Some(version), Some(region_bytes), Some(bytes)], Some(descriptor)) =
            (numbers, descriptor)
        else {
            return Err(odd());
        };
        if version != u64::from(VERSION) {
            return Err(Cause::Number(libc::EPROTONOSUPPORT));
        }
        let borrowed = Borrowed::new(descriptor, region_bytes, socket)?;
        let ending = stream.try_clone().map_err(speak)?;
        let (stream, maps) = (Mutex::new(stream), Arc::clone(maps));
        let link = Arc::new(Link { stream, ending, borrowed, maps, path: socket.to_owned() });
        let waiting = Arc::clone(&link);
        let builder = thread::Builder::new().name("lode-kept".into());
        let watcher = builder.spawn(move || waiting.wait_for_end());
        let mut attached = Self { link, watcher: None, process: std::process::id() };
        attached.watcher = Some(watcher.map_err(system("start what waits for the owner's end"))?);
        Ok((attached, Told { bytes, is_new: line.contains("\"new\":true") }))
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A child has none of the memory; the connection is its parent's.
            std::mem::forget((Arc::clone(&self.link), self.watcher.take()));
            return;
        }
        self.link.let_go();
        // (Where the owner is gone, that is over, too.)
        let _ = self.link.ask(Frame::of(Kind::Close, 0));
        let _ = self.link.ending.shutdown(Shutdown::Both);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

impl Link {
    fn wait_for_end(&self) {
        loop {
            let mut ended = [PollFd::new(&self.ending, PollFlags::RDHUP)];
            match poll(&mut ended, None) {
                Err(rustix::io::Errno::INTR) => {}
                _ => return self.let_go(),
            }
        }
    }

    /// Nothing that is stored from now on reaches the pool.
    fn let_go(&self) {
        self.maps.end(|lent| lent.let_go(&self.borrowed));
        if let Err(error) = self.borrowed.unmark() {
            tracing::error!(%error, "the pool can't be opened again before this process ends");
        }
    }

    /// The owner does not speak any more, or too late: what it says next would be taken for the answer to something else.
    fn is_gone(&self) -> Cause {
        let _ = self.ending.shutdown(Shutdown::Both);
        self.let_go();
        Cause::OwnerGone
    }

    /// Makes the file so long.
    pub(super) fn grow(&self, to: u64) -> Outcome<()> {
        self.ask(Frame::of(Kind::Grow, to)).map(drop)
    }

    /// Gives a new file its name.
    pub(super) fn name(&self) -> Outcome<()> {
        self.ask(Frame::of(Kind::Name, 0)).map(drop)
    }

    /// Maps what is behind what was mapped last, `len` bytes up to byte `to` of the file.
    pub(super) fn map(&self, to: u64, len: u64) -> Outcome<Lent> {
        let extents = self.ask(Frame::of(Kind::Map, to))?;
        let sum = extents.iter().try_fold(0_u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        if sum != Some(len) {
            return Err(odd());
        }
        let align = [GIANT, HUGE].into_iter().find(|size| len >= *size).unwrap_or(PAGE);
        let how = ViewOptions { writable: true, align, phase: (to - len) % align };
        Ok(self.borrowed.map(&extents, &how)?)
    }

    /// Asks, and waits for the answer; what there is of a list.
    fn ask(&self, frame: Frame) -> Outcome<Vec<(u64, u64)>> {
        let mut stream = self.stream.lock();
        let gone = |_| self.is_gone();
        stream.write_all(&frame.bytes()).map_err(gone)?;
        let mut extents = Vec::new();
        loop {
            let mut bytes = [0; FRAME_BYTES];
            stream.read_exact(&mut bytes).map_err(gone)?;
            let answer = Frame::parse(&bytes).map_err(|_| odd())?;
            match answer.kind {
                Kind::Done if frame.kind != Kind::Map => return Ok(extents),
                Kind::Refused => {
                    let errno = i32::try_from(answer.count).unwrap_or(libc::EIO);
                    return Err(Cause::Number(errno));
                }
                Kind::Extents if frame.kind == Kind::Map && answer.count <= EXTENTS_MOST => {}
                _ => return Err(odd()),
            }
            for _ in 0..answer.count {
                let mut pair = [[0; 8]; EXTENT_BYTES / 8];
                stream.read_exact(pair.as_flattened_mut()).map_err(gone)?;
                let [at, len] = pair.map(u64::from_le_bytes);
                extents.push((at, len));
            }
            if answer.value == 0 {
                return Ok(extents);
            }
            if answer.count == 0 {
                return Err(odd());
            }
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What the owner says makes no sense.
fn odd() -> Cause {
    Cause::Number(libc::EPROTO)
}

/// A line, and the descriptor that comes with it.
fn receive_line(stream: &UnixStream) -> io::Result<(String, Option<OwnedFd>)> {
    let (mut line, mut descriptor) = (Vec::new(), None);
    // One byte after the other: what is behind it is no part of it.
    while line.last() != Some(&b'\n') {
        let mut byte = [0; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [io::IoSliceMut::new(&mut byte)];
        let received = recvmsg(stream, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                passed.for_each(|passed| descriptor = descriptor.take().or(Some(passed)));
            }
        }
        if received.bytes == 0 || line.len() >= LINE_MOST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend(byte);
    }
    Ok((String::from_utf8_lossy(&line).into_owned(), descriptor))
}

/// The number that a line of JSON has of this name.
fn number(line: &str, name: &str) -> Option<u64> {
    let (_, behind) = line.split_once(&format!("\"{name}\":"))?;
    let end = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
    behind.get(..end)?.parse().ok()
}

fn refused(line: &str) -> i32 {
    let errno = number(line, "errno").and_then(|errno| i32::try_from(errno).ok());
    errno.filter(|errno| *errno > 0).unwrap_or(libc::EPROTO)
}

fn words(line: &str) -> String {
    let behind = line.split_once("\"error\":\"").map_or("", |(_, behind)| behind);
    behind.split_once('"').map_or(behind, |(words, _)| words).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_for_what_it_says() {
        let line = "{\"schema\":1,\"ok\":false,\"error\":\"a/b: no\",\"errno\":16}\n";
        assert_eq!((refused(line), words(line)), (16, "a/b: no".to_owned()));
        assert_eq!((refused("{}"), words("{}")), (libc::EPROTO, String::new()));
        let line = "{\"region_bytes\":12,\"bytes\":0,\"errno\":99999999999}";
        assert_eq!((number(line, "region_bytes"), number(line, "bytes")), (Some(12), Some(0)));
        assert_eq!((number(line, "new"), refused(line)), (None, libc::EPROTO));
    }
}
