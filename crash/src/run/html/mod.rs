//! Reports as one page each: nothing is loaded from anywhere, light or dark as the reader has it.

mod story;

use std::fmt::Write as _;

use super::{Mutant, MutantReport, ReplayId, Report, Story};
use crate::explore::Failure;

const STYLE: &str = include_str!("style.css");

/// A run: how it was made, in words, its table, and its failures.
pub fn run_page(report: &Report, stories: &[Story], how: &str) -> String {
    let mut body = String::new();
    let verdict = match report.failures {
        0 if report.is_empty() => "<p class=\"bad\">Nothing was looked at.</p>".to_owned(),
        0 if report.cases_left_out > 0 => {
            "<p class=\"good\">No failing state in what was looked at.</p>".to_owned()
        }
        0 => "<p class=\"good\">No failing state.</p>".to_owned(),
        1 => "<p class=\"bad\">1 failure.</p>".to_owned(),
        many => format!("<p class=\"bad\">{many} failures.</p>"),
    };
    body.push_str(&verdict);
    let _ = write!(body, "<p>{}</p>", escape(how));
    body.push_str(&figures(report));
    body.push_str(&operations(report));
    for story in stories {
        let _ = write!(
            body,
            "<section><h2>{}</h2><p>As it was found: <code>lode crash replay {}</code></p>",
            escape(&story.shrunk.case.name),
            escape(&story.id.to_string())
        );
        body.push_str(&story::told(&story.shrunk, true));
        let _ = write!(
            body,
            "<details><summary>As a script</summary><pre>{}</pre>\
             <p><code>lode crash replay {} --script FILE</code></p></details></section>",
            escape(&story.script()),
            escape(&story.script_id().to_string())
        );
    }
    page("Crash run", &body)
}

/// One state, of the engine without what a mutant leaves out, if there is one.
pub fn replay_page(id: &ReplayId, story: &Failure, wrong: bool, mutant: Option<Mutant>) -> String {
    let id = escape(&id.to_string());
    let name = escape(&story.case.name);
    let told = story::told(story, wrong);
    let without = mutant.map(|mutant| {
        let what = escape(&mutant.to_string());
        format!("<p class=\"bad\">The engine ran without <code>{what}</code>.</p>")
    });
    let without = without.unwrap_or_default();
    page("Crash replay", &format!("<h2>{name}</h2><p><code>{id}</code></p>{without}{told}"))
}

/// The mutants.
pub fn mutants_page(mutants: &[MutantReport]) -> String {
    let killed = mutants.iter().filter(|mutant| mutant.killed_by.is_some()).count();
    let class = if killed == mutants.len() { "good" } else { "bad" };
    let mut body = format!("<p class=\"{class}\">{killed} of {} killed</p>", mutants.len());
    let heads = ["Place", "Left out", "Killed by", "How", "Cases tried"];
    let rows = mutants.iter().map(|mutant| {
        let by = match &mutant.killed_by {
            Some(id) => format!("<code>{}</code>", escape(id)),
            None if mutant.late => "(not tried: no time)".to_owned(),
            None => "<span class=\"bad\">nothing</span>".to_owned(),
        };
        let how = escape(mutant.how.as_deref().unwrap_or_default());
        let site = format!("<code>{}</code>", escape(&mutant.site));
        [site, escape(&mutant.kind), by, how, mutant.tried.to_string()].map(text)
    });
    body.push_str(&table(&heads, rows));
    page("Mutants", &body)
}

/// A number for people: all digits of a small one, the size of a large one.
pub fn figure(number: f64) -> String {
    if number >= 1e15 {
        return format!("{number:.1e}");
    }
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn figures(report: &Report) -> String {
    let rows = [
        ("Cases, each under one profile", figure(report.cases as f64)),
        ("Of those, left out", figure(report.cases_left_out as f64)),
        ("Operations with the power failing in them", figure(report.operations as f64)),
        ("Moments at which it failed", figure(report.points as f64)),
        ("States", figure(report.states)),
        (
            "Moments of which every state of whole stores was looked at",
            figure(report.exhausted as f64),
        ),
        ("Judged", figure(report.judged as f64)),
        ("Different images among these", figure(report.distinct as f64)),
        ("Different without the file data in them", figure(report.distinct_metadata as f64)),
        ("Pruned", figure(report.pruned)),
        ("Schedules of two threads", figure(report.schedules as f64)),
        ("Bits flipped, one at a time", figure(report.flips as f64)),
        ("States with memory that can't be loaded", figure(report.poisoned as f64)),
        ("Seconds", format!("{:.1}", report.seconds)),
        ("Judged in a second", figure(report.judged_per_second)),
    ];
    let rows = rows.into_iter().map(|(name, value)| [text(name.to_owned()), number(value)]);
    table(&[], rows)
}

fn operations(report: &Report) -> String {
    let heads = ["Operation", "Points", "States", "Judged", "Pruned", "Failures"];
    let rows = report.by_operation.iter().map(|row| {
        [
            text(escape(&row.operation)),
            number(figure(row.points as f64)),
            number(figure(row.states)),
            number(figure(row.judged as f64)),
            number(figure(row.pruned)),
            number(row.failures.to_string()),
        ]
    });
    table(&heads, rows)
}

/// A cell of a table, made.
struct Cell(String);

fn text(html: String) -> Cell {
    Cell(format!("<td>{html}</td>"))
}

fn number(html: String) -> Cell {
    Cell(format!("<td class=\"number\">{html}</td>"))
}

fn table<const N: usize>(heads: &[&str], rows: impl Iterator<Item = [Cell; N]>) -> String {
    let mut html = String::from("<div class=\"wide\"><table>");
    if !heads.is_empty() {
        let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
        let _ = write!(html, "<thead><tr>{heads}</tr></thead>");
    }
    html.push_str("<tbody>");
    for row in rows {
        let cells: String = row.into_iter().map(|cell| cell.0).collect();
        let _ = writeln!(html, "<tr>{cells}</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    )
}

/// Text that is no markup.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_can_be_read() {
        let all = [0.0, 999.0, 1234.0, 1_234_567.0, 1.25e18].map(figure);
        assert_eq!(all, ["0", "999", "1,234", "1,234,567", "1.2e18"]);
    }

    #[test]
    fn markup_in_a_text_is_text() {
        assert_eq!(escape("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
    }
}
