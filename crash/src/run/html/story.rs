//! The story of one state: operations, power failures with the lines drawn, the verdict.

use std::fmt::Write as _;

use lode_testkit::op::Op;

use super::escape;
use crate::explore::{CutReport, Failure, Stage, StoreReport};
use crate::region::Way;
use crate::workload::pool_words;

/// Lines of one power failure that are drawn.
const DRAWN: usize = 1000;

/// The story, whose state is `wrong` or not.
pub(super) fn told(story: &Failure, wrong: bool) -> String {
    let (class, verdict) = if wrong {
        ("bad", "This state is wrong: what was found, against what was expected")
    } else {
        ("good", "Verdict")
    };
    let mut html = format!("<p class=\"{class}\">{verdict}:</p><pre>{}</pre>", escape(&story.what));
    let case = &story.case;
    html.push_str(&operations("Before, without a cut", &case.before, None));
    // Two threads are cut off in the middle of several; a bit flips behind all.
    let alone = story.path.schedule.is_none();
    let first = story.path.legs.first().filter(|leg| alone && leg.stage == Stage::Operation);
    let step = first.map(|leg| leg.step);
    html.push_str(&operations("Operations", &case.ops, step));
    html.push_str(&operations("A second thread, at the same time", &case.beside, None));
    if let Some(schedule) = &story.path.schedule {
        let _ = write!(html, "<p>How they took turns: {}.</p>", escape(&schedule.in_words()));
    }
    for (number, cut) in story.cuts.iter().enumerate() {
        html.push_str(&power_failure(number + 1, cut));
    }
    let _ = write!(html, "<p class=\"site\">pool {}</p>", escape(&pool_words(&case.geometry)));
    html
}

/// A list of operations; the power failed first in the one at `cut`, or behind the last.
fn operations(title: &str, ops: &[Op], cut: Option<usize>) -> String {
    if ops.is_empty() {
        return String::new();
    }
    let mut html = format!("<h3>{title}</h3><ol>");
    for (index, op) in ops.iter().enumerate() {
        let (class, mark) = match cut {
            Some(step) if index == step => (" class=\"cut\"", " \u{26a1} the power fails here"),
            Some(step) if index > step => (" class=\"later\"", ""),
            _ => ("", ""),
        };
        let _ = write!(html, "<li{class}><code>{}</code>{mark}</li>", escape(&op.to_string()));
    }
    if cut.is_some_and(|step| step >= ops.len()) {
        html.push_str("<li class=\"cut\">the pool is closed \u{26a1} the power fails here</li>");
    }
    html.push_str("</ol>");
    html
}

fn power_failure(number: usize, cut: &CutReport) -> String {
    if let Some(bit) = &cut.bit {
        let (place, bit) = (escape(&cut.place), escape(bit));
        return format!("<h3>One bit flips {place}</h3><p>{bit}</p>");
    }
    if let Some(bad) = &cut.bad {
        let (place, bad) = (escape(&cut.place), escape(bad));
        return format!("<h3>Memory can't be loaded {place}</h3><p>{bad}</p>");
    }
    let at = match cut.fence {
        Some(site) => format!("at the fence of <code>{}</code>", escape(&site.to_string())),
        None => "after its last fence".to_owned(),
    };
    let place = escape(&cut.place);
    let mut html = format!("<h3>Power failure {number}: {place}</h3><p>{at}</p>");
    if cut.stores.is_empty() {
        html.push_str("<p>Nothing was in flight.</p>");
        return html;
    }
    html.push_str(
        "<p>Stores in flight, a row each; a box is an 8-byte word of the 64-byte line: \
         <span class=\"word kept\">#</span> reached the memory, \
         <span class=\"word lost\">.</span> was lost, \
         <span class=\"word\"></span> is not of this store.</p>",
    );
    let rows = cut.rows();
    for row in rows.iter().take(DRAWN) {
        html.push_str(&line(row));
    }
    if rows.len() > DRAWN {
        let _ = write!(html, "<p>and {} more</p>", rows.len() - DRAWN);
    }
    html
}

fn line(store: &StoreReport) -> String {
    let boxes: String = (0..8)
        .map(|word| match (store.words >> word & 1 == 1, store.kept >> word & 1 == 1) {
            (true, true) => "<span class=\"word kept\">#</span>",
            (true, false) => "<span class=\"word lost\">.</span>",
            (false, _) => "<span class=\"word\"></span>",
        })
        .collect();
    let how = match store.way {
        Way::Cached => "cached",
        Way::Words => "streamed",
        Way::Whole => "streamed whole",
    };
    format!(
        "<div class=\"line\"><span>{:#08x}</span><span class=\"words\">{boxes}</span>\
         <span class=\"site\">{how} by {}</span></div>\n",
        store.line,
        escape(&store.site.to_string())
    )
}
