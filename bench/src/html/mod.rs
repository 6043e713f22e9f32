//! A report as one page: nothing is loaded from anywhere, light or dark as the reader has it.

mod blocks;
mod heap;
mod plots;
mod programs;
mod risks;

use std::fmt::Write as _;

use crate::report::{Breakdown, Figure, LeftOut, Machine, Report, Risk, Row, Steps, Target};

const STYLE: &str = include_str!("style.css");

/// The page of a run.
pub fn page(report: &Report) -> String {
    let mut body = machine(&report.machine);
    body += &targets(&report.targets);
    body += &programs::figures(&report.rows);
    body += &blocks::figures(&report.rows);
    body += &heap::figures(&report.rows);
    body += &operations(&report.rows);
    body += &steps(&report.limits);
    body += &breakdown(&report.breakdown);
    body += &risk(&report.risk);
    body += &rows(&report.rows);
    body += &figures(&report.figures);
    body += &left_out(&report.left_out);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Lode bench</title>\
         <style>{STYLE}</style></head><body><h1>Lode beside others</h1>\n{body}</body></html>\n"
    )
}

/// Times of operations of one thread, and what more threads do.
fn operations(rows: &[Row]) -> String {
    let is_drawn = |row: &&Row| blocks::is_of(row) || heap::is_of(row);
    let rows: Vec<Row> = rows.iter().filter(|row| !is_drawn(row)).cloned().collect();
    let (times, scaling) = (plots::times(&rows), plots::scaling(&rows));
    let mut text = String::new();
    if !times.is_empty() {
        text += "<h2>Time of an operation</h2><p class=\"faint\">One thread. From one grey line to the \
                 next it is ten times as long; thin lines span the middle half of the rounds.</p>";
        text += &times;
    }
    if !scaling.is_empty() {
        text += "<h2>More threads</h2><p class=\"faint\">Operations a second of all threads together, \
                 as a multiple of what one does.</p>";
        text += &scaling;
    }
    text
}

/// Text inside a page.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for each in text.chars() {
        match each {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            other => escaped.push(other),
        }
    }
    escaped
}

/// Nanoseconds for people: three figures.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// A table; the columns from `numbers` on are numbers. Cells are text of the page already.
fn table(heads: &[&str], numbers: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = "<div class=\"wide\"><table><tr>".to_owned();
    let class = |column| if column >= numbers { " class=\"number\"" } else { "" };
    for (column, head) in heads.iter().enumerate() {
        let _ = write!(text, "<th{}>{head}</th>", class(column));
    }
    text += "</tr>\n";
    for row in rows {
        text += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(text, "<td{}>{cell}</td>", class(column));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// Whom an emulated medium slows.
const EMULATED: &str =
    "by limit, ablation and Lode's subjects; the others take the machine's own times";

fn machine(machine: &Machine) -> String {
    let Machine { cpu, cores, kernel, flush, windows, medium, page_bytes, load, .. } = machine;
    let Machine { fuse_io_uring, awake, emulated, .. } = machine;
    let awake = if *awake { "kept awake" } else { "asleep when they have nothing to do" };
    let rings = if *fuse_io_uring { "by io_uring" } else { "by the device, without io_uring" };
    let emulated = emulated.as_ref().map(|medium| ("Emulated", format!("{medium}, {EMULATED}")));
    let rows = [
        ("Processor", format!("{cpu}, {cores} of them, {awake}")),
        ("Kernel", kernel.clone()),
        ("Memory", format!("{medium}, mapped by pages of {} KiB", page_bytes >> 10)),
        ("Stores", format!("{flush}, write windows: {windows}")),
        ("Requests of mounts", rings.to_owned()),
        ("Load before", load.clone()),
    ];
    let rows =
        rows.into_iter().chain(emulated).map(|(what, text)| vec![what.to_owned(), escape(&text)]);
    table(&["Machine", ""], 2, rows)
}

fn targets(targets: &[Target]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let rows = targets.iter().map(|target| {
        let met = match target.met {
            Some(true) => "<span class=\"good\">yes</span>",
            Some(false) => "<span class=\"bad\">no</span>",
            None => "<span class=\"open\">open</span>",
        };
        let Target { what, figure, measured, .. } = target;
        vec![escape(what), escape(figure), escape(measured), met.to_owned()]
    });
    "<h2>What must hold</h2>".to_owned() + &table(&["What", "Figure", "Measured", "Met"], 4, rows)
}

fn steps(steps: &[Steps]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let rows = steps.iter().map(|one| vec![escape(&one.workload), escape(&one.steps)]);
    "<h2>What the limit does</h2><p class=\"faint\">On random pages, and nothing else: what no file \
     system on this memory can save.</p>"
        .to_owned()
        + &table(&["Workload", "Steps"], 2, rows)
}

fn rows(rows: &[Row]) -> String {
    let heads = [
        "Workload",
        "Mode",
        "Subject",
        "Threads",
        "An operation",
        "Operations/s",
        "p50",
        "p99",
        "Spread",
    ];
    let some = |ns: Option<u64>| ns.map_or_else(String::new, |ns| time(ns as f64));
    let rows = rows.iter().map(|row| {
        vec![
            escape(&row.title()),
            escape(&row.mode),
            escape(&row.subject),
            row.threads.to_string(),
            time(row.ns_per_op),
            format!("{:.0}", row.ops_per_s),
            some(row.p50_ns),
            some(row.p99_ns),
            format!("{:.1} %", row.spread * 100.0),
        ]
    });
    "<h2>All figures</h2>".to_owned() + &table(&heads, 3, rows)
}

fn breakdown(all: &[Breakdown]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows = all.iter().map(|one| {
        let mut cells = vec![escape(&one.title()), time(one.ns_per_op)];
        cells.extend(one.parts().map(|(_, ns)| time(ns)));
        cells
    });
    let heads = [
        "Workload",
        "An operation",
        "Copy",
        "Fences",
        "Allocation",
        "Index",
        "Record",
        "Checksums",
        "Second copies",
        "Rest",
    ];
    "<h2>What an operation consists of</h2><p class=\"faint\">Of the engine, by samples of where its \
     thread is. All bars are as long: what they are parts of stands behind them.</p>"
        .to_owned()
        + &plots::parts(all)
        + &table(&heads, 1, rows)
}

fn risk(all: &[Risk]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let known = |value: Option<String>| value.unwrap_or_default();
    let rows = all.iter().map(|one| {
        let modelled = if one.modelled { "modelled" } else { "" };
        vec![
            escape(&one.scheme),
            modelled.to_owned(),
            one.scribble_bytes.to_string(),
            one.max_bytes.to_string(),
            format!("{:.2e}", one.mean_pages),
            known(one.nova_max_bytes.map(|bytes| bytes.to_string())),
            known(one.nova_mean_pages.map(|pages| format!("{pages:e}"))),
        ]
    });
    let heads = [
        "Scheme",
        "",
        "Scribble, bytes",
        "At most, bytes",
        "Mean, pages",
        "NOVA-Fortis, at most",
        "NOVA-Fortis, mean",
    ];
    "<h2>Metadata at risk</h2><p class=\"faint\">Bytes of metadata that one scribble takes, wherever it \
     happens: thick lines at most, thin ones on average; circles are what the text of the dissertation on NOVA-Fortis tells \
     of its Figure 4.8. Both axes are logarithmic, and zeros are left out.</p>"
        .to_owned()
        + &risks::curves(all)
        + &table(&heads, 2, rows)
}

fn figures(figures: &[Figure]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let rows = figures.iter().map(|one| {
        vec![escape(&one.workload), escape(&one.subject), escape(&one.what), escape(&one.shown())]
    });
    "<h2>Other than times</h2>".to_owned()
        + &table(&["Workload", "Subject", "What", "Figure"], 3, rows)
}

fn left_out(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let rows = left_out.iter().map(|one| vec![escape(&one.what), escape(&one.why)]);
    "<h2>Left out</h2>".to_owned() + &table(&["What", "Why"], 2, rows)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with something of everything.
    pub(crate) fn sample() -> Report {
        let row = |workload: &str, subject: &str, threads: usize, ns_per_op: f64| Row {
            workload: workload.into(),
            subject: subject.into(),
            threads,
            size: 4096,
            mode: "private".into(),
            ns_per_op,
            ops_per_s: 1e9 / ns_per_op * threads as f64,
            p50_ns: Some(100),
            p99_ns: None,
            repetitions: 7,
            spread: 0.25,
            emulated: false,
        };
        let rows = vec![
            row("append-4k", "limit", 1, 400.0),
            row("append-4k", "limit", 2, 500.0),
            row("append-4k", "ext4 <&>", 1, 25_000.0),
            row("stat", "tmpfs", 1, 900.0),
        ];
        let target = |met| Target {
            what: "library <b>".into(),
            figure: "f".into(),
            measured: "m".into(),
            met,
        };
        let figure = Figure {
            workload: "churn".into(),
            subject: "lode-library".into(),
            what: "free <space>".into(),
            value: 0.125,
            unit: "part".into(),
        };
        let part = Breakdown {
            workload: "append-4k".into(),
            subject: "lode-engine".into(),
            ns_per_op: 1000.0,
            samples: 100,
            copy_ns: 500.0,
            fences_ns: 250.0,
            allocation_ns: 125.0,
            index_ns: 100.0,
            record_ns: 25.0,
            checksums_ns: 0.0,
            second_copies_ns: 0.0,
            rest_ns: 0.0,
        };
        let risk = |scheme: &str| Risk {
            scheme: scheme.into(),
            modelled: true,
            scribble_bytes: 8192,
            max_bytes: 4096,
            mean_pages: 0.01,
            nova_max_bytes: None,
            nova_mean_pages: Some(2.9e-5),
        };
        Report {
            breakdown: vec![part],
            risk: ["no replication", "two-way replication"].map(risk).into(),
            machine: Machine {
                cpu: "<cpu>".into(),
                emulated: Some("<pcm>".into()),
                ..Machine::default()
            },
            rows,
            figures: vec![figure],
            targets: vec![target(Some(true)), target(Some(false)), target(None)],
            limits: vec![Steps { workload: "append-4k".into(), steps: "a fence".into() }],
            left_out: vec![LeftOut { what: "xfs".into(), why: "mkfs.xfs is missing".into() }],
        }
    }

    #[test]
    fn a_page_holds_everything_and_loads_nothing() {
        let page = page(&sample());
        for part in [
            "&lt;cpu&gt;",
            "&lt;pcm&gt;, by limit",
            "library &lt;b&gt;",
            ">yes<",
            ">no<",
            ">open<",
            "a fence",
            "mkfs.xfs",
            "ext4 &lt;&amp;&gt;",
            "<svg",
            "25.0 µs",
            "25.0 %",
            "More threads",
            "What an operation consists of",
            "Metadata at risk",
            "two-way replication",
            "125 ns",
            "free &lt;space&gt;",
            "12.5 %",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for part in ["<script", "src=", "href=", "url(", "@import", "<b>"] {
            assert!(!page.contains(part), "{part}");
        }
        // (The name of the language of plots is an address, and is not loaded.)
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http"));
    }

    #[test]
    fn an_empty_run_is_a_page_too() {
        assert!(page(&Report::default()).ends_with("</html>\n"));
    }

    #[test]
    fn times_have_three_figures() {
        let all = [0.0, 9.994, 151.4, 15_140.0, 1.514e6, 2.5e9].map(time);
        assert_eq!(all, ["0.00 ns", "9.99 ns", "151 ns", "15.1 µs", "1.51 ms", "2.50 s"]);
    }
}
