//! What became of injections, counted.

use std::collections::BTreeMap;

use lode_engine::Protection;
use serde::Serialize;

use super::damage::{Copies, Form, Phase};
use super::place::Kind;

/// What became of an injection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Everything was there, and right, and both copies are again.
    Whole,
    /// Bytes that have no checksum at this level were what the damage made of them, and no others; or a log's last
    /// record was missing where nothing tells that from a crash.
    Unprotected,
    /// Something was refused, with an error; all else was right.
    Refused,
    /// Something was given up by a salvage, which said so; all else was right.
    Lost,
    /// Something is not as it should be that is known, and not mended yet: docs/crash-model.md names these.
    Open,
    /// Something was shown that is not so, or was refused or lost that must not be.
    Wrong,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 6] = [
        Verdict::Whole,
        Verdict::Unprotected,
        Verdict::Refused,
        Verdict::Lost,
        Verdict::Open,
        Verdict::Wrong,
    ];

    /// Whether that is as it should be.
    pub const fn is_right(self) -> bool {
        !matches!(self, Verdict::Open | Verdict::Wrong)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Whole => "whole",
            Verdict::Unprotected => "unprotected",
            Verdict::Refused => "refused",
            Verdict::Lost => "lost",
            Verdict::Open => "open",
            Verdict::Wrong => "wrong",
        }
    }
}

/// What was injected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    /// Level of the pool.
    pub level: Protection,
    /// What was damaged.
    pub kind: Kind,
    /// Which copies of it.
    pub copies: Copies,
    /// How.
    pub form: Form,
    /// When.
    pub phase: Phase,
}

/// Verdicts by what was injected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    rows: BTreeMap<Row, [u64; Verdict::ALL.len()]>,
}

impl Tally {
    /// Counts one.
    pub fn note(&mut self, row: Row, verdict: Verdict) {
        self.rows.entry(row).or_default()[verdict as usize] += 1;
    }

    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        for (row, counts) in &other.rows {
            let mine = self.rows.entry(*row).or_default();
            mine.iter_mut().zip(counts).for_each(|(mine, count)| *mine += count);
        }
    }

    /// All rows, each with its counts by [`Verdict`].
    pub fn rows(&self) -> impl Iterator<Item = (&Row, &[u64; Verdict::ALL.len()])> {
        self.rows.iter()
    }

    /// Injections with this verdict.
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.rows.values().map(|counts| counts[verdict as usize]).sum()
    }

    /// The worst verdict that there is.
    pub fn worst(&self) -> Option<Verdict> {
        Verdict::ALL.into_iter().rev().find(|verdict| self.count(*verdict) > 0)
    }

    /// All injections.
    pub fn all(&self) -> u64 {
        self.rows.values().flatten().sum()
    }
}

/// A row, as it is printed.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Printed {
    pub level: &'static str,
    pub kind: &'static str,
    pub copies: &'static str,
    pub form: &'static str,
    pub phase: &'static str,
    pub injections: u64,
    pub whole: u64,
    pub unprotected: u64,
    pub refused: u64,
    pub lost: u64,
    pub open: u64,
    pub wrong: u64,
}

impl Tally {
    /// All rows with words.
    pub fn printed(&self) -> Vec<Printed> {
        let print = |(row, counts): (&Row, &[u64; Verdict::ALL.len()])| {
            let [whole, unprotected, refused, lost, open, wrong] = *counts;
            Printed {
                level: row.level.name(),
                kind: row.kind.name(),
                copies: row.copies.name(),
                form: row.form.name(),
                phase: row.phase.name(),
                injections: counts.iter().sum(),
                whole,
                unprotected,
                refused,
                lost,
                open,
                wrong,
            }
        };
        self.rows.iter().map(print).collect()
    }
}
