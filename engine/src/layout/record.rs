//! Records: one 64-byte line each, with the transaction they are part of.

use lode_pmem::Line;

#[cfg(test)]
mod tests;

use super::bytes::{get_i64, get_u16, get_u32, get_u64, put_i64, put_u64};
use crate::{FILE_MAX, NAME_MAX, PAGE_BYTES, PageClass, XATTR_VALUE_MAX};

/// Bytes of text in a TEXT line.
pub const TEXT_BYTES: usize = 40;
/// Bytes of a name or target in its first line.
const HEAD_TEXT: usize = 16;
/// Bytes of text of an extended attribute: its name, and its value or where that is.
pub const XATTR_TEXT_MAX: usize = 16 * TEXT_BYTES;
/// Runs of pages that hold the value of an extended attribute, at most.
pub const XATTR_RUNS_MAX: usize = XATTR_VALUE_MAX.div_ceil(PAGE_BYTES as usize);
/// Bytes of a run of pages in the text of an extended attribute.
pub const XATTR_RUN_BYTES: usize = 8;
/// Where a record says in which epoch it was born.
const EPOCH_AT: usize = 16;
/// File pages that a mapping may speak of.
const FILE_PAGES: u64 = FILE_MAX / PAGE_BYTES;

const INODE: u8 = 1;
const TEXT: u8 = 2;
const ATTR: u8 = 3;
const LINKS: u8 = 4;
const DEATH: u8 = 5;
const ADD: u8 = 6;
const DEL: u8 = 7;
const MAP: u8 = 8;
const SIZE: u8 = 9;
const UNMAP: u8 = 10;
const JOURNAL: u8 = 11;
const RETIRE: u8 = 12;
const PAD: u8 = 13;
const XATTR: u8 = 14;
const XDEL: u8 = 15;
const EXEMPT: u8 = 16;
const WHOLE: u8 = 17;

/// A transaction: never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Txid {
    /// Session of the pool.
    pub session: u32,
    /// Lane that ran it.
    pub lane: u8,
    /// Sequence in the lane, 40 bits.
    pub sequence: u64,
}

/// What every record line begins with (PROTOCOL F2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its transaction.
    pub txid: Txid,
    /// Which line of the transaction this is.
    pub part: u16,
    /// How many lines the transaction has.
    pub parts: u16,
}

/// What a record says. Times in nanoseconds, sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Body {
    /// First record of an inode.
    Inode {
        mode: u16,
        links: u16,
        uid: u32,
        gid: u32,
        time_ns: i64,
        /// Parent, device numbers, page class or first bytes of a target, by type.
        extra: [u8; HEAD_TEXT],
        /// Bytes of a symbolic link's target in the log.
        text: u8,
    },
    /// Goes on with the text of the record before it.
    Text { len: u8, bytes: [u8; TEXT_BYTES] },
    /// Mode, owner and times.
    Attr { mode: u16, uid: u32, gid: u32, mtime_ns: i64, ctime_ns: i64, atime_ns: i64 },
    /// Link count and a directory's parent.
    Links { links: u32, parent: u64, ctime_ns: i64 },
    /// The last link is gone (PROTOCOL F4).
    Death {
        /// Epoch of the INODE record that it ends; its own where nothing is to be seen of that life.
        born: u32,
        ctime_ns: i64,
    },
    /// A directory entry; where it `replaces`, it ends the one of the same name before it.
    Add {
        name_len: u8,
        replaces: bool,
        tag: u32,
        time_ns: i64,
        ino: u64,
        kind: u8,
        head: [u8; HEAD_TEXT],
    },
    /// Ends the entry that the record (`txid`, `part`) made.
    Del { txid: Txid, part: u16, time_ns: i64 },
    /// Maps pages of the file to pages of the pool.
    Map { class: PageClass, pages: u32, file_page: u64, page: u64, time_ns: i64, size: u64 },
    /// A new size.
    Size { class: PageClass, truncate: bool, size: u64, time_ns: i64 },
    /// A hole.
    Unmap { file_page: u64, pages: u64, time_ns: i64, size: u64 },
    /// An overwrite in place, journalled (PROTOCOL I16).
    Journal { len: u32, file_offset: u64, journal_at: u64, time_ns: i64, home_at: u64 },
    /// All journalled overwrites of earlier transactions are in place.
    Retire,
    /// Fills the end of a page.
    Pad,
    /// An extended attribute; ends an earlier one of the same name. Its text is the name, then
    /// the value or, where there are `runs`, the runs of pages that hold it.
    Xattr { name_len: u8, runs: u8, value_len: u32, crc: u32, time_ns: i64 },
    /// Ends the extended attribute whose name is its text.
    Xdel { name_len: u8, time_ns: i64 },
    /// What these pages hold is not what their checksums and parity say: a program has them mapped.
    Exempt { file_page: u64, pages: u64 },
    /// It is again.
    Whole { file_page: u64, pages: u64 },
}

/// A record line whose seal was right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Its transaction.
    pub header: Header,
    /// The epoch it was born in; 0 of lines that have none.
    pub epoch: u32,
    /// What it says.
    pub body: Body,
}

/// Lines of a record with `len` bytes of name or target.
pub const fn text_lines(len: usize) -> u32 {
    1 + if len > HEAD_TEXT { (len - HEAD_TEXT).div_ceil(TEXT_BYTES) as u32 } else { 0 }
}

impl Header {
    /// Reads the header fields of a line, sealed or not.
    pub fn peek(line: &Line) -> Self {
        let raw = &line.0;
        let sequence = u64::from(get_u32(raw, 8)) | u64::from(raw[7]) << 32;
        Self {
            txid: Txid { session: get_u32(raw, 12), lane: raw[6], sequence },
            part: get_u16(raw, 2),
            parts: get_u16(raw, 4),
        }
    }

    fn put(&self, raw: &mut [u8; 64], kind: u8, aux: u8) {
        let [low, high] = [kind, aux].map(u64::from);
        let Txid { session, lane, sequence } = self.txid;
        let places = u64::from(self.part) << 16 | u64::from(self.parts) << 32;
        let name = u64::from(lane) << 48 | sequence >> 32 << 56;
        put_u64(raw, 0, low | high << 8 | places | name);
        put_u64(raw, 8, sequence & u64::from(u32::MAX) | u64::from(session) << 32);
    }
}

impl Body {
    /// The first 16 bytes of a name or target, padded with zeros.
    pub fn head_of(text: &[u8]) -> [u8; HEAD_TEXT] {
        let mut head = [0; HEAD_TEXT];
        let len = text.len().min(HEAD_TEXT);
        head[..len].copy_from_slice(&text[..len]);
        head
    }

    /// The TEXT that carries bytes of `text` in line `index` (from 1) of this record.
    pub fn text_of(&self, text: &[u8], index: u32) -> Self {
        let from = (self.head_bytes() + (index as usize - 1) * TEXT_BYTES).min(text.len());
        let piece = &text[from..(from + TEXT_BYTES).min(text.len())];
        let mut bytes = [0; TEXT_BYTES];
        bytes[..piece.len()].copy_from_slice(piece);
        Body::Text { len: piece.len() as u8, bytes }
    }

    /// Name of the kind, as in the format description.
    pub const fn name(&self) -> &'static str {
        match self {
            Body::Inode { .. } => "INODE",
            Body::Text { .. } => "TEXT",
            Body::Attr { .. } => "ATTR",
            Body::Links { .. } => "LINKS",
            Body::Death { .. } => "DEATH",
            Body::Add { .. } => "ADD",
            Body::Del { .. } => "DEL",
            Body::Map { .. } => "MAP",
            Body::Size { .. } => "SIZE",
            Body::Unmap { .. } => "UNMAP",
            Body::Journal { .. } => "JOURNAL",
            Body::Retire => "RETIRE",
            Body::Pad => "PAD",
            Body::Xattr { .. } => "XATTR",
            Body::Xdel { .. } => "XDEL",
            Body::Exempt { .. } => "EXEMPT",
            Body::Whole { .. } => "WHOLE",
        }
    }

    /// Lines of the record that begins with this one (itself and its TEXT lines).
    pub const fn lines(&self) -> u32 {
        match self {
            Body::Inode { text, .. } => text_lines(*text as usize),
            Body::Add { name_len, .. } => text_lines(*name_len as usize),
            _ => 1 + self.text_bytes().div_ceil(TEXT_BYTES) as u32,
        }
    }

    /// Bytes of text that this record has.
    pub const fn text_bytes(&self) -> usize {
        match self {
            Body::Inode { text, .. } => *text as usize,
            Body::Add { name_len, .. } | Body::Xdel { name_len, .. } => *name_len as usize,
            Body::Xattr { name_len, runs: 0, value_len, .. } => {
                *name_len as usize + *value_len as usize
            }
            Body::Xattr { name_len, runs, .. } => {
                *name_len as usize + *runs as usize * XATTR_RUN_BYTES
            }
            _ => 0,
        }
    }

    /// Bytes of text that are in the record's first line.
    const fn head_bytes(&self) -> usize {
        match self {
            Body::Inode { .. } | Body::Add { .. } => HEAD_TEXT,
            _ => 0,
        }
    }

    /// Whether its line says in which epoch it was born.
    pub const fn has_epoch(&self) -> bool {
        !matches!(self, Body::Text { .. } | Body::Pad)
    }

    fn epoch_in(&self, raw: &[u8; 64]) -> u32 {
        if self.has_epoch() { get_u32(raw, EPOCH_AT) } else { 0 }
    }

    /// The line of a record that is born in `epoch`, not yet sealed.
    pub fn encode(&self, header: &Header, epoch: u32) -> Line {
        let mut line = Line::ZERO;
        self.encode_in(header, epoch, &mut line);
        line
    }

    /// Makes `line` that. (Word by word, as its seal loads it, and in its place: what is loaded in
    /// larger pieces than it was stored in waits until those stores have left the processor, and so for all that was streamed and
    /// fenced before.)
    pub fn encode_in(&self, header: &Header, epoch: u32, line: &mut Line) {
        *line = Line::ZERO;
        let raw = &mut line.0;
        let (kind, aux, half) = match *self {
            Body::Inode { mode, links, uid, gid, time_ns, extra, text } => {
                put_u64(raw, 24, u64::from(uid) | u64::from(gid) << 32);
                put_i64(raw, 32, time_ns);
                put_head(raw, &extra);
                (INODE, text, u32::from(mode) | u32::from(links) << 16)
            }
            Body::Text { len, bytes } => {
                raw[16..56].copy_from_slice(&bytes);
                (TEXT, len, 0)
            }
            Body::Attr { mode, uid, gid, mtime_ns, ctime_ns, atime_ns } => {
                put_u64(raw, 24, u64::from(uid) | u64::from(gid) << 32);
                put_i64(raw, 32, mtime_ns);
                put_i64(raw, 40, ctime_ns);
                put_i64(raw, 48, atime_ns);
                (ATTR, 0, u32::from(mode))
            }
            Body::Links { links, parent, ctime_ns } => {
                put_u64(raw, 24, parent);
                put_i64(raw, 32, ctime_ns);
                (LINKS, 0, links)
            }
            Body::Death { born, ctime_ns } => {
                put_i64(raw, 32, ctime_ns);
                (DEATH, 0, born)
            }
            Body::Add { name_len, replaces, tag, time_ns, ino, kind, head } => {
                put_i64(raw, 24, time_ns);
                put_u64(raw, 32, ino | u64::from(kind) << 56 | u64::from(replaces) << 60);
                put_head(raw, &head);
                (ADD, name_len, tag)
            }
            Body::Del { txid, part, time_ns } => {
                put_i64(raw, 24, time_ns);
                put_u64(raw, 32, u64::from(txid.lane) << 40 | txid.sequence);
                put_u64(raw, 40, u64::from(part));
                (DEL, 0, txid.session)
            }
            _ => self.encode_file(raw),
        };
        header.put(raw, kind, aux);
        if self.has_epoch() {
            put_u64(raw, EPOCH_AT, u64::from(epoch) | u64::from(half) << 32);
        }
    }

    #[inline]
    fn encode_file(&self, raw: &mut [u8; 64]) -> (u8, u8, u32) {
        match *self {
            Body::Map { class, pages, file_page, page, time_ns, size } => {
                put_u64(raw, 24, file_page);
                put_u64(raw, 32, page);
                put_i64(raw, 40, time_ns);
                put_u64(raw, 48, size);
                (MAP, class as u8, pages)
            }
            Body::Size { class, truncate, size, time_ns } => {
                put_u64(raw, 24, size);
                put_i64(raw, 32, time_ns);
                (SIZE, class as u8, u32::from(truncate))
            }
            Body::Unmap { file_page, pages, time_ns, size } => {
                put_u64(raw, 24, file_page);
                put_u64(raw, 32, pages);
                put_i64(raw, 40, time_ns);
                put_u64(raw, 48, size);
                (UNMAP, 0, 0)
            }
            Body::Journal { len, file_offset, journal_at, time_ns, home_at } => {
                put_u64(raw, 24, file_offset);
                put_u64(raw, 32, journal_at);
                put_i64(raw, 40, time_ns);
                put_u64(raw, 48, home_at);
                (JOURNAL, 0, len)
            }
            Body::Retire => (RETIRE, 0, 0),
            Body::Xattr { name_len, runs, value_len, crc, time_ns } => {
                put_i64(raw, 24, time_ns);
                put_u64(raw, 32, u64::from(crc) | u64::from(runs) << 32);
                (XATTR, name_len, value_len)
            }
            Body::Xdel { name_len, time_ns } => {
                put_i64(raw, 24, time_ns);
                (XDEL, name_len, 0)
            }
            Body::Exempt { file_page, pages } => {
                put_pages(raw, file_page, pages);
                (EXEMPT, 0, 0)
            }
            Body::Whole { file_page, pages } => {
                put_pages(raw, file_page, pages);
                (WHOLE, 0, 0)
            }
            _ => (PAD, 0, 0),
        }
    }
}

/// The first bytes of a name or target.
fn put_head(raw: &mut [u8; 64], head: &[u8; HEAD_TEXT]) {
    put_u64(raw, 40, get_u64(head, 0));
    put_u64(raw, 48, get_u64(head, 8));
}

/// Pages of a file, where UNMAP has them, too.
fn put_pages(raw: &mut [u8; 64], file_page: u64, pages: u64) {
    put_u64(raw, 24, file_page);
    put_u64(raw, 32, pages);
}

impl Parsed {
    /// Reads a line whose seal was right. What is sealed but impossible is an error.
    pub fn parse(line: &Line) -> Result<Self, &'static str> {
        let header = Header::peek(line);
        if header.parts == 0 || header.part >= header.parts {
            return Err("record has an impossible part number");
        }
        let raw = &line.0;
        let aux = raw[1];
        let body = match raw[0] {
            INODE => Body::Inode {
                mode: get_u16(raw, 20),
                links: get_u16(raw, 22),
                uid: get_u32(raw, 24),
                gid: get_u32(raw, 28),
                time_ns: get_i64(raw, 32),
                extra: head_at(raw),
                text: aux,
            },
            TEXT if (1..=TEXT_BYTES as u8).contains(&aux) => {
                let mut bytes = [0; TEXT_BYTES];
                bytes.copy_from_slice(&raw[16..56]);
                Body::Text { len: aux, bytes }
            }
            ATTR => Body::Attr {
                mode: get_u16(raw, 20),
                uid: get_u32(raw, 24),
                gid: get_u32(raw, 28),
                mtime_ns: get_i64(raw, 32),
                ctime_ns: get_i64(raw, 40),
                atime_ns: get_i64(raw, 48),
            },
            LINKS => Body::Links {
                links: get_u32(raw, 20),
                parent: get_u64(raw, 24),
                ctime_ns: get_i64(raw, 32),
            },
            DEATH => Body::Death { born: get_u32(raw, 20), ctime_ns: get_i64(raw, 32) },
            ADD if aux > 0 => {
                let target = get_u64(raw, 32);
                Body::Add {
                    name_len: aux,
                    replaces: target >> 60 & 1 == 1,
                    tag: get_u32(raw, 20),
                    time_ns: get_i64(raw, 24),
                    ino: target & ((1 << 56) - 1),
                    kind: (target >> 56) as u8 & 0xEF,
                    head: head_at(raw),
                }
            }
            DEL => {
                let place = get_u64(raw, 32);
                let txid = Txid {
                    session: get_u32(raw, 20),
                    lane: (place >> 40) as u8,
                    sequence: place & ((1 << 40) - 1),
                };
                Body::Del { txid, part: get_u16(raw, 40), time_ns: get_i64(raw, 24) }
            }
            _ => parse_file(line)?,
        };
        Ok(Self { header, epoch: body.epoch_in(raw), body })
    }
}

fn head_at(raw: &[u8; 64]) -> [u8; HEAD_TEXT] {
    let mut head = [0; HEAD_TEXT];
    head.copy_from_slice(&raw[40..56]);
    head
}

fn parse_file(line: &Line) -> Result<Body, &'static str> {
    let raw = &line.0;
    let class = PageClass::from_number(raw[1]);
    let body = match (raw[0], class) {
        (MAP, Some(class)) => {
            let (pages, file_page, size) = (get_u32(raw, 20), get_u64(raw, 24), get_u64(raw, 48));
            let end = file_page.checked_add(u64::from(pages));
            if pages == 0 || end.is_none_or(|end| end > FILE_PAGES) || size > FILE_MAX {
                return Err("MAP record is impossible");
            }
            let (page, time_ns) = (get_u64(raw, 32), get_i64(raw, 40));
            Body::Map { class, pages, file_page, page, time_ns, size }
        }
        (SIZE, Some(class)) => {
            let size = get_u64(raw, 24);
            if size > FILE_MAX {
                return Err("SIZE record is impossible");
            }
            let truncate = get_u32(raw, 20) & 1 == 1;
            Body::Size { class, truncate, size, time_ns: get_i64(raw, 32) }
        }
        (UNMAP, _) => {
            let (file_page, pages, size) = (get_u64(raw, 24), get_u64(raw, 32), get_u64(raw, 48));
            let end = file_page.checked_add(pages);
            if end.is_none_or(|end| end > FILE_PAGES) || size > FILE_MAX {
                return Err("UNMAP record is impossible");
            }
            Body::Unmap { file_page, pages, time_ns: get_i64(raw, 40), size }
        }
        (JOURNAL, _) => {
            let (len, file_offset) = (get_u32(raw, 20), get_u64(raw, 24));
            let end = file_offset.checked_add(u64::from(len));
            if len == 0 || end.is_none_or(|end| end > FILE_MAX) {
                return Err("JOURNAL record is impossible");
            }
            let (journal_at, home_at) = (get_u64(raw, 32), get_u64(raw, 48));
            Body::Journal { len, file_offset, journal_at, time_ns: get_i64(raw, 40), home_at }
        }
        (RETIRE, _) => Body::Retire,
        (XATTR, _) => return parse_xattr(raw),
        (EXEMPT | WHOLE, _) => return parse_exempt(raw),
        (XDEL, _) if raw[1] > 0 => Body::Xdel { name_len: raw[1], time_ns: get_i64(raw, 24) },
        (PAD, _) => Body::Pad,
        _ => return Err("record of an unknown kind"),
    };
    Ok(body)
}

fn parse_exempt(raw: &[u8; 64]) -> Result<Body, &'static str> {
    let (file_page, pages) = (get_u64(raw, 24), get_u64(raw, 32));
    let end = file_page.checked_add(pages);
    if pages == 0 || end.is_none_or(|end| end > FILE_PAGES) {
        return Err("EXEMPT or WHOLE record is impossible");
    }
    match raw[0] {
        EXEMPT => Ok(Body::Exempt { file_page, pages }),
        _ => Ok(Body::Whole { file_page, pages }),
    }
}

fn parse_xattr(raw: &[u8; 64]) -> Result<Body, &'static str> {
    let (value_len, runs) = (get_u32(raw, 20), get_u32(raw, 36));
    let xattr = Body::Xattr {
        name_len: raw[1],
        runs: runs as u8,
        value_len,
        crc: get_u32(raw, 32),
        time_ns: get_i64(raw, 24),
    };
    let possible = raw[1] > 0
        && value_len as usize <= XATTR_VALUE_MAX
        && runs as usize <= XATTR_RUNS_MAX
        && xattr.text_bytes() <= XATTR_TEXT_MAX;
    if possible { Ok(xattr) } else { Err("XATTR record is impossible") }
}

const _: () = assert!(NAME_MAX + XATTR_RUNS_MAX * XATTR_RUN_BYTES <= XATTR_TEXT_MAX);
