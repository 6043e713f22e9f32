//! What a scrub has found, for people and for programs.

use lode_engine::{ExemptRange, Finding, Outcome, What, ino_beside};
use serde::{Deserialize, Serialize};

use super::{BadMemoryFacts, KeptFacts};
use crate::output::Report;
use crate::sizes::human;

/// Pages kept from use that the text names.
const KEPT_TOLD: usize = 20;

/// `lode scrub`.
#[derive(Serialize)]
pub(crate) struct ScrubReport {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// The exit status: 0, 1 or 4.
    pub(crate) status: u8,
    /// Bytes that were looked at.
    pub(crate) bytes: u64,
    /// Findings that were repaired.
    pub(crate) repaired: u64,
    /// Findings that stay, though nothing is lost with them.
    pub(crate) left: u64,
    /// Findings that are lost.
    pub(crate) lost: u64,
    /// Findings that are not in the list, which were too many.
    pub(crate) forgotten: u64,
    /// Pages that were passed over: programs have them mapped to store into.
    pub(crate) exempt_pages: u64,
    /// The first of these, by file.
    pub(crate) exempt: Vec<ExemptFacts>,
    /// What was found.
    pub(crate) findings: Vec<FindingFacts>,
    /// Bad memory that is known.
    pub(crate) bad_memory: BadMemoryFacts,
    /// Pages of it that are kept from use.
    pub(crate) kept: Vec<KeptFacts>,
}

/// Something that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FindingFacts {
    /// `superblock`, `bad-list`, `locator`, `metadata`, `data` or `attribute`.
    pub(crate) what: String,
    /// `repaired`, `left` or `lost`.
    pub(crate) outcome: String,
    /// The inode.
    #[serde(alias = "ino", deserialize_with = "inode")]
    pub(crate) inode: Option<u64>,
    /// Its path from the root.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Offset in the pool.
    pub(crate) at: u64,
    /// Of data: offset in the file.
    pub(crate) offset: u64,
    /// Bytes, 0 where it is not known how many.
    pub(crate) bytes: u64,
}

/// Bytes of a file that were passed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ExemptFacts {
    /// The inode.
    #[serde(alias = "ino")]
    pub(crate) inode: u64,
    /// Its path from the root.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// How many.
    pub(crate) bytes: u64,
}

impl From<&ExemptRange> for ExemptFacts {
    fn from(range: &ExemptRange) -> Self {
        let ExemptRange { ino, offset, bytes } = *range;
        Self { inode: ino, path: None, offset, bytes }
    }
}

impl ExemptFacts {
    /// Takes in bytes that follow; says whether they do.
    pub(crate) fn takes_in(&mut self, next: &Self) -> bool {
        let follows = (self.inode, self.offset + self.bytes) == (next.inode, next.offset);
        self.bytes += if follows { next.bytes } else { 0 };
        follows
    }

    fn text(&self) -> String {
        let of = of(self.path.as_deref(), Some(self.inode));
        format!(
            "{} bytes at offset {}{of} are mapped, and have no checksums",
            self.bytes, self.offset
        )
    }
}

/// Of which file something is, for people.
fn of(path: Option<&str>, inode: Option<u64>) -> String {
    match (path, inode) {
        (Some(path), _) => format!(" of /{path}"),
        (None, Some(seen)) => match ino_beside(seen, 0) {
            inode if inode == seen => format!(" of inode {inode}"),
            inode => format!(" of inode {inode} in a snapshot"),
        },
        (None, None) => String::new(),
    }
}

/// A server says 0 for none.
fn inode<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<u64>::deserialize(from)?.filter(|ino| *ino != 0))
}

impl From<&Finding> for FindingFacts {
    fn from(found: &Finding) -> Self {
        let Finding { what, outcome, ino, at, offset, bytes } = *found;
        let (what, outcome) = (what.name().to_owned(), outcome.name().to_owned());
        Self {
            what,
            outcome,
            inode: Some(ino).filter(|ino| *ino != 0),
            path: None,
            at,
            offset,
            bytes,
        }
    }
}

impl FindingFacts {
    /// Where it is, for people.
    pub(super) fn place(&self) -> String {
        let of = of(self.path.as_deref(), self.inode);
        let place = if self.what == What::Data.name() {
            format!("{} bytes at offset {}", self.bytes, self.offset)
        } else {
            let parts = [What::BadList, What::Locator].into_iter();
            let part = parts.filter(|what| what.name() == self.what).map(What::words).next();
            part.unwrap_or(&self.what).to_owned()
        };
        format!("{place}{of}, at {:#x} of the pool", self.at)
    }

    fn text(&self) -> String {
        let outcome = match self.outcome.as_str() {
            word if word == Outcome::Repaired.name() => "was bad, and is repaired",
            word if word == Outcome::Left.name() => "is bad, and stays so: nothing is lost by it",
            _ => "can't be read: lost",
        };
        format!("{}, {outcome}", self.place())
    }
}

impl Report for ScrubReport {
    fn text(&self) -> String {
        let mut text = String::new();
        for found in &self.findings {
            text.push_str(&format!("{}: {}\n", self.target, found.text()));
        }
        if self.forgotten > 0 {
            text.push_str(&format!("{}: ... and {} more\n", self.target, self.forgotten));
        }
        for exempt in &self.exempt {
            text.push_str(&format!("{}: {}\n", self.target, exempt.text()));
        }
        if self.exempt_pages > 0 {
            let (target, pages) = (&self.target, self.exempt_pages);
            text.push_str(&format!(
                "{target}: {pages} pages were mapped by programs, and not compared with checksums\n"
            ));
        }
        for KeptFacts { at, bytes } in self.kept.iter().take(KEPT_TOLD) {
            let target = &self.target;
            text.push_str(&format!(
                "{target}: the page at {at:#x} has {bytes} bad bytes, and is kept from use\n"
            ));
        }
        let BadMemoryFacts { pages, bytes, kept_pages } = self.bad_memory;
        if pages > 0 {
            let bytes = human(bytes);
            text.push_str(&format!(
                "{}: bad memory: {bytes} in {pages} pages, {kept_pages} of them kept from use\n",
                self.target
            ));
        }
        let looked = human(self.bytes);
        let verdict = match (self.repaired, self.left, self.lost) {
            (0, 0, 0) => "nothing is bad".to_owned(),
            (repaired, left, lost) => format!("{repaired} repaired, {left} left, {lost} lost"),
        };
        text.push_str(&format!("{}: {verdict}; {looked} looked at\n", self.target));
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// With nothing absent.
    pub(crate) fn finding() -> FindingFacts {
        FindingFacts {
            what: "data".into(),
            outcome: "lost".into(),
            inode: Some(9),
            path: Some("a/b".into()),
            at: 1 << 20,
            offset: 4096,
            bytes: 64,
        }
    }

    /// With nothing absent.
    pub(crate) fn report() -> ScrubReport {
        let finding = finding();
        let exempt = ExemptFacts { inode: 7, path: Some("a/m".into()), offset: 8192, bytes: 12000 };
        ScrubReport {
            target: "/d".into(),
            status: 4,
            bytes: 1 << 20,
            repaired: 0,
            left: 0,
            lost: 1,
            forgotten: 0,
            exempt_pages: 3,
            exempt: vec![exempt],
            findings: vec![finding],
            bad_memory: BadMemoryFacts { pages: 2, bytes: 192, kept_pages: 1 },
            kept: vec![KeptFacts::new((7, 0b101))],
        }
    }

    #[test]
    fn what_is_kept_from_use_is_named() {
        let text = report().text();
        for part in [
            "/d: 12000 bytes at offset 8192 of /a/m are mapped, and have no checksums",
            "/d: 3 pages were mapped by programs, and not compared with checksums",
            "/d: 64 bytes at offset 4096 of /a/b, at 0x100000 of the pool, can't be read: lost",
            "/d: the page at 0x7000 has 128 bad bytes, and is kept from use",
            "/d: bad memory: 192 bytes in 2 pages, 1 of them kept from use",
            "/d: 0 repaired, 0 left, 1 lost; 1 MiB looked at",
        ] {
            assert!(text.lines().any(|line| line == part), "{part} in:\n{text}");
        }
    }
}
