//! What is explored: a pool's shape, operations that prepare it, and those that are cut off.

use lode_engine::{FormatOptions, PageClass, Protection, STRIP_BYTES};
use lode_testkit::op::Op;

/// The pool that a case runs on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the region when the pool was made in it, where it has become larger since.
    pub made: Option<u64>,
    /// Lanes on the medium, and CPUs that operations take turns on.
    pub lanes: u32,
    /// Record lines of a log page.
    pub log_lines: u8,
    /// Class of the files' pages.
    pub class: PageClass,
    /// Data in place, atomic by 8-byte words only.
    pub relaxed: bool,
    /// Files are mapped, and stored into in place: their data is atomic by 8-byte words only.
    pub mapped: bool,
    /// Access times are kept.
    pub atime: bool,
    /// Inodes are dropped from memory as soon as others are wanted.
    pub forgetful: bool,
    /// Metadata is there twice, so that a scribble of so many bytes leaves one copy.
    pub dead_zone: Option<u64>,
    /// Level `full`, with strips of so many bytes.
    pub strip: Option<u32>,
    /// Inodes, log pages and pieces of inode table made before the session is raised, where that is soon.
    pub nonces: Option<u32>,
    /// Writers of a file go side by side from the first overwrite on that might.
    pub side_by_side: bool,
    /// A program that was lent memory by an owner who is gone holds the second chunk of the region.
    pub held: bool,
    /// Whoever opens what a crash has left hears that the memory has lost something since, and that a page is bad.
    pub lossy: bool,
}

/// What happens to a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trouble {
    /// The power fails, in each of `ops` and after it.
    #[default]
    Power,
    /// After `ops`, one bit flips of what has a seal.
    Bit,
}

/// A sequence of operations whose every crash is explored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// What it is about, in a few words; equal for no two cases of a run.
    pub name: String,
    /// What happens.
    pub trouble: Trouble,
    /// The pool.
    pub geometry: Geometry,
    /// Done before, without a crash.
    pub before: Vec<Op>,
    /// Cut off at every fence and after each one.
    pub ops: Vec<Op>,
    /// Run by a second thread at the same time as `ops`, under every schedule; empty for none.
    pub beside: Vec<Op>,
}

/// A log page with as many lines holds any name, and any attribute's name with where its value is.
const LINES_OF_ANY_TEXT: u8 = 11;

/// Bytes of a pool above which each state takes long.
const LARGE: u64 = 1 << 20;

impl Geometry {
    /// Whether each state of such a pool takes long.
    pub fn is_large(&self) -> bool {
        self.bytes > LARGE
    }

    /// Whether there are names that no record has room for.
    pub fn has_short_pages(&self) -> bool {
        self.log_lines < LINES_OF_ANY_TEXT
    }

    /// How such a pool is made.
    pub fn format(&self) -> FormatOptions {
        let Self { lanes, class, log_lines, dead_zone, strip, .. } = *self;
        FormatOptions {
            lanes,
            page_class: class,
            log_lines,
            protection: match (dead_zone, strip) {
                (_, Some(_)) => Protection::Full,
                (Some(_), None) => Protection::Metadata,
                (None, None) => Protection::None,
            },
            dead_zone: dead_zone.unwrap_or_default(),
            strip_bytes: strip.unwrap_or(STRIP_BYTES),
            ..FormatOptions::default()
        }
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            bytes: 256 << 10,
            made: None,
            lanes: 1,
            log_lines: 63,
            class: PageClass::Small,
            relaxed: false,
            mapped: false,
            atime: false,
            forgetful: false,
            dead_zone: None,
            strip: None,
            nonces: None,
            side_by_side: false,
            held: false,
            lossy: false,
        }
    }
}
