//! A client of NBD, no more of one than tests need: on a Unix socket, simple replies.
#![allow(clippy::big_endian_bytes)] // The protocol's.

use std::io::{Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A request to read.
pub const READ: u16 = 0;
/// A request to write.
pub const WRITE: u16 = 1;
/// A request to make durable what was answered.
pub const FLUSH: u16 = 3;
/// Of a write: it is durable when it is answered.
pub const FUA: u16 = 1;
/// The option that chooses an export, and replies to it.
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;

/// A request, but for its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// [`READ`], [`WRITE`], [`FLUSH`].
    pub kind: u16,
    /// [`FUA`], or 0.
    pub flags: u16,
    /// By which its answer is known.
    pub cookie: u64,
    /// Offset in bytes.
    pub at: u64,
    /// Bytes.
    pub len: u32,
}

/// A client of one export.
pub struct Client {
    /// The connection.
    pub stream: UnixStream,
    /// Bytes that the export has.
    pub size: u64,
}

impl Client {
    /// Comes to a server, and chooses an export.
    ///
    /// # Errors
    /// Those of the socket, and where there is no such export.
    pub fn connect(socket: &Path, export: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Both flags; then the export by its name, and whatever its blocks are.
        stream.write_all(&3u32.to_be_bytes())?;
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend(export.as_bytes());
        data.extend([0, 1, 0, 3]);
        stream.write_all(b"IHAVEOPT")?;
        stream.write_all(&GO.to_be_bytes())?;
        stream.write_all(&(data.len() as u32).to_be_bytes())?;
        stream.write_all(&data)?;
        let mut size = 0;
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let word = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().unwrap());
            let mut told = vec![0; word(16) as usize];
            stream.read_exact(&mut told)?;
            match (word(12), told.first_chunk()) {
                (ACK, _) => break,
                (INFO, Some([0, 0])) => {
                    size = u64::from_be_bytes(*told[2..].first_chunk().unwrap())
                }
                (INFO, _) => {}
                _ => return Err(Error::other("there is no such export")),
            }
        }
        Ok(Self { stream, size })
    }

    /// Asks, and sends these bytes with it.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn ask(&mut self, request: Request, bytes: &[u8]) -> Result<()> {
        let Request { kind, flags, cookie, at, len } = request;
        let mut words = 0x2560_9513_u32.to_be_bytes().to_vec();
        words.extend(flags.to_be_bytes());
        words.extend(kind.to_be_bytes());
        words.extend(cookie.to_be_bytes());
        words.extend(at.to_be_bytes());
        words.extend(len.to_be_bytes());
        words.extend(bytes);
        self.stream.write_all(&words)
    }

    /// Asks for a write.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn write(&mut self, cookie: u64, at: u64, bytes: &[u8], fua: bool) -> Result<()> {
        let flags = if fua { FUA } else { 0 };
        let request = Request { kind: WRITE, flags, cookie, at, len: bytes.len() as u32 };
        self.ask(request, bytes)
    }

    /// Asks for a flush.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn flush(&mut self, cookie: u64) -> Result<()> {
        self.ask(Request { kind: FLUSH, flags: 0, cookie, at: 0, len: 0 }, &[])
    }

    /// The cookie of what was answered, which was done.
    ///
    /// # Errors
    /// Those of the socket; of kind `Other` the server's own, whose request has failed.
    pub fn answer(&mut self) -> Result<u64> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        match u32::from_be_bytes(*reply[4..].first_chunk().unwrap()) {
            0 => Ok(u64::from_be_bytes(*reply.last_chunk().unwrap())),
            error => Err(Error::other(format!("the server answers with error {error}"))),
        }
    }

    /// Takes an answer, of a request that has failed: its error.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn refusal(&mut self) -> Result<u32> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        Ok(u32::from_be_bytes(*reply[4..].first_chunk().unwrap()))
    }

    /// Reads, where nothing else is under way.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn read(&mut self, at: u64, len: usize) -> Result<Vec<u8>> {
        self.ask(Request { kind: READ, flags: 0, cookie: 0, at, len: len as u32 }, &[])?;
        self.answer()?;
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
