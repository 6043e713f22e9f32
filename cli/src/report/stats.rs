//! What `lode stats` reports: the keys, and the text for people.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HealthFacts, HeapFacts, PoolFacts, ScrubsFacts, SpaceFacts};
use crate::draw::{self, Table};
use crate::human::Lines;
use crate::output::Report;
use crate::sizes::human;

const PAGE_BYTES: u64 = lode_engine::PAGE_BYTES;
/// Columns where nobody says how wide the terminal is.
const WIDTH: usize = 80;
/// Columns of the longest bar.
const BAR_WIDTH: usize = 16;
/// Columns between two tables.
const GAP: usize = 4;
/// Parts of the memory that are told in a line.
const PARTS_IN_LINE: usize = 3;
/// Rows of the map of wear, at most.
const MAP_ROWS: usize = 4;
const NS_PER_S: f64 = 1e9;

/// `lode stats`: what has been counted since the mount, and how the pool is now.
#[derive(Clone, Serialize)]
pub(crate) struct StatsReport {
    /// The mount point.
    pub(crate) dir: String,
    /// What the server counted, and found.
    #[serde(flatten)]
    pub(crate) counted: Counted,
    /// The pool.
    pub(crate) pool: PoolFacts,
}

/// What the server counted, and found.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Process id of the server.
    pub(crate) pid: u32,
    /// When this was so, nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// Nanoseconds since the mount.
    pub(crate) age_ns: u64,
    /// Operations by kind since the mount.
    #[serde(alias = "ops")]
    pub(crate) operations: Map<String, Value>,
    /// Fences issued.
    pub(crate) fences: u64,
    /// Metadata lines made persistent.
    pub(crate) lines: u64,
    /// Bytes of file data streamed.
    pub(crate) streamed_bytes: u64,
    /// Write windows opened.
    pub(crate) windows: u64,
    /// Log pages that collection gave back.
    pub(crate) collected: CollectedFacts,
    /// Inodes dropped from memory to make room.
    pub(crate) dropped_inodes: u64,
    /// Space of the pool.
    pub(crate) space: SpaceFacts,
    /// Free extents by size.
    pub(crate) free_extents: ExtentFacts,
    /// Pages that the next round frees.
    pub(crate) waiting_pages: u64,
    /// Inode slots that the next round frees.
    pub(crate) waiting_slots: u64,
    /// Inode slots ready in tables.
    pub(crate) free_slots: u64,
    /// Snapshots. (A server of an older version does not tell of them.)
    #[serde(default)]
    pub(crate) snapshots: SnapshotsFacts,
    /// Pages that programs have mapped to store into, at level full.
    #[serde(default)]
    pub(crate) exempt_pages: u64,
    /// Inodes in memory.
    pub(crate) inodes_in_memory: u64,
    /// Those of them that could not be weighed.
    pub(crate) inodes_busy: u64,
    /// Memory of the indexes.
    pub(crate) memory: MemoryFacts,
    /// Where it was stored to.
    pub(crate) wear: WearFacts,
    /// Memory that is lent to programs; `null` where none is.
    #[serde(default)]
    pub(crate) heap: Option<HeapFacts>,
    /// What has gone bad. (A server of an older version does not tell these two.)
    #[serde(default)]
    pub(crate) health: HealthFacts,
    /// Scrubs.
    #[serde(default)]
    pub(crate) scrub: ScrubsFacts,
}

/// All snapshots together.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct SnapshotsFacts {
    /// How many there are.
    pub(crate) count: u64,
    /// Bytes that are kept for them alone.
    pub(crate) bytes: u64,
}

/// Log pages that collection gave back.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CollectedFacts {
    /// By fast collection.
    pub(crate) fast_pages: u64,
    /// By thorough collection.
    pub(crate) thorough_pages: u64,
}

/// Free extents by size.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ExtentFacts {
    /// `[k]`: of 2^k to 2^(k+1) - 1 pages.
    pub(crate) by_size: Vec<u64>,
    /// Free chunks of 2 MiB.
    pub(crate) huge: u64,
    /// Free chunks of 1 GiB.
    pub(crate) giant: u64,
}

/// Memory of the indexes, in bytes.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct MemoryFacts {
    /// Inodes and their logs.
    pub(crate) inodes_bytes: u64,
    /// Directory entries.
    pub(crate) entries_bytes: u64,
    /// Extents of files.
    pub(crate) extents_bytes: u64,
    /// Free pages.
    pub(crate) free_space_bytes: u64,
    /// Inode tables.
    pub(crate) tables_bytes: u64,
    /// Counters of wear.
    pub(crate) wear_bytes: u64,
    /// All of it.
    pub(crate) total_bytes: u64,
    /// What it may be.
    pub(crate) limit_bytes: Option<u64>,
}

/// How much was stored where.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct WearFacts {
    /// Bytes of a region.
    pub(crate) region_bytes: u64,
    /// Regions of the pool; 0 where nothing is counted.
    pub(crate) regions: u64,
    /// Those that were stored to.
    pub(crate) stored_regions: u64,
    /// Bytes stored to all of them.
    pub(crate) stored_bytes: u64,
    /// The one that was stored to most; the first of several.
    pub(crate) most_region: Option<u64>,
    /// Bytes stored to that one.
    pub(crate) most_bytes: Option<u64>,
    /// Regions that each of the sums is of.
    pub(crate) bucket_regions: u64,
    /// Bytes stored, summed up.
    pub(crate) buckets: Vec<u64>,
}

impl MemoryFacts {
    /// The parts, named.
    pub(crate) fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("inodes", self.inodes_bytes),
            ("entries", self.entries_bytes),
            ("extents", self.extents_bytes),
            ("free_space", self.free_space_bytes),
            ("tables", self.tables_bytes),
            ("wear", self.wear_bytes),
        ]
    }
}

impl ExtentFacts {
    /// The sizes that there are, with the least number of pages of each.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let sizes = self.by_size.iter().zip(0_u32..);
        sizes.filter_map(|(count, log2)| Some((1_u64.checked_shl(log2)?, *count)))
    }
}

impl Counted {
    /// Counts by name: the kinds of operation that there were, then what they cost.
    fn rows(&self) -> Vec<(&str, u64)> {
        let operations = self.operations.iter();
        let mut rows: Vec<(&str, u64)> = operations
            .map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or_default()))
            .filter(|(_, count)| *count > 0)
            .collect();
        rows.extend([
            ("fences", self.fences),
            ("lines", self.lines),
            ("streamed bytes", self.streamed_bytes),
            ("windows", self.windows),
        ]);
        rows
    }

    /// How often a second something happened since `before`.
    fn rate(&self, before: &Self, name: &str, count: u64) -> f64 {
        let seconds = self.age_ns.saturating_sub(before.age_ns) as f64 / NS_PER_S;
        let counted = before.rows().into_iter().find(|(other, _)| *other == name);
        let more = count.saturating_sub(counted.map_or(0, |(_, count)| count));
        if seconds > 0.0 { more as f64 / seconds } else { 0.0 }
    }
}

impl Report for StatsReport {
    fn text(&self) -> String {
        self.picture(None, WIDTH)
    }
}

impl StatsReport {
    /// The text for people, `width` columns wide; with what happened a second since `before`.
    pub(crate) fn picture(&self, before: Option<&Self>, width: usize) -> String {
        let tables = draw::beside(&self.counts(before), &self.extents(), GAP);
        format!("{}\n{}\n{tables}", self.heading(before), self.wear(width))
    }

    fn heading(&self, before: Option<&Self>) -> String {
        let counted = &self.counted;
        let mut lines = Lines::default();
        let time = i64::try_from(counted.time_ns).unwrap_or(i64::MAX);
        lines.add("at", crate::human::time_text(time));
        if !self.pool.label.is_empty() {
            lines.add("label", &self.pool.label);
        }
        lines.add("session", format!("{}, epoch {}", self.pool.session, self.pool.epoch));
        counted.space.lines(&mut lines);
        let waiting = format!("{} pages, {} inodes", counted.waiting_pages, counted.waiting_slots);
        lines.add("freed by next round", waiting);
        let SnapshotsFacts { count, bytes } = counted.snapshots;
        lines.add("snapshots", format!("{count}, {} kept for them", human(bytes)));
        if counted.exempt_pages > 0 {
            lines.add("unprotected", format!("{} pages, which are mapped", counted.exempt_pages));
        }
        let collected = &counted.collected;
        let pages = (collected.fast_pages, collected.thorough_pages);
        lines.add("log pages collected", format!("{} fast, {} thorough", pages.0, pages.1));
        memory_lines(counted, &mut lines);
        if let Some(heap) = &counted.heap {
            heap.lines(&mut lines);
        }
        counted.health.lines(&mut lines);
        counted.scrub.lines(&mut lines);
        let title = match before {
            None => ", counted since it was mounted",
            Some(_) => "",
        };
        format!("{}{title}:\n{}", self.dir, lines.text())
    }

    fn counts(&self, before: Option<&Self>) -> String {
        let mut table = Table::default();
        match before {
            None => table.row(&["", "count"]),
            Some(_) => table.row(&["", "count", "a second"]),
        }
        for (name, count) in self.counted.rows() {
            let total = count.to_string();
            match before {
                None => table.row(&[name, &total]),
                Some(before) => {
                    let rate = self.counted.rate(&before.counted, name, count);
                    table.row(&[name, &total, &format!("{rate:.1}")]);
                }
            }
        }
        table.text()
    }

    fn extents(&self) -> String {
        let extents = &self.counted.free_extents;
        let most = extents.by_size.iter().copied().max().unwrap_or_default();
        let mut table = Table::default();
        table.row(&["free extents", "count"]);
        for (pages, count) in extents.sizes().filter(|(_, count)| *count > 0) {
            let name = format!("{} or more", human(pages.saturating_mul(PAGE_BYTES)));
            table.row(&[&name, &count.to_string(), &draw::bar(count, most, BAR_WIDTH)]);
        }
        table.row(&["whole 2 MiB", &extents.huge.to_string()]);
        table.row(&["whole 1 GiB", &extents.giant.to_string()]);
        table.text()
    }

    fn wear(&self, width: usize) -> String {
        let wear = &self.counted.wear;
        let (Some(most_region), Some(most_bytes)) = (wear.most_region, wear.most_bytes) else {
            return "Wear: nothing was stored since the mount.\n".to_owned();
        };
        let map = draw::heat_map(&wear.buckets, width, MAP_ROWS);
        let cell = wear.region_bytes.saturating_mul(wear.bucket_regions);
        let cell = human(cell.saturating_mul(map.values_in_cell as u64));
        format!(
            "Wear: {} stored to {} of {} regions of {}; most to region {most_region}: {}\n{}each place is {cell} of the pool, {} is {} stored to it\n",
            human(wear.stored_bytes),
            wear.stored_regions,
            wear.regions,
            human(wear.region_bytes),
            human(most_bytes),
            map.text,
            draw::FULL,
            human(map.most),
        )
    }
}

fn memory_lines(counted: &Counted, lines: &mut Lines) {
    let (memory, inodes) = (&counted.memory, counted.inodes_in_memory);
    let limit = memory.limit_bytes.map(|limit| format!(" of {}", human(limit)));
    let taken = format!("{}{}", human(memory.total_bytes), limit.unwrap_or_default());
    let dropped = counted.dropped_inodes;
    lines.add("index memory", format!("{taken}, {inodes} inodes, {dropped} dropped"));
    for parts in memory.parts().chunks(PARTS_IN_LINE) {
        let parts = parts.iter().map(|(name, bytes)| (name.replace('_', " "), human(*bytes)));
        let parts: Vec<String> = parts.map(|(name, bytes)| format!("{name} {bytes}")).collect();
        lines.add("", parts.join(", "));
    }
}
