//! `lode dump`: superblocks, inodes with their records, and where each byte of a file lies.

use std::cell::RefCell;

use lode_engine::{ExtentDump, InodeDump, PageClass, RecordDump};
use serde::{Serialize, Serializer};

use super::{OpeningFacts, PoolFacts};
use crate::human::{hex, printable, time_text};
use crate::sizes::page_class_name;
use crate::superblock;

/// The whole of `lode dump`; `I` yields the inodes, and may find some that can't be read.
#[derive(Serialize)]
pub(crate) struct DumpReport<'a, I: Serialize> {
    /// The superblock copies that are there, as they are on the medium.
    pub(crate) superblocks: Vec<superblock::Copy>,
    /// The pool; `null` where it can't be opened.
    pub(crate) pool: Option<PoolFacts>,
    /// How it was found.
    pub(crate) opening: Option<OpeningFacts>,
    /// The inode asked for, or all.
    pub(crate) inodes: I,
    /// Inodes that can't be shown: filled while `inodes` is written, so written after it.
    pub(crate) unreadable: &'a RefCell<Vec<UnreadableReport>>,
}

/// An inode that can't be shown.
#[derive(Serialize)]
pub(crate) struct UnreadableReport {
    /// Its number.
    pub(crate) inode: u64,
    /// What is wrong with it.
    pub(crate) what: String,
}

/// One inode.
#[derive(Serialize)]
pub(crate) struct InodeReport {
    inode: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    device: u64,
    size: u64,
    pages: u64,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    btime_ns: i64,
    generation: u64,
    nonce: u64,
    at: u64,
    log_pages: Vec<u64>,
    records: Vec<RecordReport>,
    extents: Vec<ExtentReport>,
}

/// One line of an inode's log.
#[derive(Serialize)]
struct RecordReport {
    at: u64,
    kind: &'static str,
    session: u32,
    lane: u8,
    sequence: u64,
    part: u16,
    parts: u16,
    #[serde(serialize_with = "as_map")]
    fields: Vec<(&'static str, u64)>,
    text: String,
    text_hex: String,
}

/// A run of a file's pages.
#[derive(Serialize)]
struct ExtentReport {
    file_offset: u64,
    pool_offset: u64,
    bytes: u64,
    page_size: &'static str,
}

fn as_map<S: Serializer>(fields: &[(&'static str, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().copied())
}

impl From<&InodeDump> for InodeReport {
    fn from(dump: &InodeDump) -> Self {
        let attr = &dump.attr;
        Self {
            inode: attr.ino,
            kind: type_name(attr.mode),
            mode: format!("{:04o}", attr.mode & 0o7777),
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            device: attr.rdev,
            size: attr.size,
            pages: attr.pages,
            atime_ns: attr.atime_ns,
            mtime_ns: attr.mtime_ns,
            ctime_ns: attr.ctime_ns,
            btime_ns: attr.btime_ns,
            generation: attr.generation,
            nonce: dump.nonce,
            at: dump.slot_at,
            log_pages: dump.log_pages.clone(),
            records: dump.records.iter().map(RecordReport::from).collect(),
            extents: dump.extents.iter().map(ExtentReport::from).collect(),
        }
    }
}

impl From<&RecordDump> for RecordReport {
    fn from(record: &RecordDump) -> Self {
        Self {
            at: record.at,
            kind: record.kind,
            session: record.session,
            lane: record.lane,
            sequence: record.sequence,
            part: record.part,
            parts: record.parts,
            fields: record.fields.clone(),
            text: printable(&record.text),
            text_hex: hex(&record.text),
        }
    }
}

impl From<&ExtentDump> for ExtentReport {
    fn from(extent: &ExtentDump) -> Self {
        Self {
            file_offset: extent.file_offset,
            pool_offset: extent.pool_offset,
            bytes: extent.bytes,
            page_size: PageClass::from_number(extent.class).map_or("unknown", page_class_name),
        }
    }
}

fn type_name(mode: u32) -> &'static str {
    use lode_engine::mode::{BLOCK, CHARACTER, DIRECTORY, FIFO, FILE, SOCKET, SYMLINK, TYPE};
    match mode & TYPE {
        FILE => "file",
        DIRECTORY => "directory",
        SYMLINK => "symlink",
        FIFO => "fifo",
        SOCKET => "socket",
        BLOCK => "block device",
        CHARACTER => "character device",
        _ => "unknown",
    }
}

impl InodeReport {
    /// One line of text.
    pub(crate) fn brief(&self) -> String {
        format!(
            "inode {:<10} at {:#012x}  {:9} {} links {} uid {} gid {} size {} modified {}\n",
            self.inode,
            self.at,
            self.kind,
            self.mode,
            self.links,
            self.uid,
            self.gid,
            self.size,
            time_text(self.mtime_ns),
        )
    }

    /// All there is, as text.
    pub(crate) fn text(&self) -> String {
        let mut text = self.brief();
        for page in &self.log_pages {
            text.push_str(&format!("  log page at {page:#012x}\n"));
        }
        for record in &self.records {
            text.push_str(&record.line());
        }
        for extent in &self.extents {
            text.push_str(&format!(
                "  extent file {:#x} + {:#x} at {:#012x} ({} pages)\n",
                extent.file_offset, extent.bytes, extent.pool_offset, extent.page_size
            ));
        }
        text
    }
}

impl RecordReport {
    fn line(&self) -> String {
        let fields: String =
            self.fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let text = if self.text.is_empty() { String::new() } else { format!(" \"{}\"", self.text) };
        format!(
            "  record at {:#012x} {:7} transaction {}/{}/{} part {} of {}{fields}{text}\n",
            self.at,
            self.kind,
            self.session,
            self.lane,
            self.sequence,
            self.part + 1,
            self.parts
        )
    }
}

/// The text before the inodes.
pub(crate) fn superblock_text(copy: &superblock::Copy) -> String {
    let state = copy.problem.clone().unwrap_or_else(|| "valid".to_owned());
    format!(
        "superblock at {:#012x}: {state}\n  version {} features {} uuid {} secret {}\n  \
         pages {} lanes {} lane table at page {} root inode {} label \"{}\"\n  \
         update {} session {} epoch {} checkpoint page {} of session {}\n",
        copy.at,
        copy.version,
        copy.features.join(" "),
        copy.uuid,
        copy.secret,
        copy.pages,
        copy.lanes,
        copy.lane_table_page,
        copy.root_inode,
        copy.label,
        copy.update,
        copy.session,
        copy.epoch,
        copy.checkpoint_page,
        copy.checkpoint_session,
    )
}
