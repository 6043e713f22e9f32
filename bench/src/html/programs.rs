//! Programs on volumes: bars of times as multiples of one subject's.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::escape;
use super::plots::{Area, Drawn, WIDTH, all, drawn, figure, font};
use crate::programs::{Bar, Comparison, comparisons};
use crate::report::Row;

/// A row of a plot, and the line above that names the program.
const BAR: i32 = 20;
const HEAD: i32 = 24;
/// Pixels for the names of subjects, and for the text behind a bar.
const NAMES: i32 = 150;
const FIGURES: i32 = 64;
const GREY: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// What a subject is drawn in: memory, the pool itself, RAM disks and volumes each have a colour, and so has each guard.
fn colour(subject: &str) -> RGBColor {
    match subject {
        "tmpfs" | "ramfs" => RGBColor(0xb0, 0x8b, 0x3a),
        "lode-mount" => RGBColor(0x2f, 0x7f, 0xd0),
        "ext4-cached" | "cached-nobarrier" => RGBColor(0x8a, 0x90, 0x99),
        "ext4-unguarded" | "unguarded-nobarrier" => RGBColor(0x7d, 0xb4, 0xe6),
        "ext4-mprotect" | "mprotect-nobarrier" => RGBColor(0xc2, 0x4b, 0x8f),
        disk if disk.ends_with("-ram") => RGBColor(0xd9, 0x5f, 0x02),
        _ => RGBColor(0x1b, 0x9e, 0x77),
    }
}

/// All comparisons that these rows allow; empty where there are none.
pub(super) fn figures(rows: &[Row]) -> String {
    let mut text = String::new();
    for one in comparisons(rows) {
        let Comparison { title, about, baseline, .. } = one;
        text += &format!(
            "<h2>{}</h2><p class=\"faint\">{} Times as multiples of {}'s, which is 1 (the grey line); shorter is \
             faster; thin lines span the middle half of the rounds.</p>",
            escape(title),
            escape(about),
            escape(baseline)
        );
        let pieces = one.groups.iter().map(|(program, bars)| {
            let height = bars.len() as i32 * BAR + HEAD;
            figure(program, &drawn(height as u32, |area| draw(area, bars)))
        });
        text += &all(pieces);
    }
    text
}

fn draw(area: &Area<'_>, bars: &[Bar]) -> Drawn {
    // With room for the line at 1, and for half of the largest spread.
    let end = |bar: &Bar| bar.times * (1.0 + bar.spread / 2.0);
    let most = bars.iter().map(end).fold(1.0, f64::max);
    let room = f64::from(WIDTH as i32 - NAMES - FIGURES);
    let place = |times: f64| NAMES + (times.clamp(0.0, most) / most * room) as i32;
    let bottom = bars.len() as i32 * BAR;
    area.draw(&PathElement::new(
        [(place(1.0), 0), (place(1.0), bottom + 6)],
        GREY.stroke_width(1),
    ))?;
    let center = font(11).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new("1", (place(1.0), bottom + 8), center))?;
    for (bar, top) in bars.iter().zip((0..).step_by(BAR as usize)) {
        let middle = top + BAR / 2;
        let shape = [(NAMES, top + 3), (place(bar.times), top + BAR - 3)];
        area.draw(&Rectangle::new(shape, colour(&bar.subject).filled()))?;
        let half = bar.spread / 2.0;
        let ends = [1.0 - half, 1.0 + half].map(|part| (place(bar.times * part), middle));
        area.draw(&PathElement::new(ends, BLACK.stroke_width(1)))?;
        let right = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(bar.subject.clone(), (NAMES - 6, middle), right))?;
        let left = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(
            times(bar.times),
            (ends[1].0.max(place(bar.times)) + 6, middle),
            left,
        ))?;
    }
    Ok(())
}

fn times(times: f64) -> String {
    if times < 10.0 { format!("{times:.2} x") } else { format!("{times:.1} x") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::rows_of;

    #[test]
    fn each_program_has_a_plot_in_each_comparison_with_a_bar_for_each_subject() {
        let rows = rows_of(&[
            ("untar", "tmpfs", 100.0),
            ("untar", "ext4-volume", 300.0),
            ("tar", "tmpfs", 100.0),
            ("tar", "ext4-volume", 1500.0),
            ("tar", "cached-nobarrier", 1000.0),
        ]);
        let page = figures(&rows);
        // Memory: two; without barriers: nobody to compare; with: one.
        assert_eq!((page.matches("<svg").count(), page.matches("<h2>").count()), (3, 2));
        for part in ["3.00 x", "15.0 x", "1.50 x", "ext4-volume", "Figure 13", "Figure 12"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("Figure 10"));
    }

    #[test]
    fn a_bar_is_as_long_as_its_time() {
        let bar = |times| Bar { subject: "tmpfs".to_owned(), times, spread: 0.0 };
        let svg = drawn(100, |area| draw(area, &[bar(1.0), bar(2.0)]));
        let room = WIDTH as i32 - NAMES - FIGURES;
        for (top, width) in [(3, room / 2), (3 + BAR, room)] {
            let wanted = format!("x=\"{NAMES}\" y=\"{top}\" width=\"{width}\"");
            assert!(svg.contains(&wanted), "{wanted} in {svg}");
        }
    }

    #[test]
    fn a_run_of_something_else_has_none() {
        assert_eq!(figures(&rows_of(&[("create", "tmpfs", 1.0), ("create", "limit", 2.0)])), "");
    }
}
