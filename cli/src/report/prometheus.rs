//! The report of `lode stats` in Prometheus' text format, for node_exporter's textfile collector
//! and the like: bytes and seconds, counters that end in `_total`, the pool's UUID on every sample,
//! so that several pools can lie side by side.

use std::fmt::Write;

use super::stats::{Counted, StatsReport};

const PAGE_BYTES: u64 = lode_engine::PAGE_BYTES;
const LINE_BYTES: u64 = 64;
const HUGE_BYTES: u64 = 2 << 20;
const GIANT_BYTES: u64 = 1 << 30;
/// Series that the map of wear has at most.
const GROUPS_MOST: u64 = 1 << 16;

/// Bytes stored to groups of regions: their numbers, and how much, where that is not 0.
#[derive(Default)]
pub(crate) struct StoredGroups {
    /// Bytes of the pool in a group.
    pub(crate) group_bytes: u64,
    /// Number of the group, bytes stored.
    pub(crate) stored: Vec<(u64, u64)>,
}

impl StoredGroups {
    /// Regions that make a group in a pool of so many: one, unless that would be too many series.
    /// It depends on the pool's size alone, so that a number means the same in every sample.
    pub(crate) fn regions_in_group(regions: u64) -> u64 {
        regions.div_ceil(GROUPS_MOST).max(1).next_power_of_two()
    }
}

/// The text, as it is made.
struct Text {
    text: String,
    uuid: String,
}

/// What a metric is to Prometheus.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

impl Text {
    /// Begins a metric; samples of it follow.
    fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string can't fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample with more labels than the UUID.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.text, "{name}{{uuid=\"{}\"", escaped(&self.uuid));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    /// A metric of one sample.
    fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl std::fmt::Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A metric with a sample for each value of one label.
    fn each<V: std::fmt::Display>(
        &mut self,
        (name, label): (&str, &str),
        kind: Kind,
        help: &str,
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        self.metric(name, kind, help);
        for (text, value) in samples {
            self.sample(name, &[(label, &text)], value);
        }
    }
}

/// A label's value, as it stands between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole text.
pub(crate) fn exposition(report: &StatsReport, wear: &StoredGroups) -> String {
    let mut text = Text { text: String::new(), uuid: report.pool.uuid.clone() };
    pool(&mut text, report);
    health(&mut text, &report.counted);
    scrubs(&mut text, &report.counted);
    counters(&mut text, &report.counted);
    space(&mut text, &report.counted, report.pool.bytes);
    memory(&mut text, &report.counted);
    heap(&mut text, &report.counted);
    stored(&mut text, &report.counted, wear);
    text.text
}

fn pool(text: &mut Text, report: &StatsReport) {
    let (pool, version) = (&report.pool, report.pool.version.to_string());
    text.metric("lode_pool_info", Kind::Gauge, "The pool, its label, file and mount point.");
    let labels = [
        ("label", pool.label.as_str()),
        ("pool", pool.path.as_str()),
        ("dir", report.dir.as_str()),
        ("format", version.as_str()),
    ];
    text.sample("lode_pool_info", &labels, 1);
    text.one("lode_pool_bytes", Kind::Gauge, "Size of the pool.", pool.bytes);
    text.one("lode_pool_sessions_total", Kind::Counter, "Read-write opens so far.", pool.session);
    text.one("lode_pool_epoch", Kind::Gauge, "Epoch of the pool.", pool.epoch);
    let age = seconds(report.counted.age_ns);
    text.one("lode_mount_age_seconds", Kind::Gauge, "Time since the mount.", age);
}

fn health(text: &mut Text, counted: &Counted) {
    use Kind::{Counter, Gauge};
    let health = &counted.health;
    let levels = ["none", "metadata", "full"];
    let levels = levels.map(|level| (level.to_owned(), u8::from(health.protection == level)));
    text.each(("lode_protection", "level"), Gauge, "1 for the level in force.", levels);
    let mended = health.metadata_mended.saturating_mul(LINE_BYTES);
    let help = "Metadata that was bad in one copy and was made good, in whole lines.";
    text.one("lode_metadata_mended_bytes_total", Counter, help, mended);
    let outcomes = [("repaired", health.strips_repaired), ("lost", health.strips_lost)];
    let outcomes = outcomes.map(|(outcome, strips)| (outcome.to_owned(), strips));
    let help = "Strips of file data that were bad when they were read.";
    text.each(("lode_bad_strips_total", "outcome"), Counter, help, outcomes);
    let bad = &health.bad_memory;
    text.one("lode_bad_memory_bytes", Gauge, "Memory that can't be loaded, as known.", bad.bytes);
    text.one("lode_bad_pages", Gauge, "Pages with such memory.", bad.pages);
    text.one("lode_bad_pages_kept", Gauge, "Those that are kept from use.", bad.kept_pages);
}

fn scrubs(text: &mut Text, counted: &Counted) {
    use Kind::{Counter, Gauge};
    let scrub = &counted.scrub;
    let help = "Time from one scrub of the server itself to the next; 0 for none.";
    text.one("lode_scrub_period_seconds", Gauge, help, scrub.period_s.unwrap_or_default());
    text.one("lode_scrub_running", Gauge, "1 while a scrub goes on.", u8::from(scrub.running));
    let help = "Bytes that the last scrub has looked at so far.";
    text.one("lode_scrub_done_bytes", Gauge, help, scrub.done_bytes);
    text.one("lode_scrub_all_bytes", Gauge, "Bytes that there are for it.", scrub.all_bytes);
    let help = "Scrubs that have come to their end since the mount.";
    text.one("lode_scrubs_total", Counter, help, scrub.ended);
    // (Before the first one there is nothing to tell of it.)
    let Some(ended_ns) = scrub.ended_ns.and_then(|ns| u64::try_from(ns).ok()) else { return };
    let help = "When the last one did, since 1970.";
    text.one("lode_scrub_ended_seconds", Gauge, help, seconds(ended_ns));
    let found = [("repaired", scrub.repaired), ("left", scrub.left), ("lost", scrub.lost)];
    let found = found.map(|(outcome, count)| (outcome.to_owned(), count.unwrap_or_default()));
    text.each(("lode_scrub_findings", "outcome"), Gauge, "What that one has found.", found);
}

/// Nanoseconds as seconds, all of them.
fn seconds(ns: u64) -> String {
    const NS_PER_S: u64 = 1_000_000_000;
    format!("{}.{:09}", ns / NS_PER_S, ns % NS_PER_S)
}

fn counters(text: &mut Text, counted: &Counted) {
    use Kind::Counter;
    let operations = counted.operations.iter();
    let operations =
        operations.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default()));
    let help = "Operations by kind, rounds and collections among them.";
    text.each(("lode_operations_total", "op"), Counter, help, operations);
    text.one("lode_fences_total", Counter, "Fences issued.", counted.fences);
    let lines = counted.lines.saturating_mul(LINE_BYTES);
    let help = "Metadata made persistent, in whole lines of 64 bytes.";
    text.one("lode_metadata_bytes_total", Counter, help, lines);
    let help = "File data and zeros stored past the caches.";
    text.one("lode_streamed_bytes_total", Counter, help, counted.streamed_bytes);
    text.one("lode_windows_total", Counter, "Write windows opened.", counted.windows);
    let collected = &counted.collected;
    let kinds = [("fast", collected.fast_pages), ("thorough", collected.thorough_pages)];
    let kinds = kinds.map(|(kind, pages)| (kind.to_owned(), pages.saturating_mul(PAGE_BYTES)));
    let help = "Log pages that collection gave back.";
    text.each(("lode_collected_bytes_total", "kind"), Counter, help, kinds);
}

fn space(text: &mut Text, counted: &Counted, pool_bytes: u64) {
    use Kind::Gauge;
    let (space, extents) = (&counted.space, &counted.free_extents);
    let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES);
    text.one("lode_free_bytes", Gauge, "Space that holds nothing.", bytes(space.pages_free));
    let help = "Free space less what is kept so that a full pool can be emptied.";
    text.one("lode_available_bytes", Gauge, help, bytes(space.pages_available));
    let help = "Free space that waits for a round.";
    text.one("lode_waiting_bytes", Gauge, help, bytes(counted.waiting_pages));
    text.one("lode_inodes", Gauge, "Inodes in use.", space.inodes);
    text.one("lode_inodes_free", Gauge, "Inodes that could be made.", space.inodes_free);
    let help = "Inode slots that wait for a round.";
    text.one("lode_waiting_inodes", Gauge, help, counted.waiting_slots);
    let help = "Data without checksums while programs have it mapped, at level full.";
    text.one("lode_exempt_bytes", Gauge, help, bytes(counted.exempt_pages));
    text.one("lode_free_inode_slots", Gauge, "Inode slots in tables.", counted.free_slots);
    text.one("lode_snapshots", Gauge, "Snapshots.", counted.snapshots.count);
    let help = "Space that is kept for snapshots alone.";
    text.one("lode_snapshot_bytes", Gauge, help, counted.snapshots.bytes);
    // Sizes that the pool has room for: always the same ones.
    let sizes = extents.sizes().filter(|(pages, _)| bytes(*pages) <= pool_bytes);
    let sizes = sizes.map(|(pages, count)| (bytes(pages).to_string(), count));
    let help = "Free extents of at least min_bytes and less than twice as much.";
    text.each(("lode_free_extents", "min_bytes"), Gauge, help, sizes);
    let chunks = [(HUGE_BYTES.to_string(), extents.huge), (GIANT_BYTES.to_string(), extents.giant)];
    let help = "Aligned chunks of so many bytes that are wholly free.";
    text.each(("lode_free_chunks", "bytes"), Gauge, help, chunks);
}

fn memory(text: &mut Text, counted: &Counted) {
    let parts = counted.memory.parts().map(|(part, bytes)| (part.to_owned(), bytes));
    let help = "Main memory of the indexes.";
    text.each(("lode_index_memory_bytes", "part"), Kind::Gauge, help, parts);
    if let Some(limit) = counted.memory.limit_bytes {
        let help = "What the indexes may take of main memory.";
        text.one("lode_index_memory_limit_bytes", Kind::Gauge, help, limit);
    }
    let help = "Inodes dropped from memory to make room for others.";
    text.one("lode_inodes_dropped_total", Kind::Counter, help, counted.dropped_inodes);
    let inodes = counted.inodes_in_memory;
    text.one("lode_inodes_in_memory", Kind::Gauge, "Inodes in memory.", inodes);
}

fn heap(text: &mut Text, counted: &Counted) {
    use Kind::{Counter, Gauge};
    let Some(heap) = &counted.heap else { return };
    let help = "Memory of the pool that programs are lent.";
    text.one("lode_heap_lent_bytes", Gauge, help, heap.lent_bytes);
    let help = "What of it no session has: its program holds it locked.";
    text.one("lode_heap_apart_bytes", Gauge, help, heap.apart_bytes);
    let help = "Memory that is kept zeroed for programs.";
    text.one("lode_heap_ready_bytes", Gauge, help, heap.ready_bytes);
    if let Some(limit) = heap.limit_bytes {
        let help = "What programs are lent together, at most.";
        text.one("lode_heap_limit_bytes", Gauge, help, limit);
    }
    let help = "Space that lending leaves to files.";
    text.one("lode_heap_reserve_bytes", Gauge, help, heap.reserve_bytes);
    text.one("lode_heap_sessions", Gauge, "Programs that have a session.", heap.sessions);
    let help = "Memory that programs were lent.";
    text.one("lode_heap_granted_bytes_total", Counter, help, heap.granted_bytes);
    let help = "Memory that came back.";
    text.one("lode_heap_returned_bytes_total", Counter, help, heap.returned_bytes);
    let help = "Requests for memory that were refused for want of it, or by a limit.";
    text.one("lode_heap_refused_total", Counter, help, heap.refused);
    let help = "Times that programs were asked for what they can spare.";
    text.one("lode_heap_wishes_total", Counter, help, heap.wishes);
    let help = "Messages and connections that were refused for what they are.";
    text.one("lode_heap_hostile_total", Counter, help, heap.hostile);
    text.one("lode_heap_kept", Gauge, "Kept heaps that programs have open.", heap.kept_heaps);
    let help = "The files of kept heaps that programs have open.";
    text.one("lode_heap_kept_bytes", Gauge, help, heap.kept_bytes);
}

fn stored(text: &mut Text, counted: &Counted, wear: &StoredGroups) {
    let help = "All that was stored to the pool, in whole lines of 64 bytes.";
    text.one("lode_stored_bytes_total", Kind::Counter, help, counted.wear.stored_bytes);
    if wear.group_bytes == 0 {
        return;
    }
    let help = "Bytes of the pool in a region of lode_region_stored_bytes_total.";
    text.one("lode_region_bytes", Kind::Gauge, help, wear.group_bytes);
    let regions = wear.stored.iter().map(|(region, bytes)| (region.to_string(), *bytes));
    let help = "Stored to each region, in whole lines; regions without a store are left out.";
    text.each(("lode_region_stored_bytes_total", "region"), Kind::Counter, help, regions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text { text: String::new(), uuid: "u".into() };
        text.sample("m", &[("label", "a\"b\\c\nd")], 1);
        assert_eq!(text.text, "m{uuid=\"u\",label=\"a\\\"b\\\\c\\nd\"} 1\n");
    }

    #[test]
    fn groups_are_regions_until_those_are_too_many() {
        for (regions, in_group) in
            [(0, 1), (1, 1), (1 << 16, 1), ((1 << 16) + 1, 2), (1 << 23, 128)]
        {
            assert_eq!(StoredGroups::regions_in_group(regions), in_group, "{regions}");
        }
    }

    #[test]
    fn seconds_keep_their_nanoseconds() {
        assert_eq!(seconds(1_000_000_001), "1.000000001");
    }
}
