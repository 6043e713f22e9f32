//! Plots as SVG text. Colours are told apart in light and dark; black is what the page's style
//! turns into the colour of its text.

use std::collections::BTreeMap;
use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{escape, time};
use crate::report::{Breakdown, Row};

/// A row of a plot of bars.
const BAR: u32 = 22;
/// Pixels for the names of subjects.
const NAMES: u32 = 130;
pub(super) const WIDTH: u32 = 520;
/// Pixels for the text behind a bar.
const FIGURES: u32 = 70;

/// What each subject is drawn in.
fn colour(subject: &str) -> RGBColor {
    match subject {
        "limit" => RGBColor(0x8a, 0x90, 0x99),
        "lode-library" => RGBColor(0x1b, 0x9e, 0x77),
        "lode-mount" => RGBColor(0x2f, 0x7f, 0xd0),
        "null-fuse" => RGBColor(0x7d, 0xb4, 0xe6),
        "tmpfs" => RGBColor(0xb0, 0x8b, 0x3a),
        "ext4" => RGBColor(0xd9, 0x5f, 0x02),
        "ext4-journal" => RGBColor(0xe8, 0x9a, 0x5b),
        "xfs" => RGBColor(0xc2, 0x4b, 0x8f),
        "btrfs" => RGBColor(0x8e, 0x6a, 0xc8),
        _ => RGBColor(0x5c, 0x7f, 0x6b),
    }
}

/// The rows of each workload and mode, in the order they were measured.
fn groups<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(String, Vec<&'a Row>)> {
    let mut all: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let name = format!("{}, {}", row.title(), row.mode);
        match all.iter_mut().find(|(of, _)| *of == name) {
            Some((_, rows)) => rows.push(row),
            None => all.push((name, vec![row])),
        }
    }
    all
}

pub(super) fn figure(title: &str, svg: &str) -> String {
    format!("<figure><h3>{}</h3>{svg}</figure>\n", escape(title))
}

pub(super) fn all(figures: impl Iterator<Item = String>) -> String {
    let figures: String = figures.collect();
    if figures.is_empty() { figures } else { format!("<div class=\"plots\">{figures}</div>\n") }
}

/// A group of bars for each workload that one thread did.
pub fn times(rows: &[Row]) -> String {
    let alone = rows.iter().filter(|row| row.threads == 1);
    all(groups(alone).iter().map(|(_, rows)| {
        let title = rows.first().map(|row| row.title()).unwrap_or_default();
        figure(&title, &drawn(rows.len() as u32 * BAR + 4, |area| bars(area, rows)))
    }))
}

/// Curves for each workload that was done by several numbers of threads.
pub fn scaling(rows: &[Row]) -> String {
    let several = rows.iter().filter(|row| row.threads > 1);
    all(groups(several).iter().map(|(name, group)| {
        let curves = curves_of(rows, group);
        figure(name, &drawn(240, |area| lines(area, &curves)))
    }))
}

/// Points of threads and how many times as much they do as one, by subject.
type Curves = BTreeMap<String, Vec<(f64, f64)>>;

fn curves_of(rows: &[Row], group: &[&Row]) -> Curves {
    let mut curves = Curves::new();
    for row in group {
        let same = |one: &Row| {
            (&one.workload, &one.subject, one.size) == (&row.workload, &row.subject, row.size)
        };
        let one = rows.iter().find(|one| one.threads == 1 && same(one));
        let Some(one) = one.filter(|one| one.ops_per_s > 0.0) else { continue };
        let curve = curves.entry(row.subject.clone()).or_insert_with(|| vec![(1.0, 1.0)]);
        curve.push((row.threads as f64, row.ops_per_s / one.ops_per_s));
    }
    curves
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(super) type Drawn = Result<(), Box<dyn Error>>;

/// The text of a plot; empty where it can't be drawn, which is no reason to lose the report.
pub(super) fn drawn(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let outcome = draw(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    match outcome {
        // As part of a page it is no document of its own.
        Ok(()) => svg.split_once("?>").map_or(svg.clone(), |(_, rest)| rest.to_owned()),
        Err(_) => String::new(),
    }
}

pub(super) fn font(pixels: u32) -> TextStyle<'static> {
    ("sans-serif", pixels).into_font().color(&BLACK)
}

/// Horizontal bars, the logarithm of nanoseconds to the right.
fn bars(area: &Area<'_>, rows: &[&Row]) -> Drawn {
    let times = || rows.iter().map(|row| row.ns_per_op.max(0.1));
    let least = times().fold(f64::MAX, f64::min).log10().floor() - 0.3;
    let most = times().fold(0.0, f64::max).log10().max(least + 1.0);
    let room = f64::from(WIDTH - NAMES - FIGURES);
    let place = |ns: f64| {
        let part = ((ns.max(0.1).log10() - least) / (most - least)).clamp(0.0, 1.0);
        NAMES as i32 + (part * room) as i32
    };
    for power in (least.ceil() as i32)..=(most.floor() as i32) {
        let at = place(10f64.powi(power));
        let line = [(at, 0), (at, (rows.len() as u32 * BAR) as i32)];
        area.draw(&PathElement::new(line, RGBColor(0x80, 0x80, 0x80).stroke_width(1)))?;
    }
    for (row, top) in rows.iter().zip((0..).step_by(BAR as usize)) {
        let (from, to, middle) = (NAMES as i32, place(row.ns_per_op), top + BAR as i32 / 2);
        let bar = [(from, top + 3), (to, top + BAR as i32 - 4)];
        area.draw(&Rectangle::new(bar, colour(&row.subject).filled()))?;
        let half = row.spread / 2.0;
        let whisker =
            [place(row.ns_per_op * (1.0 - half).max(0.0)), place(row.ns_per_op * (1.0 + half))];
        let [left, right] = whisker.map(|at| (at, middle));
        area.draw(&PathElement::new([left, right], BLACK.stroke_width(1)))?;
        let end = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(row.subject.clone(), (from - 6, middle), end))?;
        let begin = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(time(row.ns_per_op), (right.0.max(to) + 6, middle), begin))?;
    }
    Ok(())
}

/// What each part of an operation is drawn in, in the order of [`Breakdown::parts`].
const PARTS: [RGBColor; 8] = [
    RGBColor(0x2f, 0x7f, 0xd0),
    RGBColor(0xd9, 0x5f, 0x02),
    RGBColor(0xb0, 0x8b, 0x3a),
    RGBColor(0x1b, 0x9e, 0x77),
    RGBColor(0xc2, 0x4b, 0x8f),
    RGBColor(0x8e, 0x6a, 0xc8),
    RGBColor(0x7d, 0xb4, 0xe6),
    RGBColor(0x8a, 0x90, 0x99),
];

/// A bar of parts for each operation that was looked into, with a legend.
pub fn parts(all_of: &[Breakdown]) -> String {
    let height = (all_of.len() as u32 + 2) * BAR + 4;
    all([figure("", &drawn(height, |area| stacks(area, all_of)))].into_iter())
}

fn stacks(area: &Area<'_>, all: &[Breakdown]) -> Drawn {
    let room = f64::from(WIDTH - NAMES - FIGURES);
    for (one, top) in all.iter().zip((0..).step_by(BAR as usize)) {
        let middle = top + BAR as i32 / 2;
        let mut from = f64::from(NAMES);
        for ((_, ns), colour) in one.parts().into_iter().zip(PARTS) {
            let to = from + ns / one.ns_per_op.max(1e-9) * room;
            let bar = [(from as i32, top + 3), (to as i32, top + BAR as i32 - 4)];
            area.draw(&Rectangle::new(bar, colour.filled()))?;
            from = to;
        }
        let end = font(11).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(one.title(), (NAMES as i32 - 6, middle), end))?;
        let begin = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(time(one.ns_per_op), (from as i32 + 6, middle), begin))?;
    }
    let names = all.first().map(|one| one.parts()).unwrap_or_default();
    for (((name, _), colour), number) in names.into_iter().zip(PARTS).zip(0_i32..) {
        // In two lines.
        let (left, line) = (4 + number % 4 * 128, all.len() as i32 + number / 4);
        let top = line * BAR as i32;
        let square = [(left, top + 6), (left + 10, top + 16)];
        area.draw(&Rectangle::new(square, colour.filled()))?;
        let style = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name, (left + 15, top + 11), style))?;
    }
    Ok(())
}

/// Curves over the number of threads, with a legend.
fn lines(area: &Area<'_>, curves: &Curves) -> Drawn {
    let points = || curves.values().flatten();
    let most_threads = points().map(|point| point.0).fold(2.0, f64::max);
    let most = points().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let (plot, legend) = area.split_horizontally(WIDTH - NAMES);
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(36)
        .build_cartesian_2d(1.0..most_threads, 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(most_threads as usize)
        .y_labels(5)
        .x_label_formatter(&|threads| format!("{threads:.0}"))
        .y_label_formatter(&|times| format!("{times:.1}"))
        .bold_line_style(RGBColor(0x80, 0x80, 0x80))
        .light_line_style(TRANSPARENT)
        .axis_style(RGBColor(0x80, 0x80, 0x80))
        .label_style(font(12))
        .draw()?;
    for ((subject, points), top) in curves.iter().zip((10..).step_by(20)) {
        let line = colour(subject).stroke_width(2);
        chart.draw_series([PathElement::new(points.clone(), line)])?;
        legend.draw(&PathElement::new([(4, top), (20, top)], line))?;
        let style = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(subject.clone(), (26, top), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn each_workload_has_its_bars_and_each_of_several_threads_its_curves() {
        let rows = sample().rows;
        assert_eq!(times(&rows).matches("<svg").count(), 2);
        let curves = scaling(&rows);
        assert_eq!(curves.matches("<svg").count(), 1);
        assert!(curves.contains("append-4k, private"), "{curves}");
    }

    #[test]
    fn curves_are_multiples_of_one_thread() {
        let rows = sample().rows;
        let several: Vec<_> = rows.iter().filter(|row| row.threads > 1).collect();
        let curves = curves_of(&rows, &several);
        assert_eq!(curves["limit"], [(1.0, 1.0), (2.0, 1.6)]);
        assert_eq!(curves.len(), 1);
    }

    #[test]
    fn a_curve_begins_with_one_thread_that_did_the_same_size() {
        let row = |size, threads, ops_per_s| {
            let row = sample().rows.swap_remove(0);
            Row { workload: "mount-clean".into(), size, threads, ops_per_s, ..row }
        };
        let rows = [row(1_000, 1, 90.0), row(10_000, 1, 10.0), row(10_000, 2, 15.0)];
        let curves = curves_of(&rows, &[&rows[2]]);
        assert_eq!(curves["limit"], [(1.0, 1.0), (2.0, 1.5)]);
    }

    #[test]
    fn parts_stand_behind_each_other_and_fill_the_bar() {
        let svg = parts(&sample().breakdown);
        for name in ["copy", "fences", "allocation", "index", "record", "rest", "append-4k"] {
            assert!(svg.contains(name), "{name}: {svg}");
        }
        // Half of the room is the first part's.
        let (from, to) = (NAMES, NAMES + (WIDTH - NAMES - FIGURES) / 2);
        let bar = format!("x=\"{from}\" y=\"3\" width=\"{}\"", to - from);
        assert!(svg.contains(&bar), "{bar} in {svg}");
    }

    #[test]
    fn nothing_is_no_plot() {
        assert_eq!((times(&[]), scaling(&[])), (String::new(), String::new()));
    }
}
