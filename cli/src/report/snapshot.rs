//! Snapshots, for people and for programs.

use lode_engine::{PAGE_BYTES, SnapshotInfo};
use serde::Serialize;

use crate::human::{printable, time_text};
use crate::output::Report;
use crate::sizes::human;

/// A snapshot, and what is kept for it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SnapshotFacts {
    /// Its name, printable.
    pub(crate) name: String,
    /// The epoch that it ended.
    pub(crate) epoch: u32,
    /// When it was made, as text, UTC.
    pub(crate) created: String,
    /// When it was made, in nanoseconds since 1970.
    pub(crate) created_ns: i64,
    /// Bytes that are kept for it and for older ones.
    pub(crate) bytes: u64,
    /// Bytes of these that it alone sees.
    pub(crate) bytes_alone: u64,
}

impl From<&SnapshotInfo> for SnapshotFacts {
    fn from(info: &SnapshotInfo) -> Self {
        let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES);
        Self {
            name: printable(&info.name),
            epoch: info.epoch,
            created: time_text(info.created_ns),
            created_ns: info.created_ns,
            bytes: bytes(info.pages),
            bytes_alone: bytes(info.pages_alone),
        }
    }
}

/// `lode snapshot create`.
#[derive(Serialize)]
pub(crate) struct SnapshotMade {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// The new one.
    pub(crate) snapshot: SnapshotFacts,
}

impl Report for SnapshotMade {
    fn text(&self) -> String {
        let SnapshotFacts { name, created, .. } = &self.snapshot;
        format!("{}: snapshot {name}, {created}\n", self.target)
    }
}

/// `lode snapshot list`.
#[derive(Serialize)]
pub(crate) struct SnapshotList {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// All, the oldest first.
    pub(crate) snapshots: Vec<SnapshotFacts>,
    /// Bytes that are kept for all of them.
    pub(crate) bytes: u64,
}

impl SnapshotList {
    /// Of a pool that has these.
    pub(crate) fn new(target: String, snapshots: Vec<SnapshotFacts>) -> Self {
        let bytes = snapshots.iter().map(|one| one.bytes).sum();
        Self { target, snapshots, bytes }
    }
}

impl Report for SnapshotList {
    fn text(&self) -> String {
        if self.snapshots.is_empty() {
            return format!("{}: no snapshots\n", self.target);
        }
        const NAME: &str = "name";
        let names = self.snapshots.iter().map(|one| one.name.chars().count());
        let width = names.max().unwrap_or(0).max(NAME.len());
        let row = |name: &str, created: &str, kept: &str, alone: &str| {
            format!("{name:width$}  {created:20}  {kept:>12}  {alone:>12}\n")
        };
        let mut text = row(NAME, "created", "keeps", "alone");
        for SnapshotFacts { name, created, bytes, bytes_alone, .. } in &self.snapshots {
            text.push_str(&row(name, created, &human(*bytes), &human(*bytes_alone)));
        }
        let (count, bytes) = (self.snapshots.len(), human(self.bytes));
        text.push_str(&format!("{count} in all, {bytes} kept for them\n"));
        text
    }
}

/// `lode snapshot delete`.
#[derive(Serialize)]
pub(crate) struct SnapshotDeleted {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// What is no more.
    pub(crate) name: String,
}

impl Report for SnapshotDeleted {
    fn text(&self) -> String {
        format!("{}: snapshot {} is deleted\n", self.target, self.name)
    }
}

/// `lode snapshot rollback`.
#[derive(Serialize)]
pub(crate) struct SnapshotRolledBack {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// What it is again.
    pub(crate) name: String,
    /// Later snapshots, which are gone.
    pub(crate) deleted: Vec<String>,
    /// What of the snapshot was lost, and is not there: the first 100 paths.
    pub(crate) lost: Vec<String>,
}

impl Report for SnapshotRolledBack {
    fn text(&self) -> String {
        let Self { target, name, deleted, lost } = self;
        let but = if lost.is_empty() { "" } else { ", but for what that had lost" };
        let mut text = format!("{target}: is what it was at snapshot {name}{but}\n");
        for path in lost {
            text.push_str(&format!("{target}: /{path} is lost\n"));
        }
        if !lost.is_empty() {
            text.push_str(&format!(
                "{target}: `lode fsck -y` takes away the names of what is lost\n"
            ));
        }
        for later in deleted {
            text.push_str(&format!("{target}: snapshot {later}, which is later, is deleted\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table_in_which_names_of_any_length_are_aligned() {
        let one = |name: &str, pages| {
            let info = SnapshotInfo {
                name: name.into(),
                epoch: 1,
                created_ns: 0,
                pages,
                pages_alone: pages / 2,
            };
            SnapshotFacts::from(&info)
        };
        let snapshots = vec![one("a", 0), one("before-the-upgrade", 512)];
        let text = SnapshotList::new("/p".into(), snapshots).text();
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.pop(), Some("2 in all, 2 MiB kept for them"));
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("name ") && lines[0].ends_with("alone"), "{text}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        assert!(
            lines[2].contains("1970-01-01T00:00:00Z") && lines[2].ends_with(" 1 MiB"),
            "{text}"
        );
        let none = SnapshotList::new("/p".into(), Vec::new());
        assert_eq!(none.text(), "/p: no snapshots\n");
    }
}
