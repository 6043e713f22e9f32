//! The plot of metadata at risk: as the dissertation's Figure 4.8.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::plots::{Area, Drawn, all, drawn, figure, font};
use crate::report::Risk;

/// What each scheme is drawn in, in the order they are told.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0xd9, 0x5f, 0x02),
    RGBColor(0xb0, 0x8b, 0x3a),
    RGBColor(0x8e, 0x6a, 0xc8),
    RGBColor(0x1b, 0x9e, 0x77),
];
const HEIGHT: u32 = 380;
/// Pixels for the names of the schemes, below.
const LEGEND: u32 = 44;
const PAGE: f64 = 4096.0;

/// Curves over the size of the scribble.
pub fn curves(of: &[Risk]) -> String {
    all([figure("", &drawn(HEIGHT, |area| lines(area, of)))].into_iter())
}

/// The points of a curve; none where nothing is at risk.
fn points(of: &[&Risk], value: impl Fn(&Risk) -> f64) -> Vec<(f64, f64)> {
    let point = |one: &&Risk| (one.scribble_bytes as f64, value(one));
    of.iter().map(point).filter(|(_, value)| *value > 0.0).collect()
}

fn lines(area: &Area<'_>, of: &[Risk]) -> Drawn {
    let mean = |one: &Risk| one.mean_pages * PAGE;
    let known = |one: &Risk| one.nova_mean_pages.map_or(0.0, |pages| pages * PAGE);
    let values = || of.iter().flat_map(|one| [one.max_bytes as f64, mean(one), known(one)]);
    let most = values().fold(PAGE, f64::max) * 2.0;
    let least = values().filter(|value| *value > 0.0).fold(1.0, f64::min) / 2.0;
    let last = of.iter().map(|one| one.scribble_bytes as f64).fold(2.0, f64::max);
    let (plot, legend) = area.split_vertically(HEIGHT - LEGEND);
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d(
        (1.0..last).log_scale().base(8.0),
        (least..most).log_scale().base(16.0),
    )?;
    chart
        .configure_mesh()
        .x_labels(9)
        .y_labels(9)
        .x_label_formatter(&|bytes| bytes_text(*bytes))
        .y_label_formatter(&|bytes| bytes_text(*bytes))
        .bold_line_style(RGBColor(0x80, 0x80, 0x80).mix(0.4))
        .light_line_style(TRANSPARENT)
        .axis_style(RGBColor(0x80, 0x80, 0x80))
        .label_style(font(12))
        .draw()?;
    let mut schemes: Vec<&str> = of.iter().map(|one| one.scheme.as_str()).collect();
    schemes.dedup();
    for ((scheme, colour), number) in schemes.into_iter().zip(COLOURS).zip(0..) {
        let of: Vec<&Risk> = of.iter().filter(|one| one.scheme == scheme).collect();
        let at_most = points(&of, |one| one.max_bytes as f64);
        chart.draw_series([PathElement::new(at_most, colour.stroke_width(3))])?;
        chart.draw_series([PathElement::new(points(&of, mean), colour.stroke_width(1))])?;
        let told = |one: &Risk| one.nova_max_bytes.map_or(0.0, |bytes| bytes as f64);
        let there = [points(&of, told), points(&of, known)].concat();
        let circle = |at: (f64, f64)| Circle::new(at, 4, colour.stroke_width(1));
        chart.draw_series(there.into_iter().map(circle))?;
        let (left, top) = (8 + number % 2 * 256, 10 + number / 2 * 18);
        legend.draw(&PathElement::new([(left, top), (left + 16, top)], colour.stroke_width(3)))?;
        let style = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        let modelled = of.first().is_some_and(|one| one.modelled);
        let name = if modelled { format!("{scheme} (modelled)") } else { scheme.to_owned() };
        legend.draw(&Text::new(name, (left + 22, top), style))?;
    }
    Ok(())
}

/// A number of bytes beside an axis.
fn bytes_text(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1.0 => format!("{bytes:.0e} B"),
        bytes if bytes < 1024.0 => format!("{bytes:.0} B"),
        bytes if bytes < 1048576.0 => format!("{:.0} KiB", bytes / 1024.0),
        bytes => format!("{:.0} MiB", bytes / 1048576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn each_scheme_has_its_curves_and_what_is_known_its_circles() {
        let of = sample().risk;
        let svg = curves(&of);
        assert!(svg.contains("no replication (modelled)") && svg.contains("two-way"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(points(&of.iter().collect::<Vec<_>>(), |_| 0.0), []);
        assert_eq!(
            ["0.001", "8", "4096", "67108864"].map(|n| bytes_text(n.parse().unwrap())),
            ["1e-3 B", "8 B", "4 KiB", "64 MiB"]
        );
    }
}
