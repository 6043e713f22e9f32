//! Main memory from a pool: bars of times.

use plotters::prelude::*;

use super::blocks::{bars_of, section};
use super::plots::all;
use super::time;
use crate::heap::subject::Pages;
use crate::heap::{BUILDS as WORKLOADS, MODE};
use crate::report::Row;

/// What slower memory is compared with.
const NOT_SLOW: [&str; 3] = ["direct-bare", "indirect", "mmap"];

/// Whether a row is of memory from a pool.
pub(super) fn is_of(row: &Row) -> bool {
    row.mode == MODE
}

/// All figures that there are rows for.
pub(super) fn figures(rows: &[Row]) -> String {
    let bars = |workload: &str, is_in: &dyn Fn(&Row) -> bool| {
        let of = |row: &&Row| is_of(row) && row.workload == workload && is_in(row);
        let rows: Vec<&Row> = rows.iter().filter(of).collect();
        bars_of(workload, &rows, (|row| row.ns_per_op, |row| time(row.ns_per_op)), colour)
    };
    let plot = |workload: &str| bars(workload, &|row| !row.emulated);
    let mut text = String::new();
    let touched = all(Pages::ALL.into_iter().filter_map(|pages| plot(&pages.workload())));
    let about =
        "Asking for memory and storing to each of its pages: time for 4 KiB; shorter is faster.";
    section(&mut text, "Main memory from a pool", about, &touched);
    let small = Pages::Small.workload();
    let is_slow = |row: &&Row| is_of(row) && row.emulated;
    if rows.iter().any(|row| is_slow(&row)) {
        let is_in = |row: &Row| row.emulated || NOT_SLOW.contains(&row.subject.as_str());
        let about = "The same where the server's medium takes 150 ns, or 1,000, for each line that is written, beside memory as it is. \
                     What the program stores is not slowed.";
        let slower = all(bars(&small, &is_in).into_iter());
        section(&mut text, "Figures 10 to 15: slower memory", about, &slower);
    }
    let about = "C files compiled by make -j2, and linked, by the system's malloc and with memory of a pool.";
    section(&mut text, "A build", about, &all(WORKLOADS.into_iter().filter_map(plot)));
    text
}

/// What is no pool's grey, methods each in a colour, and the paper's other ways brown and orange.
fn colour(subject: &str) -> RGBColor {
    match subject.trim_end_matches("-150ns").trim_end_matches("-1000ns") {
        "anonymous" | "anonymous-populated" | "malloc" => RGBColor(0x8a, 0x90, 0x99),
        "indirect" => RGBColor(0x2f, 0x7f, 0xd0),
        "mmap" => RGBColor(0x8e, 0x6a, 0xc8),
        "bitmap" | "bitmap-64" => RGBColor(0xb0, 0x8b, 0x3a),
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
        let rows = [
            row("touch-4k", "direct"),
            row("touch-4k", "swap"),
            row("build", "malloc"),
            row("build-link", "mmap"),
        ];
        let page = figures(&rows);
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(!page.contains("slower memory"));
        let slow = Row { emulated: true, ..row("touch-4k", "mmap-1000ns") };
        let page = figures(&[row("touch-4k", "mmap"), row("touch-4k", "swap"), slow]);
        let [_, slower] = page.split("Figures 10 to 15").collect::<Vec<_>>()[..] else { panic!() };
        assert!(slower.contains("mmap-1000ns") && !slower.contains("swap"), "{slower}");
        assert_eq!(page.matches("mmap-1000ns").count(), slower.matches("mmap-1000ns").count());
        let page = figures(&rows);
        for part in ["Main memory", "touch-4k", "direct", "swap", "A build", "malloc"] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(figures(&sample().rows), "");
    }
}
