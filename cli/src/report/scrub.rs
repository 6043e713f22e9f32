//! What a scrub has found, for people and for programs.

use lode_engine::{Finding, Outcome, What};
use serde::{Deserialize, Serialize};

use crate::output::Report;
use crate::sizes::human;

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
    /// What was found.
    pub(crate) findings: Vec<FindingFacts>,
}

/// Something that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FindingFacts {
    /// `superblock`, `metadata`, `data` or `attribute`.
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
    fn text(&self) -> String {
        let of = match (&self.path, self.inode) {
            (Some(path), _) => format!(" of /{path}"),
            (None, Some(inode)) => format!(" of inode {inode}"),
            (None, None) => String::new(),
        };
        let place = if self.what == What::Data.name() {
            format!("{} bytes at offset {}", self.bytes, self.offset)
        } else {
            self.what.clone()
        };
        let outcome = match self.outcome.as_str() {
            word if word == Outcome::Repaired.name() => "was bad, and is repaired",
            word if word == Outcome::Left.name() => "is bad in one copy, and stays so",
            _ => "can't be read: lost",
        };
        format!("{place}{of}, at {:#x} of the pool, {outcome}", self.at)
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
        let looked = human(self.bytes);
        let verdict = match (self.repaired, self.left, self.lost) {
            (0, 0, 0) => "nothing is bad".to_owned(),
            (repaired, left, lost) => format!("{repaired} repaired, {left} left, {lost} lost"),
        };
        text.push_str(&format!("{}: {verdict}; {looked} looked at\n", self.target));
        text
    }
}
