//! A program that is lent memory, as small as one can be: it speaks the protocol.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lode_loan::{CHUNK_BYTES, HEAD_BYTES, Head, Kind, Method, Refusal, hello};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The control socket of what is served or mounted at `path`, a clean path.
pub fn socket(path: &Path) -> std::path::PathBuf {
    use lode_fuse::control::place;
    place::socket(&place::directory(), &path.canonicalize().unwrap())
}

/// A session.
pub struct Program {
    pub stream: UnixStream,
    pub pool: File,
    pub line: String,
}

impl Program {
    /// Connects to the owner of what is at `path`.
    pub fn connect(path: &Path, method: Method) -> Self {
        let stream = UnixStream::connect(socket(path)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        (&stream).write_all(hello(method).as_bytes()).unwrap();
        let (mut bytes, mut space) =
            ([0; 4096], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let mut pool = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                pool = files.next();
            }
        }
        let line = String::from_utf8(bytes[..got.bytes].to_vec()).unwrap();
        let pool = pool.unwrap_or_else(|| panic!("no descriptor came with {line}"));
        Self { stream, pool: File::from(pool), line }
    }

    pub fn say(&mut self, kind: Kind, count: u32, list: &[u64]) {
        let mut bytes = Head { kind, count, tag: 7 }.bytes().to_vec();
        bytes.extend(list.iter().flat_map(|chunk| chunk.to_le_bytes()));
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn hear(&mut self) -> (Head, Vec<u64>) {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head).unwrap();
        let head = Head::parse(&head).unwrap();
        let mut list = vec![0; head.list_bytes()];
        self.stream.read_exact(&mut list).unwrap();
        let list = list.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        (head, list.collect())
    }

    /// Takes so many chunks.
    pub fn take(&mut self, count: usize) -> Result<Vec<u64>, Refusal> {
        let mut all = Vec::new();
        while all.len() < count {
            self.say(Kind::Take, (count - all.len()) as u32, &[]);
            let (head, list) = self.hear();
            if head.kind != Kind::Granted {
                return Err(Refusal::of_number(head.count).unwrap());
            }
            all.extend(list);
        }
        Ok(all)
    }

    pub fn unlock(&self, chunk: u64) {
        use std::os::fd::AsFd;
        let from = chunk * CHUNK_BYTES;
        lode_pmem::loan::unlock(self.pool.as_fd(), from..from + CHUNK_BYTES).unwrap();
    }
}
