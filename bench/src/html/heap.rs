//! Main memory from a pool: bars of times.

use plotters::prelude::*;

use super::blocks::{bars_of, section};
use super::plots::all;
use super::time;
use crate::heap::MODE;
use crate::heap::subject::Pages;
use crate::report::Row;

/// Whether a row is of memory from a pool.
pub(super) fn is_of(row: &Row) -> bool {
    row.mode == MODE
}

/// All figures that there are rows for.
pub(super) fn figures(rows: &[Row]) -> String {
    let plot = |workload: &str| {
        let of = |row: &&Row| is_of(row) && row.workload == workload;
        let rows: Vec<&Row> = rows.iter().filter(of).collect();
        bars_of(workload, &rows, (|row| row.ns_per_op, |row| time(row.ns_per_op)), colour)
    };
    let mut text = String::new();
    let touched = all(Pages::ALL.into_iter().filter_map(|pages| plot(&pages.workload())));
    let about =
        "Asking for memory and storing to each of its pages: time for 4 KiB; shorter is faster.";
    section(&mut text, "Main memory from a pool", about, &touched);
    let about =
        "C files compiled one after the other, by the system's malloc and with memory of a pool.";
    section(&mut text, "A build", about, &all(plot("build").into_iter()));
    text
}

/// What is no pool's grey, methods each in a colour, and the paper's other ways brown and orange.
fn colour(subject: &str) -> RGBColor {
    match subject {
        "anonymous" | "anonymous-populated" | "malloc" => RGBColor(0x8a, 0x90, 0x99),
        "indirect" => RGBColor(0x2f, 0x7f, 0xd0),
        "mmap" => RGBColor(0x8e, 0x6a, 0xc8),
        "bitmap" => RGBColor(0xb0, 0x8b, 0x3a),
        "swap" => RGBColor(0xd9, 0x5f, 0x02),
        _ => RGBColor(0x1b, 0x9e, 0x77),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn each_workload_has_its_bars() {
        let row = |workload: &str, subject: &str| Row {
            workload: workload.to_owned(),
            mode: MODE.to_owned(),
            subject: subject.to_owned(),
            threads: 1,
            ..sample().rows.swap_remove(0)
        };
        let page =
            figures(&[row("touch-4k", "direct"), row("touch-4k", "swap"), row("build", "malloc")]);
        assert_eq!(page.matches("<svg").count(), 2);
        for part in ["Main memory", "touch-4k", "direct", "swap", "A build", "malloc"] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(figures(&sample().rows), "");
    }
}
