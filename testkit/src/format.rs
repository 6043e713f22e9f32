//! A second reading of the pool format, written from its description alone, on plain bytes.
//!
//! It finds the sealed structures of an image and seals them again after a change, so that
//! tests reach the code behind the checksums. It trusts the image: it is used on good ones.

use std::collections::BTreeMap;

use lode_pmem::crc32c;

/// Bytes in a line.
pub const LINE: usize = 64;
/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Bytes in an inode.
pub const SLOT: usize = 512;
/// Bytes of text in a TEXT line.
const TEXT_BYTES: usize = 40;
/// Kind of the records that map pages.
const MAP: u8 = 8;
/// Kinds of the records of extended attributes.
const XATTR: u8 = 14;
const XDEL: u8 = 15;

/// What a pool's superblock says.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Pages in the pool.
    pub pages: u64,
    /// Lanes.
    pub lanes: usize,
    /// Record lines of a log page.
    pub log_lines: usize,
    /// Offset of the lane table.
    pub lane_table: usize,
    /// Session.
    pub session: u32,
    /// First page of the checkpoint.
    pub checkpoint: u64,
    /// Session of the checkpoint.
    pub checkpoint_session: u32,
    /// Seed of all seals.
    pub seed: u32,
}

/// Record lines that are chained to each other, with what seals them.
#[derive(Clone, Debug)]
pub struct Run {
    /// Offset of the identity or header before them.
    pub anchor: usize,
    /// Offset of the first record line.
    pub first: usize,
    /// How many of the lines are valid.
    pub valid: usize,
    /// How many there is room for.
    pub room: usize,
    /// Log seed.
    pub seed: u32,
    /// Tag in the seals.
    pub tag: u32,
}

/// The log of an inode.
#[derive(Clone, Debug)]
pub struct Log {
    /// Inode number.
    pub ino: u64,
    /// Its nonce.
    pub nonce: u64,
    /// The inline slots (unless they are dead) and the log pages, in order.
    pub runs: Vec<Run>,
    /// The death line is valid.
    pub dead: bool,
}

/// What of an image has a seal.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The better superblock.
    pub superblock: Superblock,
    /// Logs of all inodes, dead ones included.
    pub logs: Vec<Log>,
    /// Offsets of the headers of table pieces.
    pub pieces: Vec<usize>,
    /// Offsets of the headers of checkpoint segments, and the bytes of the stream behind each.
    pub segments: Vec<(usize, usize)>,
}

/// Little-endian number of 8 bytes.
pub fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"))
}

/// Little-endian number of 4 bytes.
pub fn half(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("4 bytes"))
}

/// Stores a little-endian number of 8 bytes.
pub fn set_word(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Stores a little-endian number of 4 bytes.
pub fn set_half(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The tag of a nonce.
pub fn tag_of(nonce: u64) -> u32 {
    let high = (nonce >> 32).wrapping_mul(0x9E37_79B1) as u32;
    let tag = nonce as u32 ^ high;
    if tag == 0 { 1 } else { tag }
}

/// Makes a superblock copy's checksum right.
pub fn seal_superblock(image: &mut [u8], at: usize) {
    let crc = crc32c(0, &image[at..at + 508]);
    set_half(image, at + 508, crc);
}

fn crc_of(seed: u32, pieces: &[&[u8]]) -> u32 {
    pieces.iter().fold(seed, |crc, piece| crc32c(crc, piece))
}

fn log_seed(seed: u32, numbers: [u64; 4]) -> u32 {
    numbers.iter().fold(seed, |crc, number| crc32c(crc, &number.to_le_bytes()))
}

impl Superblock {
    /// Reads copy A, or copy B (the last page) where its update is higher.
    pub fn read(image: &[u8]) -> Self {
        let copies = [0, image.len() - PAGE];
        let valid = |at: &usize| half(image, at + 508) == crc32c(0, &image[*at..at + 508]);
        let at = copies.into_iter().filter(valid).max_by_key(|at| word(image, at + 192));
        let at = at.expect("a valid superblock");
        Self {
            pages: word(image, at + 72),
            lanes: half(image, at + 80) as usize,
            log_lines: image[at + 91].into(),
            lane_table: half(image, at + 84) as usize * PAGE,
            session: half(image, at + 200),
            checkpoint: word(image, at + 208),
            checkpoint_session: half(image, at + 216),
            seed: crc32c(0, &image[at + 40..at + 72]),
        }
    }

    fn anchor_crc(&self, image: &[u8], at: usize, tag: u32) -> u32 {
        let offset = (at as u64).to_le_bytes();
        crc_of(self.seed, &[&image[at..at + 40], &tag.to_le_bytes(), &offset])
    }

    /// Seals an anchor line by its nonce.
    pub fn seal_anchor(&self, image: &mut [u8], at: usize, nonce: u64) {
        let tag = tag_of(nonce);
        let crc = self.anchor_crc(image, at, tag);
        set_half(image, at + 56, crc);
        set_half(image, at + 60, tag);
    }

    /// Whether an anchor line has this magic and a right seal.
    pub fn is_anchor(&self, image: &[u8], at: usize, magic: &[u8; 4]) -> bool {
        let tag = half(image, at + 60);
        image[at..at + 4] == *magic && half(image, at + 56) == self.anchor_crc(image, at, tag)
    }

    /// Seals a line whose seal covers its place: a watermark or a segment header.
    pub fn seal_placed(&self, image: &mut [u8], at: usize) {
        let tag = half(image, at);
        self.seal_placed_as(image, at, tag);
    }

    /// The same, with another tag.
    pub fn seal_placed_as(&self, image: &mut [u8], at: usize, tag: u32) {
        let offset = (at as u64).to_le_bytes();
        let crc = crc_of(self.seed, &[&image[at..at + 56], &tag.to_le_bytes(), &offset]);
        set_half(image, at + 56, crc);
        set_half(image, at + 60, tag);
    }

    /// The word of a link at offset `at` to a page whose nonce has `tag`.
    pub fn link(&self, at: usize, page: u64, tag: u32, inline_dead: bool) -> u64 {
        let bits = (page & 0x3_FFFF_FFFF)
            | (u64::from(tag & 0xFFFF) << 34)
            | (u64::from(inline_dead) << 50);
        let place = (at as u64).to_le_bytes();
        let check = crc_of(self.seed, &[&place, &bits.to_le_bytes()]) & 0xFFF;
        bits | (u64::from(check) << 52)
    }
}

impl Run {
    /// Offset of a record line.
    pub fn at(&self, line: usize) -> usize {
        self.first + line * LINE
    }

    fn crc(&self, image: &[u8], line: usize) -> u32 {
        let at = self.at(line);
        let (place, tag) = ((at as u64).to_le_bytes(), self.tag.to_le_bytes());
        crc_of(self.seed, &[&place, &image[at..at + 56], &tag])
    }

    fn is_valid(&self, image: &[u8], line: usize) -> bool {
        let at = self.at(line);
        half(image, at + 60) == self.tag && half(image, at + 56) == self.crc(image, line)
    }

    /// Seals the lines from `from` to the last valid one again.
    pub fn seal(&self, image: &mut [u8], from: usize) {
        for line in from..self.valid {
            let crc = self.crc(image, line);
            set_half(image, self.at(line) + 56, crc);
            set_half(image, self.at(line) + 60, self.tag);
        }
    }
}

impl Survey {
    /// Finds what is sealed in a good image. One that was read while it changed may lack anything; a chain in it that leads back
    /// into itself ends.
    pub fn of(image: &[u8]) -> Self {
        let superblock = Superblock::read(image);
        let mut survey =
            Self { superblock, logs: Vec::new(), pieces: Vec::new(), segments: Vec::new() };
        for lane in 0..survey.superblock.lanes {
            let mut link = word(image, survey.superblock.lane_table + lane * 256 + 128);
            while page_of(link) != 0 && survey.pieces.len() < survey.superblock.pages as usize {
                let piece = page_of(link) * PAGE;
                survey.piece(image, piece);
                link = word(image, piece + 40);
            }
        }
        if survey.superblock.checkpoint_session == survey.superblock.session {
            let mut page = survey.superblock.checkpoint;
            while page != 0 && survey.segments.len() < survey.superblock.pages as usize {
                let at = page as usize * PAGE;
                survey.segments.push((at, word(image, at + 24) as usize));
                page = word(image, at + 16);
            }
        }
        survey
    }

    fn piece(&mut self, image: &[u8], piece: usize) {
        self.pieces.push(piece);
        let bytes = PAGE << image[piece + 4];
        for slot in (piece + SLOT..piece + bytes).step_by(SLOT) {
            if self.superblock.is_anchor(image, slot, b"LINO") {
                let log = self.log(image, slot);
                if log.runs.iter().any(|run| run.valid > 0) {
                    self.logs.push(log);
                }
            }
        }
    }

    fn log(&self, image: &[u8], slot: usize) -> Log {
        let (ino, nonce) = (word(image, slot + 8), word(image, slot + 16));
        let seed = log_seed(self.superblock.seed, [ino, nonce, (slot / PAGE) as u64, 0]);
        let mut runs = Vec::new();
        let head = word(image, slot + 40);
        let tag = tag_of(nonce);
        if head >> 50 & 1 == 0 {
            let first = slot + LINE;
            runs.push(Run { anchor: slot, first, valid: 0, room: 6, seed, tag });
        }
        let mut link = head;
        while page_of(link) != 0 && runs.len() < self.superblock.pages as usize {
            let page = page_of(link);
            let at = page * PAGE;
            let own = word(image, at + 24);
            let is_linked = u64::from(tag_of(own) & 0xFFFF) == link >> 34 & 0xFFFF;
            if !is_linked || !self.superblock.is_anchor(image, at, b"LLOG") {
                break;
            }
            let seed =
                log_seed(self.superblock.seed, [ino, nonce, page as u64, tag_of(own).into()]);
            let first = at + LINE;
            let room = self.superblock.log_lines;
            runs.push(Run { anchor: at, first, valid: 0, room, seed, tag: tag_of(own) });
            link = word(image, at + 40);
        }
        for run in &mut runs {
            run.valid = (0..run.room).take_while(|&line| run.is_valid(image, line)).count();
        }
        let death = half(image, slot + 7 * LINE + 60) == tag;
        Log { ino, nonce, runs, dead: death }
    }

    /// Seals the death line of an inode.
    pub fn seal_death(&self, image: &mut [u8], log: &Log) {
        let slot = log.ino as usize * SLOT;
        let at = slot + 7 * LINE;
        let seed = log_seed(self.superblock.seed, [log.ino, log.nonce, (slot / PAGE) as u64, 0]);
        let tag = tag_of(log.nonce);
        let bytes: &[&[u8]] =
            &[&(at as u64).to_le_bytes(), &image[at..at + 56], &tag.to_le_bytes()];
        let crc = crc_of(seed, bytes);
        set_half(image, at + 56, crc);
        set_half(image, at + 60, tag);
    }
}

/// A value of an extended attribute in pages of its own: offset and bytes of what is in each page.
pub type Value = Vec<(usize, usize)>;

impl Log {
    /// The pages of file data that its records name, the last one for each page of the file: those that were given
    /// up without another in their place are among them.
    pub fn pages(&self, image: &[u8]) -> Vec<u64> {
        let lines = self.runs.iter().flat_map(|run| (0..run.valid).map(|line| run.at(line)));
        let maps = lines.filter(|at| image[*at] == MAP);
        let pages = maps.flat_map(|at| {
            let (file_page, page) = (word(image, at + 24), word(image, at + 32));
            (0..u64::from(half(image, at + 20))).map(move |next| (file_page + next, page + next))
        });
        pages.collect::<BTreeMap<u64, u64>>().into_values().collect()
    }

    /// The values of extended attributes that are in pages of their own.
    pub fn values(&self, image: &[u8]) -> Vec<Value> {
        let mut found: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
        found.extend(self.values_ever(image));
        found.into_values().filter(|value| !value.is_empty()).collect()
    }

    /// The same of all attributes that its records set or remove, each with its name, in their order: a snapshot may see
    /// those that were replaced.
    pub fn values_ever(&self, image: &[u8]) -> Vec<(Vec<u8>, Value)> {
        let mut found = Vec::new();
        for run in &self.runs {
            let lines = (0..run.valid).map(|line| run.at(line));
            for at in lines.filter(|at| matches!(image[*at], XATTR | XDEL)) {
                let name_len = usize::from(image[at + 1]);
                let runs = if image[at] == XATTR { usize::from(image[at + 36]) } else { 0 };
                let text = text(image, at + LINE, name_len + 8 * runs);
                let (name, words) = text.split_at(name_len);
                let value = pieces(words, half(image, at + 20) as usize);
                found.push((name.to_vec(), value));
            }
        }
        found
    }
}

/// `len` bytes of text in the TEXT lines from `at` on.
fn text(image: &[u8], at: usize, len: usize) -> Vec<u8> {
    let lines = image[at..].chunks(LINE).take(len.div_ceil(TEXT_BYTES));
    let mut text: Vec<u8> = lines.flat_map(|line| &line[16..16 + TEXT_BYTES]).copied().collect();
    text.truncate(len);
    text
}

/// Where the pieces of a value of `len` bytes are, by the words that name their pages.
fn pieces(words: &[u8], len: usize) -> Value {
    let runs = words.chunks(8).map(|bytes| word(bytes, 0));
    let pages = runs.flat_map(|run| {
        let first = (run & ((1 << 48) - 1)) as usize;
        first..first + (run >> 48) as usize
    });
    let with_bytes = pages.enumerate().map(|(index, page)| {
        let left = len.saturating_sub(index * PAGE);
        (page * PAGE, left.min(PAGE))
    });
    with_bytes.collect()
}

/// The page a link leads to.
pub fn page_of(link: u64) -> usize {
    (link & 0x3_FFFF_FFFF) as usize
}
