//! A client that goes through what it has said and what it has heard, side by side: each option and request has its
//! reply and no other, errors are those of the protocol, and what is read is what was written.

use crate::bytes::Bytes;
use crate::disk::fresh;
use crate::session::Encryption;

const REPLY: u64 = 0x0003_e889_0455_65a9;
const OPTION: u64 = 0x4948_4156_454f_5054;
const REQUEST: u64 = 0x2560_9513;
const SIMPLE: u64 = 0x6744_6698;
const CHUNK: u64 = 0x668e_33ef;
const ACK: u64 = 1;
const TLS_REQUIRED: u64 = (1 << 31) + 5;
const ERRORS: [u64; 8] = [1, 5, 12, 22, 28, 75, 95, 108];
const READ: u64 = 0;
const WRITE: u64 = 1;
const DISCONNECT: u64 = 2;
const ZEROES: u64 = 6;
const STATUS: u64 = 7;

/// What a client knows.
pub struct Reference {
    /// What the device holds.
    bytes: Vec<u8>,
    /// A write to it may be done in part.
    bad: bool,
    /// Nobody knows what it holds.
    unknown: bool,
    encryption: Encryption,
    no_zeroes: bool,
    structured: bool,
}

/// One request.
struct Asked {
    command: u64,
    cookie: u64,
    at: u64,
    len: u64,
}

impl Asked {
    /// Where its range lies.
    fn range(&self) -> std::ops::Range<usize> {
        self.at as usize..(self.at + self.len) as usize
    }
}

impl Reference {
    /// Of a device of so many bytes.
    pub fn new(size: u64, encryption: Encryption, bad: bool) -> Self {
        let bytes = fresh(size);
        Self { bytes, bad, unknown: false, encryption, no_zeroes: false, structured: false }
    }
}

/// Goes through a conversation, which the server has `ended` or not.
pub fn check(mut reference: Reference, said: &[u8], heard: &[u8], ended: bool) {
    let (mut said, mut heard) = (Bytes(said), Bytes(heard));
    assert_eq!(heard.take(18), Some(&b"NBDMAGICIHAVEOPT\0\x03"[..]));
    let whole = reference.handshake(&mut said, &mut heard);
    // What is cut off is cut off at the end of a reply, or the server has ended it.
    assert!(whole.is_some() || ended || heard.0.is_empty(), "half a reply");
    assert!(whole.is_none() || heard.0.is_empty(), "more was said than was asked");
}

impl Reference {
    /// `None` where bytes end before all was said or heard; as in all below.
    fn handshake(&mut self, said: &mut Bytes<'_>, heard: &mut Bytes<'_>) -> Option<()> {
        self.no_zeroes = said.number(4)? & 2 != 0;
        loop {
            let (magic, option, len) = (said.number(8)?, said.number(4)?, said.number(4)?);
            if magic != OPTION {
                return Some(());
            }
            said.take(len as usize);
            if option == 1 {
                self.old_start(heard)?;
                return self.requests(said, heard);
            }
            let kind = self.replies(option, heard)?;
            match (option, kind) {
                (2, ACK) => return Some(()),
                (5, ACK) => {
                    assert!(
                        ![Encryption::Impossible, Encryption::Begun].contains(&self.encryption)
                    );
                    (self.encryption, self.structured) = (Encryption::Begun, false);
                }
                (7, ACK) => return self.requests(said, heard),
                (8, ACK) => self.structured = true,
                _ => {}
            }
        }
    }

    fn old_start(&self, heard: &mut Bytes<'_>) -> Option<()> {
        let size = heard.number(8)?;
        assert!(self.encryption != Encryption::Required, "an export before encryption");
        assert_eq!(size, self.bytes.len() as u64);
        assert!(heard.number(2)? & 1 == 1);
        if !self.no_zeroes {
            assert_eq!(heard.take(124)?, [0; 124]);
        }
        Some(())
    }

    /// The kind of the last reply to an option.
    fn replies(&self, option: u64, heard: &mut Bytes<'_>) -> Option<u64> {
        loop {
            let (magic, of, kind) = (heard.number(8)?, heard.number(4)?, heard.number(4)?);
            assert_eq!((magic, of), (REPLY, option));
            let len = heard.number(4)?;
            let data = heard.take(len as usize)?;
            let may = [ACK, TLS_REQUIRED, (1 << 31) + 3, (1 << 31) + 7, (1 << 31) + 9];
            assert!(
                self.encryption != Encryption::Required || may.contains(&kind),
                "reply {kind:#x} before encryption"
            );
            match kind {
                ACK => assert!(data.is_empty()),
                2..=4 => continue,
                _ => assert!(kind > 1 << 31 && std::str::from_utf8(data).is_ok()),
            }
            let begins = [2, 5].contains(&option);
            assert!(self.encryption != Encryption::Required || kind != ACK || begins);
            return Some(kind);
        }
    }

    fn requests(&mut self, said: &mut Bytes<'_>, heard: &mut Bytes<'_>) -> Option<()> {
        loop {
            let (magic, _, command) = (said.number(4)?, said.number(2)?, said.number(2)?);
            if magic != REQUEST {
                return Some(());
            }
            let (cookie, at, len) = (said.number(8)?, said.number(8)?, said.number(4)?);
            let asked = Asked { command, cookie, at, len };
            if command == DISCONNECT {
                return Some(());
            }
            let data = if command == WRITE { said.take(len as usize) } else { None };
            let done = self.reply(&asked, heard)?;
            match command {
                WRITE if !done => self.unknown |= self.bad,
                WRITE => self.bytes[asked.range()].copy_from_slice(data?),
                ZEROES if done => self.bytes[asked.range()].fill(0),
                _ => {}
            }
        }
    }

    /// Whether it was done.
    fn reply(&self, asked: &Asked, heard: &mut Bytes<'_>) -> Option<bool> {
        if heard.number(4)? == SIMPLE {
            let (error, cookie) = (heard.number(4)?, heard.number(8)?);
            assert_eq!(cookie, asked.cookie);
            assert!(error == 0 || ERRORS.contains(&error), "error {error}");
            assert!(!self.structured || (error == 0 && ![READ, STATUS].contains(&asked.command)));
            if asked.command == READ && error == 0 {
                let bytes = heard.take(asked.len as usize)?;
                assert!(
                    self.unknown || bytes == &self.bytes[asked.range()],
                    "something else is read"
                );
            }
            return Some(error == 0);
        }
        assert!(self.structured);
        self.chunks(asked, heard)
    }

    /// The same of a reply in chunks, behind the first one's magic.
    fn chunks(&self, asked: &Asked, heard: &mut Bytes<'_>) -> Option<bool> {
        let mut read = Vec::new();
        let mut failed = false;
        loop {
            let (flags, kind, cookie) = (heard.number(2)?, heard.number(2)?, heard.number(8)?);
            assert!(flags <= 1 && cookie == asked.cookie);
            let len = heard.number(4)?;
            let mut payload = Bytes(heard.take(len as usize)?);
            match (kind, asked.command) {
                (0, _) => assert!(payload.0.is_empty() && flags == 1),
                (1, READ) => read.push((payload.number(8)?, payload.0.to_vec())),
                (2, READ) => {
                    let (at, len) = (payload.number(8)?, payload.number(4)?);
                    assert!(payload.0.is_empty() && len <= asked.len);
                    read.push((at, vec![0; len as usize]));
                }
                (5, STATUS) => assert!(payload.number(4)? == 1 && is_status(asked, payload)),
                _ => {
                    assert!(kind >> 15 == 1 && flags == 1, "chunk {kind} of {}", asked.command);
                    assert!(ERRORS.contains(&payload.number(4)?));
                    failed = true;
                }
            }
            if flags == 1 {
                break;
            }
            assert_eq!(heard.number(4)?, CHUNK);
        }
        if asked.command == READ && !failed {
            self.compare(asked, &mut read);
        }
        Some(!failed)
    }

    /// Each byte is told once, and is what is there.
    fn compare(&self, asked: &Asked, read: &mut [(u64, Vec<u8>)]) {
        read.sort_by_key(|(at, _)| *at);
        let mut next = asked.at;
        for (at, bytes) in read {
            assert_eq!(*at, next, "a gap, or told twice");
            next += bytes.len() as u64;
            let there = &self.bytes[*at as usize..next as usize];
            assert!(self.unknown || bytes == there, "something else is read");
        }
        assert!(next == asked.at + asked.len);
    }
}

/// Whether extents are some, and lie within.
fn is_status(asked: &Asked, mut extents: Bytes<'_>) -> bool {
    let mut all = 0;
    while let (Some(len), Some(flags)) = (extents.number(4), extents.number(4)) {
        assert!(len > 0 && flags <= 3);
        all += len;
    }
    extents.0.is_empty() && all > 0 && all <= asked.len
}
