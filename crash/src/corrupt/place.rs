//! What lies where in a pool, found by the second reading of the format that tests have.

use std::collections::{BTreeMap, HashSet};

use lode_engine::{Ino, InodeDump, mode};
use lode_testkit::format::{Log, PAGE, SLOT, Survey, half, word};

/// A kind of structure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Superblock,
    Locator,
    /// Watermarks of lanes, and their links to inode tables.
    Lane,
    /// The header of a piece of inode table.
    Table,
    Identity,
    /// A record line, by its kind.
    Record(u8),
    LogPage,
    /// Room for records behind the end of a log.
    Tail,
    /// What is left of inodes that have ended.
    Dead,
    Checkpoint,
    /// What a checkpoint says of snapshots.
    Manifest,
    Crc,
    Parity,
    Data,
    /// File data at level `full` that programs had mapped to store into: exempt from checksums.
    Mapped,
    /// New bytes of an overwrite that may not be at home yet.
    Journal,
    /// An extended attribute's value in pages of its own.
    Value,
    /// The target of a symbolic link in pages of its own.
    Target,
    /// Room for inodes.
    Slot,
    /// Anything else.
    Free,
}

const RECORDS: [&str; 18] = [
    "record", "INODE", "TEXT", "ATTR", "LINKS", "DEATH", "ADD", "DEL", "MAP", "SIZE", "UNMAP",
    "JOURNAL", "RETIRE", "PAD", "XATTR", "XDEL", "EXEMPT", "WHOLE",
];

impl Kind {
    /// Its name: records have those of the format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Superblock => "superblock",
            Kind::Locator => "locator",
            Kind::Lane => "lane",
            Kind::Table => "table header",
            Kind::Identity => "identity",
            Kind::Record(kind) => RECORDS.get(usize::from(kind)).copied().unwrap_or(RECORDS[0]),
            Kind::LogPage => "log page header",
            Kind::Tail => "log room",
            Kind::Dead => "dead inode",
            Kind::Checkpoint => "checkpoint",
            Kind::Manifest => "manifest",
            Kind::Crc => "checksum",
            Kind::Parity => "parity",
            Kind::Data => "data",
            Kind::Mapped => "mapped data",
            Kind::Journal => "journal",
            Kind::Value => "value",
            Kind::Target => "target",
            Kind::Slot => "free slot",
            Kind::Free => "free",
        }
    }

    /// Whether there are two copies of it, where metadata has two.
    pub(super) fn has_twin(self) -> bool {
        matches!(
            self,
            Kind::Lane
                | Kind::Table
                | Kind::Identity
                | Kind::Record(_)
                | Kind::LogPage
                | Kind::Tail
                | Kind::Dead
                | Kind::Slot
        )
    }
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) at: u64,
    pub(super) len: u64,
    /// Whose it is; 0 for nobody's.
    pub(super) ino: Ino,
}

/// A transaction: session, and lane and sequence.
pub(super) type Txid = (u32, u64);

/// A line of a log: a record, or the header of a page, which stands in front of its records. The logs are one
/// after the other, each in its order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) at: u64,
    pub(super) ino: Ino,
    /// `None` for a header.
    pub(super) txid: Option<Txid>,
    /// Offset of the log page that it is in, or of its inode.
    pub(super) anchor: u64,
}

/// All that lies in a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    by_kind: BTreeMap<Kind, Vec<Place>>,
    pub(super) lines: Vec<Line>,
}

impl Places {
    /// Kinds that there are.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.by_kind.keys().copied().collect()
    }

    /// The places of a kind.
    pub(super) fn of(&self, kind: Kind) -> &[Place] {
        self.by_kind.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// All places.
    pub(super) fn all(&self) -> impl Iterator<Item = &Place> {
        self.by_kind.values().flatten()
    }

    pub(super) fn add(&mut self, kind: Kind, at: u64, len: u64, ino: Ino) {
        if len > 0 {
            self.by_kind.entry(kind).or_default().push(Place { kind, at, len, ino });
        }
    }

    /// Finds all of it in an image that nothing is wrong with.
    pub(super) fn of_image(image: &[u8], dumps: &[InodeDump]) -> Self {
        let mut places = Places::default();
        let survey = Survey::of(image);
        places.add(Kind::Superblock, 0, 512, 0);
        places.add(Kind::Locator, 1024, 64, 0);
        for lane in 0..survey.superblock.lanes {
            let at = (survey.superblock.lane_table + lane * 256) as u64;
            places.add(Kind::Lane, at, 136, 0);
        }
        survey.pieces.iter().for_each(|at| places.add(Kind::Table, *at as u64, 64, 0));
        let used: HashSet<usize> = survey.logs.iter().map(|log| log.ino as usize * SLOT).collect();
        for piece in &survey.pieces {
            let slots = (piece + SLOT..piece + (PAGE << image[piece + 4])).step_by(SLOT);
            slots.filter(|slot| !used.contains(slot)).for_each(|slot| {
                places.add(Kind::Slot, slot as u64, SLOT as u64, (slot / SLOT) as u64);
            });
        }
        for log in &survey.logs {
            places.add_log(image, log);
        }
        for dump in dumps {
            places.add_data(dump);
        }
        places.add_checkpoint(image, &survey);
        places.add(Kind::Free, PAGE as u64, (image.len() - 2 * PAGE) as u64, 0);
        places
    }

    fn add_log(&mut self, image: &[u8], log: &Log) {
        let slot = log.ino * SLOT as u64;
        let kind_of = |kind: Kind| if log.dead { Kind::Dead } else { kind };
        self.add(kind_of(Kind::Identity), slot, 64, log.ino);
        let mut is_link = false;
        for run in &log.runs {
            let anchor = run.anchor as u64;
            if anchor != slot {
                self.add(kind_of(Kind::LogPage), anchor, 64, log.ino);
                self.lines.push(Line { at: anchor, ino: log.ino, txid: None, anchor });
            }
            for line in 0..run.valid {
                let (at, kind) = (run.at(line), image[run.at(line)]);
                self.add(kind_of(Kind::Record(kind)), at as u64, 64, log.ino);
                self.add_line(image, at, log.ino, anchor);
                let mode = u32::from(u16::from_le_bytes([image[at + 20], image[at + 21]]));
                is_link |= kind == 1 && mode & mode::TYPE == mode::SYMLINK;
            }
            for line in run.valid..run.room {
                self.add(kind_of(Kind::Tail), run.at(line) as u64, 64, log.ino);
            }
        }
        let death = slot + 7 * 64;
        if log.dead {
            self.add(Kind::Record(5), death, 64, log.ino);
            self.add_line(image, death as usize, log.ino, slot);
        } else {
            self.add(Kind::Tail, death, 64, log.ino);
        }
        // (A snapshot may see what has ended.)
        for (at, len) in log.values_ever(image).into_iter().flat_map(|(_, value)| value) {
            self.add(Kind::Value, at as u64, len as u64, log.ino);
        }
        if is_link {
            let pages = log.pages(image).into_iter();
            pages.for_each(|page| {
                self.add(Kind::Target, page * PAGE as u64, PAGE as u64, log.ino);
            });
        }
    }

    fn add_line(&mut self, image: &[u8], at: usize, ino: Ino, anchor: u64) {
        let lane = u64::from(image[at + 6]) << 56 | u64::from(image[at + 7]) << 32;
        let txid = (half(image, at + 12), lane | u64::from(half(image, at + 8)));
        self.lines.push(Line { at: at as u64, ino, txid: Some(txid), anchor });
    }

    fn add_data(&mut self, dump: &InodeDump) {
        let ino = dump.attr.ino;
        for extent in &dump.extents {
            let size = dump.attr.size;
            let len = extent.bytes.min(size.saturating_sub(extent.file_offset));
            self.add(Kind::Data, extent.pool_offset, len, ino);
        }
        for wait in waiting(dump) {
            self.add(Kind::Journal, wait.at, wait.len, ino);
        }
    }

    fn add_checkpoint(&mut self, image: &[u8], survey: &Survey) {
        let mut stream = Vec::new();
        for (at, bytes) in &survey.segments {
            self.add(Kind::Checkpoint, *at as u64, 64, 0);
            stream.extend((0..*bytes).map(|byte| at + 64 + byte));
        }
        let number = |at: usize| {
            let bytes = (at..at + 8).map(|at| stream.get(at).map_or(0, |at| image[*at]));
            bytes.rev().fold(0u64, |all, byte| all << 8 | u64::from(byte))
        };
        if stream.is_empty() {
            return;
        }
        let (pieces, extents) = (number(0), number(8));
        let mut end = 16;
        for _ in 0..pieces {
            let slots = (8u64 << (number(end + 8) & 0xff)) - 1;
            end += 32 + 8 * slots as usize;
        }
        end += 16 * extents as usize;
        for (kind, part) in
            [(Kind::Checkpoint, stream.get(..end)), (Kind::Manifest, stream.get(end..))]
        {
            for run in part.unwrap_or(&[]).chunk_by(|one, two| one + 1 == *two) {
                if let Some(first) = run.first() {
                    self.add(kind, *first as u64, run.len() as u64, 0);
                }
            }
        }
    }
}

/// Journalled bytes that may not be at home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    /// Where in the pool they wait.
    pub(crate) at: u64,
    /// Where in the file they are.
    pub(crate) offset: u64,
    /// How many.
    pub(crate) len: u64,
    /// Where in the pool they go.
    pub(crate) home_at: u64,
}

impl Waiting {
    /// Whether these bytes of the pool are all overwritten.
    pub(crate) fn covers(&self, at: u64, len: u64) -> bool {
        self.home_at <= at && at + len <= self.home_at + self.len
    }

    /// Whether something of a page of the pool is overwritten.
    pub(crate) fn comes_to(&self, page: u64) -> bool {
        meets(self.home_at, self.len, page)
    }

    /// Whether something of a page of the pool waits.
    pub(crate) fn waits_in(&self, page: u64) -> bool {
        meets(self.at, self.len, page)
    }
}

/// Whether some of these bytes of the pool are in a page.
fn meets(at: u64, len: u64, page: u64) -> bool {
    let start = page * PAGE as u64;
    at < start + PAGE as u64 && start < at + len
}

/// What of a file may not be at home.
pub(crate) fn waiting(dump: &InodeDump) -> Vec<Waiting> {
    let mut found = Vec::new();
    let mut last = None;
    for record in &dump.records {
        let txid = (record.session, record.lane, record.sequence);
        let ends = matches!(record.kind, "JOURNAL" | "MAP" | "RETIRE") && last != Some(txid);
        // (In a snapshot those wait that waited then.)
        if ends && dump.attr.ino < 1 << 40 {
            found.clear();
            last = Some(txid);
        }
        if record.kind == "JOURNAL" {
            let field = |name: &str| {
                record.fields.iter().find(|(one, _)| *one == name).map_or(0, |(_, value)| *value)
            };
            found.push(Waiting {
                at: field("journal_at"),
                offset: field("file_offset"),
                len: field("bytes"),
                home_at: field("home_at"),
            });
        }
    }
    found
}

/// The session, and the number of the list of snapshots, 0 for none.
pub(super) fn session_and_list(image: &[u8]) -> (u32, Ino) {
    let copies = [0, image.len() - PAGE];
    let valid = |at: &usize| half(image, at + 508) == lode_pmem::crc32c(0, &image[*at..at + 508]);
    let newest = copies.into_iter().filter(valid).max_by_key(|at| word(image, at + 192));
    newest.map_or((0, 0), |at| (half(image, at + 200), word(image, at + 224)))
}
