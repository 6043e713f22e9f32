//! What has gone bad in a pool, and how it is looked for: parts of several reports.

use lode_engine::{BadPage, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use super::FindingFacts;
use crate::human::{Lines, time_text};
use crate::periods::period_text;
use crate::sizes::human;

/// Bytes of a line of memory.
const LINE_BYTES: u64 = PAGE_BYTES / u64::BITS as u64;
/// Lost places that the text names.
const LOST_TOLD: usize = 8;

/// Bad memory that is known.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BadMemoryFacts {
    /// Pages with bytes that can't be loaded.
    pub(crate) pages: u64,
    /// These bytes.
    pub(crate) bytes: u64,
    /// Those of the pages that are kept from use.
    pub(crate) kept_pages: u64,
}

impl BadMemoryFacts {
    /// Of these pages.
    pub(crate) fn new(pages: &[BadPage]) -> Self {
        Self {
            pages: pages.len() as u64,
            bytes: pages.iter().map(|bad| u64::from(bad.lines.count_ones()) * LINE_BYTES).sum(),
            kept_pages: pages.iter().filter(|bad| !bad.in_use).count() as u64,
        }
    }

    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        let Self { pages, bytes, kept_pages } = *self;
        let text = match pages {
            0 => "none is known".to_owned(),
            _ => format!("{} in {pages} pages, {kept_pages} of them kept from use", human(bytes)),
        };
        lines.add("bad memory", text);
    }
}

/// A page that is kept from use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct KeptFacts {
    /// Offset in the pool.
    pub(crate) at: u64,
    /// Bytes of it that can't be loaded.
    pub(crate) bytes: u64,
}

impl KeptFacts {
    /// Of a page's number, and a bit for each of its lines.
    pub(crate) fn new((page, lines): (u64, u64)) -> Self {
        let bytes = u64::from(lines.count_ones()) * LINE_BYTES;
        Self { at: page.saturating_mul(PAGE_BYTES), bytes }
    }
}

/// What has gone bad since the mount, and what became of it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct HealthFacts {
    /// The level in force: `none`, `metadata` or `full`.
    pub(crate) protection: String,
    /// Lines of metadata that were bad in one copy, and were made good.
    pub(crate) metadata_mended: u64,
    /// Strips of file data that were made right.
    pub(crate) strips_repaired: u64,
    /// Reads of strips that nothing right was left of.
    pub(crate) strips_lost: u64,
    /// Places that can't be read. (A server of an older version does not tell these two.)
    #[serde(default)]
    pub(crate) lost: Vec<FindingFacts>,
    /// How often others were met, for which the list had no room.
    #[serde(default)]
    pub(crate) lost_forgotten: u64,
    /// Bad memory that is known.
    pub(crate) bad_memory: BadMemoryFacts,
}

impl HealthFacts {
    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        lines.add("protection", &self.protection);
        let Self { metadata_mended, strips_repaired, strips_lost, .. } = *self;
        let mended =
            format!("{metadata_mended} lines of metadata, {strips_repaired} strips of data");
        lines.add("made good", mended);
        // (A place is told once, however often it is met; a strip is counted at each read.)
        let more = if self.lost_forgotten > 0 { " and more" } else { "" };
        let places = match self.lost.len() {
            1 if more.is_empty() => "1 place".to_owned(),
            count => format!("{count}{more} places"),
        };
        lines.add("lost", format!("{places}, {strips_lost} reads of strips"));
        for place in self.lost.iter().take(LOST_TOLD) {
            lines.add("", place.place());
        }
        if self.lost.len() > LOST_TOLD || self.lost_forgotten > 0 {
            lines.add("", "... and more: `lode scrub` shows them all");
        }
        self.bad_memory.lines(lines);
    }
}

/// Scrubs of a mount.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct ScrubsFacts {
    /// Seconds from one that the server begins by itself to the next.
    pub(crate) period_s: Option<u64>,
    /// One goes on.
    pub(crate) running: bool,
    /// Bytes that the last one has looked at so far.
    pub(crate) done_bytes: u64,
    /// Bytes that there are for it, about.
    pub(crate) all_bytes: u64,
    /// How many have come to their end since the mount.
    pub(crate) ended: u64,
    /// When the last of these did, nanoseconds since 1970.
    pub(crate) ended_ns: Option<i64>,
    /// What that one repaired.
    pub(crate) repaired: Option<u64>,
    /// What it left: bad in one copy.
    pub(crate) left: Option<u64>,
    /// What it found lost.
    pub(crate) lost: Option<u64>,
}

impl ScrubsFacts {
    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        let period = self.period_s.map(std::time::Duration::from_secs);
        let every =
            period.map_or("when asked".to_owned(), |it| format!("every {}", period_text(it)));
        let now = match self.running {
            true => format!(", {} of {} now", human(self.done_bytes), human(self.all_bytes)),
            false => String::new(),
        };
        lines.add("scrubs", format!("{every}, {} since the mount{now}", self.ended));
        if let Some(ended_ns) = self.ended_ns {
            let count = |count: Option<u64>| count.unwrap_or_default();
            let found = (count(self.repaired), count(self.left), count(self.lost));
            let found = match found {
                (0, 0, 0) => "nothing was bad".to_owned(),
                (repaired, left, lost) => format!("{repaired} repaired, {left} left, {lost} lost"),
            };
            lines.add("last scrub", format!("ended {}: {found}", time_text(ended_ns)));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// With nothing absent.
    pub(crate) fn health() -> HealthFacts {
        let pages = [
            BadPage { page: 7, lines: 0b101, in_use: false },
            BadPage { page: 8, lines: 1 << 63, in_use: true },
        ];
        HealthFacts {
            protection: "full".into(),
            metadata_mended: 1,
            strips_repaired: 2,
            strips_lost: 3,
            lost: vec![crate::report::scrub::tests::finding()],
            lost_forgotten: 0,
            bad_memory: BadMemoryFacts::new(&pages),
        }
    }

    /// With nothing absent.
    pub(crate) fn scrubs() -> ScrubsFacts {
        ScrubsFacts {
            period_s: Some(86_400),
            running: true,
            done_bytes: 1 << 20,
            all_bytes: 1 << 30,
            ended: 2,
            ended_ns: Some(0),
            repaired: Some(3),
            left: Some(0),
            lost: Some(1),
        }
    }

    #[test]
    fn it_reads_well() {
        let mut lines = Lines::default();
        health().lines(&mut lines);
        scrubs().lines(&mut lines);
        assert_eq!(
            lines.text(),
            "protection  full\n\
             made good   1 lines of metadata, 2 strips of data\n\
             lost        1 place, 3 reads of strips\n\
             \x20           64 bytes at offset 4096 of /a/b, at 0x100000 of the pool\n\
             bad memory  192 bytes in 2 pages, 1 of them kept from use\n\
             scrubs      every 1d, 2 since the mount, 1 MiB of 1 GiB now\n\
             last scrub  ended 1970-01-01T00:00:00Z: 3 repaired, 0 left, 1 lost\n"
        );
        let mut lines = Lines::default();
        HealthFacts { lost_forgotten: 1, ..health() }.lines(&mut lines);
        assert!(lines.text().contains("and more: `lode scrub`"), "{}", lines.text());
        let mut lines = Lines::default();
        BadMemoryFacts::default().lines(&mut lines);
        ScrubsFacts::default().lines(&mut lines);
        let quiet = "bad memory  none is known\nscrubs      when asked, 0 since the mount\n";
        assert_eq!(lines.text(), quiet);
        assert_eq!(KeptFacts::new((7, 0b101)), KeptFacts { at: 7 * 4096, bytes: 128 });
    }
}
