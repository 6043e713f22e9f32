//! Seals: a CRC32C that knows where and when a line is, and the tag of its life
//! (PROTOCOL F1; self-certifying log entries after NOVA-Fortis 4.2).

use lode_pmem::{Line, crc32c};

use super::bytes::{get_u64, put_u32, put_u64};

/// Payload bytes of a sealed line.
const PAYLOAD: usize = 56;
/// Offset of the seal in a line. A seal of 0 is that of no line.
pub const SEAL_AT: u64 = PAYLOAD as u64;
/// Sealed bytes of an anchor line.
const ANCHOR: usize = 40;

/// What all seals of one pool begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSeed(u32);

/// What the seals of one log page (or inline log) begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogSeed {
    crc: u32,
    tag: u32,
}

/// The 32-bit tag of a nonce; never 0, different for different nonces of one session.
#[inline]
pub const fn tag_of(nonce: u64) -> u32 {
    let tag = (nonce as u32) ^ ((nonce >> 32) as u32).wrapping_mul(0x9E37_79B1);
    if tag == 0 { 1 } else { tag }
}

#[inline]
const fn join(crc: u32, tag: u32) -> u64 {
    crc as u64 | (tag as u64) << 32
}

impl PoolSeed {
    /// The seed of a pool.
    pub fn new(uuid: &[u8; 16], secret: &[u8; 16]) -> Self {
        Self(crc32c(crc32c(0, uuid), secret))
    }

    /// The seed of one page of a log (`page_nonce` 0: of the inline log in `page`).
    pub fn log(&self, ino: u64, nonce: u64, page: u64, page_nonce: u64) -> LogSeed {
        let mut bytes = [0u8; 32];
        put_u64(&mut bytes, 0, ino);
        put_u64(&mut bytes, 8, nonce);
        put_u64(&mut bytes, 16, page);
        if page_nonce == 0 {
            return LogSeed { crc: crc32c(self.0, &bytes), tag: tag_of(nonce) };
        }
        self.log_by_tag(ino, nonce, page, tag_of(page_nonce))
    }

    /// The seed of a log page whose nonce has this tag: enough to know a record by, when
    /// the page's header is lost.
    pub fn log_by_tag(&self, ino: u64, nonce: u64, page: u64, tag: u32) -> LogSeed {
        let mut bytes = [0u8; 32];
        put_u64(&mut bytes, 0, ino);
        put_u64(&mut bytes, 8, nonce);
        put_u64(&mut bytes, 16, page);
        put_u64(&mut bytes, 24, u64::from(tag));
        LogSeed { crc: crc32c(self.0, &bytes), tag }
    }

    /// The seal of an anchor line at offset `at` whose own nonce is `nonce`.
    pub fn anchor(&self, line: &Line, nonce: u64, at: u64) -> u64 {
        let tag = tag_of(nonce);
        join(self.fixed(&line.0[..ANCHOR], tag, at), tag)
    }

    /// The seal of a watermark or checkpoint line at offset `at`.
    pub fn line(&self, line: &Line, tag: u32, at: u64) -> u64 {
        join(self.fixed(&line.0[..PAYLOAD], tag, at), tag)
    }

    /// The 12-bit check of the link word at offset `at` with these low 52 bits.
    pub fn link_check(&self, at: u64, low: u64) -> u16 {
        let mut bytes = [0u8; 16];
        put_u64(&mut bytes, 0, at);
        put_u64(&mut bytes, 8, low);
        (crc32c(self.0, &bytes) & 0xfff) as u16
    }

    fn fixed(&self, payload: &[u8], tag: u32, at: u64) -> u32 {
        let mut tail = [0u8; 12];
        put_u32(&mut tail, 0, tag);
        put_u64(&mut tail, 4, at);
        crc32c(crc32c(self.0, payload), &tail)
    }
}

impl LogSeed {
    /// The tag that every line of this page carries.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The seal of `line` at offset `at` in the pool.
    #[inline]
    pub fn seal(&self, at: u64, line: &Line) -> u64 {
        // (In pieces: copied together, they would wait for the stores that made them.)
        let crc = crc32c(self.crc, &at.to_le_bytes());
        let crc = crc32c(crc, &line.0[..PAYLOAD]);
        join(crc32c(crc, &self.tag.to_le_bytes()), self.tag)
    }

    /// Whether `line` bears the tag of this page, sealed or not.
    pub fn is_tag_of(&self, line: &Line) -> bool {
        (stored_seal(line) >> 32) as u32 == self.tag
    }

    /// Whether `line` bears the right seal for offset `at`.
    #[inline]
    pub fn holds(&self, at: u64, line: &Line) -> bool {
        let stored = stored_seal(line);
        stored != 0 && (stored >> 32) as u32 == self.tag && stored == self.seal(at, line)
    }
}

/// The seal bytes of a line, right or wrong.
#[inline]
pub fn stored_seal(line: &Line) -> u64 {
    get_u64(&line.0, PAYLOAD)
}

/// Puts a seal on a line.
#[inline]
pub fn put_seal(line: &mut Line, seal: u64) {
    put_u64(&mut line.0, PAYLOAD, seal);
}
