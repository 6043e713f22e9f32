//! Block devices: the paper's figures, as bars of bytes a second, and of times where memory is slower.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::plots::{Area, Drawn, WIDTH, all, drawn, figure, font};
use super::{escape, time};
use crate::block::cell::Cell;
use crate::block::figures::FIGURES;
use crate::block::remote::Asked;
use crate::block::slower::Shape;
use crate::report::Row;

const BAR: i32 = 20;
/// Pixels for the names of subjects, and for the text behind a bar.
const NAMES: i32 = 140;
const TEXT: i32 = 80;

/// Whether a row is of a block device.
pub(super) fn is_of(row: &Row) -> bool {
    ["sequential", "random", "slower"].contains(&row.mode.as_str())
}

/// All figures that there are rows for.
pub(super) fn figures(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| is_of(row)).collect();
    let mut text = String::new();
    for one in &FIGURES {
        let cells = Cell::all().into_iter().filter(one.has);
        let plots = all(cells.filter_map(|cell| {
            let name = cell.workload();
            let of = |subject: &&str| {
                let same = |row: &&&Row| {
                    row.workload == name
                        && row.mode == cell.order.name()
                        && row.threads == cell.depth
                        && row.subject == *subject
                };
                rows.iter().find(same).copied()
            };
            let bars: Vec<&Row> = one.subjects.iter().filter_map(of).collect();
            rates(&cell.short(), &bars)
        }));
        section(&mut text, one.title, "Bytes a second, of all threads: longer is faster.", &plots);
    }
    let slower = Shape::ALL.iter().map(|shape| shape.name());
    let slower = all(slower.filter_map(|name| {
        let bars: Vec<&Row> = rows.iter().filter(|row| row.workload == name).copied().collect();
        bars_of(name, &bars, (|row| row.ns_per_op, |row| time(row.ns_per_op)), colour)
    }));
    let about = "Time of one unit of a program's work, on memory that takes so many times as long: shorter is faster.";
    section(&mut text, "Figure 15: slower memory", about, &slower);
    let remote = all(Asked::all().into_iter().filter_map(|asked| {
        let same = |row: &&&Row| row.workload == asked.workload() && row.threads == asked.depth;
        let bars: Vec<&Row> = rows.iter().filter(same).copied().collect();
        rates(&format!("{}, depth {}", asked.workload(), asked.depth), &bars)
    }));
    let about = "The same client, fio's. nbdkit's plugin forgets all when it ends.";
    section(&mut text, "By NBD", about, &remote);
    text
}

pub(super) fn section(text: &mut String, title: &str, about: &str, plots: &str) {
    if !plots.is_empty() {
        *text += &format!("<h2>{}</h2><p class=\"faint\">{about}</p>{plots}", escape(title));
    }
}

fn rates(title: &str, rows: &[&Row]) -> Option<String> {
    let rate = |row: &Row| row.ops_per_s * row.size as f64;
    let text = |row: &Row| match rate(row) {
        rate if rate < 1e9 => format!("{:.0} MB/s", rate / 1e6),
        rate => format!("{:.2} GB/s", rate / 1e9),
    };
    bars_of(title, rows, (rate, text), colour)
}

/// A plot of bars, as long as the value of each row and told by a text, each in its subject's colour; none of no rows.
pub(super) fn bars_of(
    title: &str,
    rows: &[&Row],
    (value, text): (impl Fn(&Row) -> f64, impl Fn(&Row) -> String),
    colour: fn(&str) -> RGBColor,
) -> Option<String> {
    let most = rows.iter().map(|row| value(row)).fold(0.0, f64::max);
    let height = rows.len() as i32 * BAR + 4;
    (most > 0.0).then(|| {
        let draw = |area: &Area<'_>| bars(area, rows, (&|row| value(row) / most, &text), colour);
        figure(title, &drawn(height as u32, draw))
    })
}

/// How long a bar is, as a part of the room, and the text behind it.
type Shown<'a> = (&'a dyn Fn(&Row) -> f64, &'a dyn Fn(&Row) -> String);

fn bars(
    area: &Area<'_>,
    rows: &[&Row],
    (part, text): Shown<'_>,
    colour: fn(&str) -> RGBColor,
) -> Drawn {
    let room = f64::from(WIDTH as i32 - NAMES - TEXT);
    for (row, top) in rows.iter().zip((0..).step_by(BAR as usize)) {
        let (to, middle) = (NAMES + (part(row) * room) as i32, top + BAR / 2);
        let bar = [(NAMES, top + 3), (to, top + BAR - 3)];
        area.draw(&Rectangle::new(bar, colour(&row.subject).filled()))?;
        let end = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(row.subject.clone(), (NAMES - 6, middle), end))?;
        let begin = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(text(row), (to + 6, middle), begin))?;
    }
    Ok(())
}

/// What asks for nothing grey, keys and their like green, page tables by their kind.
fn colour(subject: &str) -> RGBColor {
    match subject {
        "volume-once" | "nbdkit-memory" => RGBColor(0x8a, 0x90, 0x99),
        limit if limit.ends_with("limit") => RGBColor(0x8a, 0x90, 0x99),
        "none" => RGBColor(0x7d, 0xb4, 0xe6),
        "key" | "key-rw" => RGBColor(0x1b, 0x9e, 0x77),
        "private-map" => RGBColor(0x8e, 0x6a, 0xc8),
        "cached" | "clwb" | "clflush" => RGBColor(0xb0, 0x8b, 0x3a),
        page_tables if page_tables.starts_with("mprotect") => RGBColor(0xd9, 0x5f, 0x02),
        _ => RGBColor(0x2f, 0x7f, 0xd0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn each_workload_of_a_figure_has_its_bars() {
        let row = |workload: &str, mode: &str, subject: &str, threads| Row {
            workload: workload.to_owned(),
            mode: mode.to_owned(),
            subject: subject.to_owned(),
            threads,
            ..sample().rows.swap_remove(0)
        };
        let rows = [
            row("write-4k", "random", "none", 1),
            row("write-4k", "random", "mprotect", 1),
            row("analysis", "slower", "read x2, write x1", 1),
            row("nbd-read-4k", "random", "lode-raw", 16),
        ];
        let page = figures(&rows);
        for part in ["Figure 3", "WR-RND-sz4-Q1", "mprotect", "Figure 15", "read x2", "depth 16"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("RD-SEQ"), "there is no row of it");
        assert!(rows.iter().all(is_of) && !sample().rows.iter().any(is_of));
        assert_eq!(figures(&sample().rows), "");
    }
}
