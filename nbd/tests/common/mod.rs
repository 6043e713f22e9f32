//! A small client that says exactly what a test wants, and servers for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

pub mod memory;
pub mod tls;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_nbd::{Builder, Export, Limits, Server};
use memory::Memory;
use tempfile::TempDir;

pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED: u32 = 8;
pub const LIST_META: u32 = 9;
pub const SET_META: u32 = 10;

pub const ACK: u32 = 1;
pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_TLS_REQD: u32 = 0x8000_0005;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_SHUTDOWN: u32 = 0x8000_0007;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const ZERO: u16 = 6;
pub const STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const EOVERFLOW: u32 = 75;
pub const ENOTSUP: u32 = 95;
pub const ESHUTDOWN: u32 = 108;

/// A number in the order of the wire.
pub fn wire(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).rev().map(|byte| (number >> (8 * byte)) as u8).collect()
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A string with its length in front.
pub fn text(text: &str) -> Vec<u8> {
    [wire(text.len() as u64, 4), text.as_bytes().to_vec()].concat()
}

/// Data of INFO and GO.
pub fn choice(name: &str, wishes: &[u16]) -> Vec<u8> {
    let mut data = [text(name), wire(wishes.len() as u64, 2)].concat();
    wishes.iter().for_each(|wish| data.extend(wire(u64::from(*wish), 2)));
    data
}

/// Data of the options about contexts.
pub fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = [text(name), wire(queries.len() as u64, 4)].concat();
    queries.iter().for_each(|query| data.extend(text(query)));
    data
}

/// A server of one device `disk`, with a socket in a directory of its own.
pub struct Serving {
    pub server: Option<Server>,
    pub disk: Arc<Memory>,
    pub socket: PathBuf,
    directory: TempDir,
}

impl Serving {
    pub fn of(disk: Memory) -> Self {
        Self::with(disk, |builder| builder)
    }

    pub fn with(disk: Memory, how: impl FnOnce(Builder) -> Builder) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd.sock");
        let disk = Arc::new(disk);
        let export = Export::new("disk", disk.clone()).described("what tests use");
        let limits = Limits { workers: 2, ..Limits::default() };
        let builder = Server::builder().export(export).unix(&socket).limits(limits);
        let server = Some(how(builder.default_export("disk")).start().unwrap());
        Self { server, disk, socket, directory }
    }

    pub fn connect(&self) -> Client {
        Client::greeted(UnixStream::connect(&self.socket).unwrap())
    }

    /// A client that gets simple replies.
    pub fn simple(&self) -> Client {
        self.connect().go()
    }

    /// A client that gets chunks, and block status.
    pub fn structured(&self) -> Client {
        let mut client = self.connect();
        assert_eq!(client.option(STRUCTURED, b"").kinds(), [ACK]);
        let set = client.option(SET_META, &contexts("", &["base:allocation"]));
        assert_eq!(set.kinds(), [4, ACK]);
        client.go()
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

/// What came for an option: kinds and data.
#[derive(Debug)]
pub struct Replies(pub Vec<(u32, Vec<u8>)>);

impl Replies {
    pub fn kinds(&self) -> Vec<u32> {
        self.0.iter().map(|(kind, _)| *kind).collect()
    }
}

/// A chunk: whether it is the last, its kind and what is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk(pub bool, pub u16, pub Vec<u8>);

impl Chunk {
    /// The number of an error.
    pub fn error(&self) -> u32 {
        assert!(self.1 & 0x8000 != 0 && self.0, "{self:?}");
        number(&self.2[..4]) as u32
    }
}

pub struct Client<S = UnixStream> {
    pub stream: S,
    next: u64,
}

impl Client {
    pub fn silent(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Self::of(stream)
    }

    /// Reads the greeting and answers it.
    pub fn greeted(stream: UnixStream) -> Self {
        Self::silent(stream).greet()
    }
}

impl<S: Read + Write> Client<S> {
    pub fn of(stream: S) -> Self {
        Self { stream, next: 1 }
    }

    pub fn greet(mut self) -> Self {
        assert_eq!(self.take(18), b"NBDMAGICIHAVEOPT\x00\x03");
        self.send(&wire(3, 4));
        self
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.stream.read_exact(&mut taken).unwrap();
        taken
    }

    /// Whether the server has closed the connection, and said nothing more.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let header = [wire(u64::from(option), 4), wire(data.len() as u64, 4)].concat();
        self.send(&[b"IHAVEOPT", &header[..], data].concat());
    }

    pub fn option(&mut self, option: u32, data: &[u8]) -> Replies {
        self.send_option(option, data);
        self.replies(option)
    }

    pub fn replies(&mut self, option: u32) -> Replies {
        let mut replies = Vec::new();
        loop {
            let header = self.take(20);
            assert_eq!(&header[..8], b"\x00\x03\xe8\x89\x04\x55\x65\xa9");
            assert_eq!(number(&header[8..12]), u64::from(option));
            let kind = number(&header[12..16]) as u32;
            replies.push((kind, self.take(number(&header[16..]) as usize)));
            if kind == ACK || kind & 1 << 31 != 0 {
                return Replies(replies);
            }
        }
    }

    /// Uses the default export.
    pub fn go(mut self) -> Self {
        let replies = self.option(GO, &choice("", &[3]));
        assert_eq!(replies.kinds().last(), Some(&ACK), "{replies:?}");
        self
    }

    /// Sends a request, and returns its cookie.
    pub fn send_request(
        &mut self,
        command: u16,
        flags: u16,
        at: u64,
        len: u32,
        data: &[u8],
    ) -> u64 {
        self.next += 0x0101_0101;
        let bytes = request(command, flags, self.next, at, len, data);
        self.send(&bytes);
        self.next
    }

    /// A request that gets a simple reply: its error, and bytes of a read.
    pub fn simple(
        &mut self,
        command: u16,
        flags: u16,
        at: u64,
        len: u32,
        data: &[u8],
    ) -> (u32, Vec<u8>) {
        let cookie = self.send_request(command, flags, at, len, data);
        let error = self.simple_reply(cookie);
        let bytes = if command == READ && error == 0 { self.take(len as usize) } else { vec![] };
        (error, bytes)
    }

    pub fn simple_reply(&mut self, cookie: u64) -> u32 {
        let reply = self.take(16);
        assert_eq!((&reply[..4], number(&reply[8..])), (&b"\x67\x44\x66\x98"[..], cookie));
        number(&reply[4..8]) as u32
    }

    /// A request that gets chunks.
    pub fn chunks(
        &mut self,
        command: u16,
        flags: u16,
        at: u64,
        len: u32,
        data: &[u8],
    ) -> Vec<Chunk> {
        let cookie = self.send_request(command, flags, at, len, data);
        let mut chunks = Vec::new();
        loop {
            let header = self.take(20);
            assert_eq!((&header[..4], number(&header[8..16])), (&b"\x66\x8e\x33\xef"[..], cookie));
            let payload = self.take(number(&header[16..]) as usize);
            let done = header[5] == 1;
            chunks.push(Chunk(done, number(&header[6..8]) as u16, payload));
            if done {
                return chunks;
            }
        }
    }

    /// A request that fails, of a client that gets chunks.
    pub fn error(&mut self, command: u16, flags: u16, at: u64, len: u32, data: &[u8]) -> u32 {
        let chunks = self.chunks(command, flags, at, len, data);
        assert_eq!(chunks.len(), 1, "{chunks:?}");
        chunks[0].error()
    }

    /// Writes, which succeeds.
    pub fn write(&mut self, at: u64, data: &[u8]) {
        assert_eq!(self.simple(WRITE, 0, at, data.len() as u32, data).0, 0);
    }
}

pub fn request(command: u16, flags: u16, cookie: u64, at: u64, len: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire(0x2560_9513, 4);
    bytes.extend(wire(u64::from(flags), 2));
    bytes.extend(wire(u64::from(command), 2));
    bytes.extend(wire(cookie, 8));
    bytes.extend(wire(at, 8));
    bytes.extend(wire(u64::from(len), 4));
    bytes.extend(data);
    bytes
}

/// Waits until something is so.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < end, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
