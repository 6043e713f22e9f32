//! `lode crash corrupt`: what became of damage, by what was damaged.

use std::collections::BTreeMap;

use lode_crash::corrupt::{Injected, InjectionId, Outcome, Printed, Verdict};
use lode_crash::run::html::figure;
use serde::Serialize;

use super::crash::numbers;
use crate::output::Report;

/// A run.
#[derive(Serialize)]
pub(crate) struct CorruptReport {
    injections: u64,
    /// Those that there was no time for.
    injections_left_out: u64,
    pools: u64,
    seed: u64,
    whole: u64,
    unprotected: u64,
    refused: u64,
    lost: u64,
    open: u64,
    wrong: u64,
    rows: Vec<Printed>,
    failed: Vec<FailedReport>,
    seconds: f64,
}

/// An injection after which something is not as it should be.
#[derive(Serialize)]
pub(crate) struct FailedReport {
    id: String,
    verdict: &'static str,
    damage: String,
    what: String,
}

impl CorruptReport {
    /// Of what came of a run of so many.
    pub(crate) fn new(outcome: &Outcome, seed: u64, wanted: u64) -> Self {
        let tally = &outcome.tally;
        let count = |verdict| tally.count(verdict);
        let failed = outcome.failed.iter().map(|one| FailedReport {
            id: one.id.to_string(),
            verdict: one.verdict.name(),
            damage: one.damage.clone(),
            what: one.what.clone(),
        });
        Self {
            injections: tally.all(),
            injections_left_out: wanted - tally.all(),
            pools: outcome.bases,
            seed,
            whole: count(Verdict::Whole),
            unprotected: count(Verdict::Unprotected),
            refused: count(Verdict::Refused),
            lost: count(Verdict::Lost),
            open: count(Verdict::Open),
            wrong: count(Verdict::Wrong),
            rows: tally.printed(),
            failed: failed.collect(),
            seconds: outcome.time.as_secs_f64(),
        }
    }
}

impl Report for CorruptReport {
    fn text(&self) -> String {
        let mut sums: BTreeMap<[&str; 3], [u64; 7]> = BTreeMap::new();
        for row in &self.rows {
            let counts = [
                row.injections,
                row.whole,
                row.unprotected,
                row.refused,
                row.lost,
                row.open,
                row.wrong,
            ];
            let sum = sums.entry([row.level, row.kind, row.copies]).or_default();
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let heads =
            ["damaged", "injections", "whole", "unprotected", "refused", "lost", "open", "wrong"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for ([level, kind, copies], counts) in &sums {
            let name = format!("{level}: {kind}, {copies}");
            rows.push([name].into_iter().chain(counts.iter().map(u64::to_string)).collect());
        }
        let mut text = numbers(&rows);
        let each_second = figure(self.injections as f64 / self.seconds.max(0.001));
        text += &format!(
            "\n{} injections into {} pools in {:.1} s ({each_second} a second): {} whole, {} unprotected, \
             {} refused, {} lost, {} open, {} wrong\n",
            figure(self.injections as f64),
            figure(self.pools as f64),
            self.seconds,
            figure(self.whole as f64),
            figure(self.unprotected as f64),
            figure(self.refused as f64),
            figure(self.lost as f64),
            figure(self.open as f64),
            figure(self.wrong as f64),
        );
        if self.injections_left_out > 0 {
            let left_out = figure(self.injections_left_out as f64);
            text += &format!("Not injected, for want of time or after many failures: {left_out}\n");
        }
        for FailedReport { id, verdict, damage, what } in &self.failed {
            let verdict = verdict.to_uppercase();
            text += &format!("\n{verdict} {id}\n  {damage}\n  {what}\n");
            text += &format!("See it again: lode crash corrupt {id}\n");
        }
        text
    }
}

/// One injection.
#[derive(Serialize)]
pub(crate) struct InjectionReport {
    id: String,
    pool: String,
    damage: String,
    /// What became of it.
    verdict: String,
    what: Option<String>,
    wrong: bool,
}

impl InjectionReport {
    /// Of one that was run.
    pub(crate) fn new(id: InjectionId, injected: &Injected) -> Self {
        let verdict = injected.verdict;
        Self {
            id: id.to_string(),
            pool: injected.pool.clone(),
            damage: injected.damage.clone(),
            verdict: verdict.name().to_owned(),
            what: injected.what.clone(),
            wrong: !verdict.is_right(),
        }
    }
}

impl Report for InjectionReport {
    fn text(&self) -> String {
        let what = self.what.as_deref().map_or(String::new(), |what| format!(": {what}"));
        let Self { id, pool, damage, verdict, .. } = self;
        format!("{id}\nPool: {pool}\nDamage: {damage}\n{verdict}{what}\n")
    }
}
