//! `lode crash`: what was explored, one state, mutants.

use std::path::Path;
use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::run::html::{self, figure};
use lode_crash::run::{MutantReport, Report as Explored, Story};
use lode_crash::workload::refused;
use serde::Serialize;

use crate::output::Report;

/// Operations that fail, as far as they are printed.
const REFUSED_SHOWN: usize = 10;
/// Columns of the table of mutants.
const COLUMNS: usize = 100;

/// `lode crash run`.
#[derive(Serialize)]
pub(crate) struct RunReport {
    /// What was explored and found.
    #[serde(flatten)]
    explored: Explored,
    /// What a crash was.
    profiles: Vec<String>,
    /// What decided everything random.
    seed: u64,
    /// What was not looked at, in words.
    left_out: String,
    /// The file with the sequence.
    script: Option<String>,
    /// Operations of the sequence that fail, as they must, each with why.
    refused: Vec<RefusedReport>,
    /// Mutants that were tried: a run has none.
    mutants: usize,
    /// Of those, the ones that were noticed.
    mutants_killed: usize,
}

/// An operation that fails.
#[derive(Serialize)]
pub(crate) struct RefusedReport {
    /// Its line.
    operation: String,
    /// Why.
    why: String,
}

impl RunReport {
    /// Of a run.
    pub(crate) fn new(
        explored: Explored,
        profiles: Vec<String>,
        seed: u64,
        left_out: &str,
        script: Option<(&Path, &Case)>,
    ) -> Self {
        let left_out = left_out.to_owned();
        let refused = script.map(|(_, case)| refused(case)).unwrap_or_default().into_iter();
        let refused =
            refused.map(|(operation, why)| RefusedReport { operation, why: why.to_string() });
        let refused = refused.collect();
        let script = script.map(|(path, _)| path.display().to_string());
        Self { explored, profiles, seed, left_out, script, refused, mutants: 0, mutants_killed: 0 }
    }

    /// Whether nothing was looked at of what should have been.
    pub(crate) fn is_empty(&self) -> bool {
        self.explored.is_empty()
    }

    /// As a page, with the stories of its failures.
    pub(crate) fn page(&self, stories: &[Story]) -> String {
        let mut how = format!("Profiles: {}. Seed {}.", self.profiles.join(", "), self.seed);
        if !self.left_out.is_empty() {
            how.push_str(&format!(" Left out: {}.", self.left_out));
        }
        html::run_page(&self.explored, stories, &how)
    }

    fn failures(&self) -> String {
        let mut text = String::new();
        let script = match &self.script {
            Some(path) => format!(" --script {path}"),
            None => String::new(),
        };
        for one in &self.explored.failed {
            let (id, what) = (&one.id, &one.text);
            text.push_str(&format!("\nFAILURE {id}\n{what}"));
            text.push_str(&format!("See it as it was found: lode crash replay {id}{script}\n"));
            text.push_str(&format!(
                "What is left of it as a script (lode crash replay {} --script FILE):\n",
                one.script_id
            ));
            one.script.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
        }
        text
    }

    fn summary(&self) -> String {
        let Explored { cases, cases_left_out, seconds, judged_per_second, .. } = self.explored;
        let mut text = format!(
            "{} cases under {} in {seconds:.1} s: {} states judged ({} a second), {} of them \
             different images ({} without the file data in them); {} pruned apart\n",
            figure((cases - cases_left_out) as f64),
            self.profiles.join(", "),
            figure(self.explored.judged as f64),
            figure(judged_per_second),
            figure(self.explored.distinct as f64),
            figure(self.explored.distinct_metadata as f64),
            figure(self.explored.pruned),
        );
        text.push_str(&format!(
            "{} of {} points exhausted: every state of whole stores was judged, or looks like one that was\n",
            figure(self.explored.exhausted as f64),
            figure(self.explored.points as f64),
        ));
        if self.explored.threads > 0 {
            let Explored { schedules, threads, threads_cut_short, .. } = self.explored;
            let [schedules, threads, cut] =
                [schedules, threads, threads_cut_short].map(|count| figure(count as f64));
            text.push_str(&format!(
                "{schedules} schedules of {threads} cases of two threads; {cut} of them have more\n"
            ));
        }
        if self.explored.flips > 0 {
            let flips = figure(self.explored.flips as f64);
            text.push_str(&format!("{flips} bits flipped, one at a time\n"));
        }
        if self.explored.poisoned > 0 {
            let poisoned = figure(self.explored.poisoned as f64);
            text.push_str(&format!("{poisoned} states in which memory could not be loaded, too\n"));
        }
        if cases_left_out > 0 {
            let cases = figure(cases_left_out as f64);
            text.push_str(&format!(
                "Not begun, or cut short by time, failures or an interrupt: {cases} cases\n"
            ));
        }
        if self.explored.no_space > 0 {
            let times = figure(self.explored.no_space as f64);
            text.push_str(&format!(
                "Found no space, and left everything as it was: {times} operations\n"
            ));
        }
        for RefusedReport { operation, why } in self.refused.iter().take(REFUSED_SHOWN) {
            text.push_str(&format!("Fails, as it must: {operation}: {why}\n"));
        }
        if let Some(more) = self.refused.len().checked_sub(REFUSED_SHOWN).filter(|more| *more > 0) {
            text.push_str(&format!("and {more} more\n"));
        }
        if !self.left_out.is_empty() {
            text.push_str(&format!("Left out: {}\n", self.left_out));
        }
        text
    }
}

impl Report for RunReport {
    fn text(&self) -> String {
        let heads = ["operation", "points", "states", "judged", "pruned", "failures"];
        let row = |name: &str, points: u64, states: f64, judged: u64, pruned: f64, bad: usize| {
            let (points, judged) = (figure(points as f64), figure(judged as f64));
            vec![name.into(), points, figure(states), judged, figure(pruned), bad.to_string()]
        };
        let one = &self.explored;
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(
            one.by_operation.iter().map(|of| {
                row(&of.operation, of.points, of.states, of.judged, of.pruned, of.failures)
            }),
        );
        rows.push(row("all", one.points, one.states, one.judged, one.pruned, one.failures));
        let verdict = match one.failures {
            0 if self.is_empty() => "Nothing was looked at.\n".to_owned(),
            0 if self.explored.cases_left_out > 0 => {
                "No failing state in what was looked at.\n".to_owned()
            }
            0 => "No failing state.\n".to_owned(),
            1 => "1 failure.\n".to_owned(),
            many => format!("{many} failures.\n"),
        };
        format!("{}\n{}{}{verdict}", numbers(&rows), self.summary(), self.failures())
    }
}

/// `lode crash replay`.
#[derive(Serialize)]
pub(crate) struct ReplayReport {
    /// The id.
    pub(crate) id: String,
    /// Name of the case.
    pub(crate) case: String,
    /// What the engine ran without, `null` for nothing.
    pub(crate) without: Option<String>,
    /// The state is wrong.
    pub(crate) wrong: bool,
    /// What was found against what was expected, or that it is right.
    pub(crate) what: String,
    /// Each power failure, with what was in flight.
    pub(crate) cuts: Vec<String>,
    /// The whole story.
    pub(crate) text: String,
    /// The case as a script.
    pub(crate) script: String,
}

impl Report for ReplayReport {
    fn text(&self) -> String {
        let verdict = if self.wrong { "WRONG" } else { "RIGHT" };
        let without = match &self.without {
            Some(mutant) => format!(" (the engine ran without {mutant})"),
            None => String::new(),
        };
        format!("{}\n{verdict}{without}: {}\n", self.text, self.what)
    }
}

/// `lode crash mutants`.
#[derive(Serialize)]
pub(crate) struct MutantsReport {
    /// All.
    pub(crate) mutants: usize,
    /// Those that were noticed.
    pub(crate) mutants_killed: usize,
    /// Those for which there was no time, or too little to be sure of them.
    pub(crate) mutants_not_tried: usize,
    /// The run without mutants came to its end: there are no other places to leave out.
    pub(crate) all_places: bool,
    /// One by one.
    verdicts: Vec<MutantReport>,
    /// States of the engine without a mutant.
    states: f64,
    /// Those judged.
    judged: u64,
    /// Those pruned.
    pruned: f64,
    /// Those that were wrong: none, or there would be no mutants.
    failures: usize,
    /// All of it.
    seconds: f64,
}

impl MutantsReport {
    /// Of the mutants, and of the run without them.
    pub(crate) fn new(verdicts: Vec<MutantReport>, sound: &Explored, time: Duration) -> Self {
        let killed = verdicts.iter().filter(|mutant| mutant.killed_by.is_some()).count();
        Self {
            mutants: verdicts.len(),
            mutants_killed: killed,
            mutants_not_tried: verdicts.iter().filter(|mutant| mutant.late).count(),
            all_places: sound.cases_left_out == 0,
            verdicts,
            states: sound.states,
            judged: sound.judged,
            pruned: sound.pruned,
            failures: sound.failures,
            seconds: time.as_secs_f64(),
        }
    }

    /// Whether time ended before all was tried.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.mutants_not_tried > 0 || !self.all_places
    }

    /// Mutants that were tried, and not noticed.
    pub(crate) fn survivors(&self) -> usize {
        self.mutants - self.mutants_killed - self.mutants_not_tried
    }
}

impl Report for MutantsReport {
    fn text(&self) -> String {
        let widest = |of: &dyn Fn(&MutantReport) -> usize, most: usize| {
            self.verdicts.iter().map(of).max().unwrap_or(0).clamp(5, most)
        };
        let site = widest(&|mutant| mutant.site.chars().count(), 40);
        let kind = widest(&|mutant| mutant.kind.chars().count(), 12);
        let by = widest(&|mutant| mutant.killed_by.as_ref().map_or(0, |id| id.chars().count()), 26);
        let how = COLUMNS.saturating_sub(site + kind + by + 6);
        let mut text = String::new();
        let mut row = |[one, two, three, four]: [&str; 4]| {
            let [one, two, three, four] = [(one, site), (two, kind), (three, by), (four, how)]
                .map(|(column, width)| shortened(column, width));
            let line = format!("{one:site$}  {two:kind$}  {three:by$}  {four}");
            text.push_str(line.trim_end());
            text.push('\n');
        };
        row(["place", "left out", "killed by", "how"]);
        for mutant in &self.verdicts {
            let nothing = if mutant.late { "(not to the end: no time)" } else { "NOTHING" };
            let by = mutant.killed_by.as_deref().unwrap_or(nothing);
            row([&mutant.site, &mutant.kind, by, mutant.how.as_deref().unwrap_or_default()]);
        }
        let untried = match self.mutants_not_tried {
            0 => String::new(),
            count => format!(", {count} not tried to the end for want of time"),
        };
        let places = match self.all_places {
            true => "",
            false => "The run without mutants was cut short: there are more places to leave out.\n",
        };
        format!(
            "{text}\n{} of {} killed ({:.1} %){untried} in {:.1} s (whole ids: --json or --html)\n{places}",
            self.mutants_killed,
            self.mutants,
            100.0 * self.mutants_killed as f64 / self.mutants.max(1) as f64,
            self.seconds
        )
    }
}

/// A text of at most so many characters.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}\u{2026}")
}

/// Rows of a name and numbers, in columns.
pub(super) fn numbers(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.push('\n');
    }
    text
}
