//! What must hold: a table of ratios, each judged from the rows of one run. A line whose rows
//! were not measured is left out; one that this machine can't answer says so.

use crate::report::{Figure, Report, Row, Target};
use crate::subject::{
    AT_RISK, BARE, BARE_MOUNT, CREATE_AT_0, CREATE_AT_MANY, FILE_COUNT, FILES, FREE_HUGE, FULL,
    FULL_MOUNT, IDLE, INDEX_LIMIT, LIMITED, LOST, MANIFESTS, REACHED, REDUNDANCY_FULL,
    REDUNDANCY_METADATA, SNAPSHOTS, SNAPSHOTS_MOUNT, TOUCHED, TRUST,
};
use crate::workload::Mode::{self, Private, Shared};

const LIBRARY: &str = "lode-library";
/// The same with memory protection keys, and without any guard.
const GUARDED: &str = "lode-library-key";
const UNGUARDED: &str = "lode-library-open";
const MOUNT: &str = "lode-mount";
const NULL: &str = "null-fuse";
const LIMIT: &str = "limit";
const TMPFS: &str = "tmpfs";
const EXT4: &str = "ext4";
const XFS: &str = "xfs";

/// A line of the table.
struct Entry {
    what: &'static str,
    figure: &'static str,
    rule: Rule,
}

/// How it is judged; of one thread unless it is about scaling.
enum Rule {
    /// An operation of the first takes at most so many times as long as one of the second.
    Time(&'static str, &'static str, &'static str, f64),
    /// The first does at least so many times as many a second as each of the others.
    Rate(&'static str, &'static str, &'static [(&'static str, f64)]),
    /// From one thread to two, the subject gains at least so much of what the limit gains.
    ScalesAsLimit(&'static str, Mode, f64),
    /// And at least so much by itself.
    Scales(&'static str, Mode, f64),
    /// Every operation of the mount takes at most null-fuse's time and so much of the library's.
    MountAdds(f64),
    /// Guarded stores take at most so much longer.
    Windows(f64),
    /// Opening a pool of so many files takes at most so many nanoseconds.
    Opens(&'static str, u64, f64),
    /// A million files take at most so many bytes of main memory, by this figure.
    Weighs(&'static str, f64),
    /// This figure of `lode-trust` is at most so large: the workload, and what it is of.
    Figure(&'static str, &'static str, f64),
    /// Half of the operations of this row of `lode-trust` take at most so many nanoseconds.
    Takes(&'static str, u64),
    /// The last part of a long run is at most so much slower than the first.
    Ages(&'static str, &'static str, f64),
}

const fn time(
    what: &'static str,
    figure: &'static str,
    workload: &'static str,
    times: f64,
) -> Entry {
    Entry { what, figure, rule: Rule::Time(workload, LIBRARY, LIMIT, times) }
}

/// What a level, or snapshots, may add to a pool without.
const fn added(
    what: &'static str,
    figure: &'static str,
    subject: &'static str,
    workload: &'static str,
    times: f64,
) -> Entry {
    Entry { what, figure, rule: Rule::Time(workload, subject, BARE, times) }
}

/// The same of a program that does more than one operation.
const fn program(what: &'static str, workload: &'static str) -> Entry {
    added(what, "at most 10 % longer than level none", FULL, workload, 1.1)
}

/// The same of one that goes through the kernel.
const fn mounted(what: &'static str, workload: &'static str) -> Entry {
    let rule = Rule::Time(workload, FULL_MOUNT, BARE_MOUNT, 1.1);
    Entry { what, figure: "at most 10 % longer than level none", rule }
}

/// Of what a pool can be trusted with.
const fn trusted(
    what: &'static str,
    figure: &'static str,
    (workload, of): (&'static str, &'static str),
    most: f64,
) -> Entry {
    Entry { what, figure, rule: Rule::Figure(workload, of, most) }
}

/// Of snapshots.
const fn snapshot(what: &'static str, workload: &'static str) -> Entry {
    added(what, "at most 3 % longer than without", SNAPSHOTS, workload, 1.03)
}

/// The same of a program that goes through the kernel.
const fn snapped_mount(what: &'static str, workload: &'static str) -> Entry {
    let rule = Rule::Time(workload, SNAPSHOTS_MOUNT, BARE_MOUNT, 1.03);
    Entry { what, figure: "at most 3 % longer than without", rule }
}

const fn rate(
    what: &'static str,
    figure: &'static str,
    workload: &'static str,
    subject: &'static str,
    others: &'static [(&'static str, f64)],
) -> Entry {
    Entry { what, figure, rule: Rule::Rate(workload, subject, others) }
}

const fn scales(what: &'static str, workload: &'static str, mode: Mode) -> Entry {
    let figure = "at least 0.85 of limit's own scaling";
    Entry { what, figure, rule: Rule::ScalesAsLimit(workload, mode, 0.85) }
}

/// The table.
const TABLE: &[Entry] = &[
    time("library, append 4 KiB", "at most 1.5 x its limit", "append-4k", 1.5),
    time("library, atomic overwrite of 4 KiB", "at most 1.6 x its limit", "overwrite-4k", 1.6),
    time("library, atomic overwrite of 512 B", "at most 1.6 x its limit", "overwrite-512", 1.6),
    time("library, read 4 KiB", "at most 1.25 x memcpy", "read-4k", 1.25),
    time("library, read 1 MiB", "at most 1.05 x memcpy", "read-1m", 1.05),
    time(
        "library, write 1 MiB",
        "at least 90 % of streaming-copy bandwidth",
        "write-1m",
        1.0 / 0.9,
    ),
    rate(
        "library, create and unlink among 10,000 names",
        "at least 3 x tmpfs's rate",
        "create-unlink",
        LIBRARY,
        &[(TMPFS, 3.0)],
    ),
    rate("library, rename", "at least 3 x tmpfs's rate", "rename", LIBRARY, &[(TMPFS, 3.0)]),
    rate(
        "library, stat of a 3-deep path",
        "at least 2 x tmpfs's rate",
        "stat",
        LIBRARY,
        &[(TMPFS, 2.0)],
    ),
    rate(
        "library, open and close",
        "at least 2 x tmpfs's rate",
        "open-close",
        LIBRARY,
        &[(TMPFS, 2.0)],
    ),
    scales("library, 2 threads, private appends", "append-4k", Private),
    scales("library, 2 threads, reads of one file", "read-4k", Shared),
    scales("library, 2 threads, disjoint overwrites of one file", "overwrite-4k", Shared),
    Entry {
        what: "library, 2 threads, create and unlink in private directories",
        figure: "at least 1.6 x one thread's rate",
        rule: Rule::Scales("create-unlink", Private, 1.6),
    },
    Entry {
        what: "write windows, key against none",
        figure: "at most 5 % slower",
        rule: Rule::Windows(1.05),
    },
    Entry {
        what: "mount, every operation",
        figure: "at most null-fuse + 1.3 x the library's time",
        rule: Rule::MountAdds(1.3),
    },
    rate(
        "mount, durable append 4 KiB",
        "at least 4 x ext4's and 2.5 x xfs's rate with fsync",
        "append-4k",
        MOUNT,
        &[(EXT4, 4.0), (XFS, 2.5)],
    ),
    rate(
        "mount, durable create",
        "at least 3 x ext4's and 2 x xfs's rate with fsync",
        "create",
        MOUNT,
        &[(EXT4, 3.0), (XFS, 2.0)],
    ),
    rate(
        "SQLite on the mount, each commit durable",
        "at least 2 x ext4's and xfs's rate",
        "sqlite-wal",
        MOUNT,
        &[(EXT4, 2.0), (XFS, 2.0)],
    ),
    rate(
        "SQLite through its VFS on the library, each commit durable",
        "at least 4 x ext4's and xfs's rate",
        "sqlite-wal",
        LIBRARY,
        &[(EXT4, 4.0), (XFS, 4.0)],
    ),
    rate("mount, durable varmail", "at least 1.5 x ext4's rate", "varmail", MOUNT, &[(EXT4, 1.5)]),
    rate("mount, durable fileserver", "at least ext4's rate", "fileserver", MOUNT, &[(EXT4, 1.0)]),
    rate("library, varmail", "at least 5 x ext4's rate", "varmail", LIBRARY, &[(EXT4, 5.0)]),
    rate("library, fileserver", "at least 3 x ext4's rate", "fileserver", LIBRARY, &[(EXT4, 3.0)]),
    Entry {
        what: "crash recovery of 50,000 files, 10 GiB",
        figure: "at most 50 ms, engine time",
        rule: Rule::Opens("mount-crash", 50_000, 50e6),
    },
    Entry {
        what: "clean mount of 50,000 files, 10 GiB",
        figure: "at most 2 ms, engine time",
        rule: Rule::Opens("mount-clean", 50_000, 2e6),
    },
    Entry {
        what: "fileserver churn at 95 % full, ten pool sizes written, a million log pages collected",
        figure: "last tenth at most 8 % slower than the first",
        rule: Rule::Ages("churn-first", "churn-last", 1.08),
    },
    Entry {
        what: "memory of a million idle files after opening",
        figure: "at most 150 MB",
        rule: Rule::Weighs(IDLE, 150e6),
    },
    Entry {
        what: "memory of a million files, all of them looked at",
        figure: "at most 600 MB",
        rule: Rule::Weighs(TOUCHED, 600e6),
    },
    Entry {
        what: "memory of a million files, all of them looked at, with index_memory=100M",
        figure: "stays under that",
        rule: Rule::Weighs(LIMITED, INDEX_LIMIT as f64),
    },
    added(
        "level full, create (NOVA-Fortis +47 %)",
        "at most 10 % longer than level none",
        FULL,
        "create",
        1.1,
    ),
    added(
        "level full, append 4 KiB (NOVA-Fortis +100 %)",
        "at most 40 % longer than level none",
        FULL,
        "append-4k",
        1.4,
    ),
    added(
        "level full, overwrite 4 KiB",
        "at most 40 % longer than level none",
        FULL,
        "overwrite-4k",
        1.4,
    ),
    added(
        "level full, overwrite 512 B (NOVA-Fortis 2.2 x)",
        "at most 60 % longer than level none",
        FULL,
        "overwrite-512",
        1.6,
    ),
    added(
        "level full, read 4 KiB (NOVA-Fortis +70 %)",
        "at most 30 % longer than level none",
        FULL,
        "read-4k",
        1.3,
    ),
    program("level full, fileserver (NOVA-Fortis 2 to 38 %)", "fileserver"),
    program("level full, webserver", "webserver"),
    program("level full, webproxy", "webproxy"),
    program("level full, varmail", "varmail"),
    program("level full, oltp", "oltp"),
    program("level full, SQLite through its VFS", "sqlite-wal"),
    mounted("level full, mounted, fileserver", "fileserver"),
    mounted("level full, mounted, webserver", "webserver"),
    mounted("level full, mounted, webproxy", "webproxy"),
    mounted("level full, mounted, varmail", "varmail"),
    mounted("level full, mounted, oltp", "oltp"),
    mounted("level full, mounted, SQLite", "sqlite-wal"),
    snapshot("a snapshot every 100 ms, create", "create"),
    snapshot("a snapshot every 100 ms, append 4 KiB", "append-4k"),
    snapshot("a snapshot every 100 ms, overwrite 4 KiB", "overwrite-4k"),
    snapshot("a snapshot every 100 ms, overwrite 512 B", "overwrite-512"),
    snapshot("a snapshot every 100 ms, fileserver", "fileserver"),
    snapshot("a snapshot every 100 ms, webserver", "webserver"),
    snapshot("a snapshot every 100 ms, webproxy", "webproxy"),
    snapshot("a snapshot every 100 ms, varmail", "varmail"),
    snapshot("a snapshot every 100 ms, oltp", "oltp"),
    snapshot("a snapshot every 100 ms, SQLite through its VFS", "sqlite-wal"),
    snapped_mount("a snapshot every 100 ms, mounted, fileserver", "fileserver"),
    snapped_mount("a snapshot every 100 ms, mounted, webserver", "webserver"),
    snapped_mount("a snapshot every 100 ms, mounted, webproxy", "webproxy"),
    snapped_mount("a snapshot every 100 ms, mounted, varmail", "varmail"),
    snapped_mount("a snapshot every 100 ms, mounted, oltp", "oltp"),
    snapped_mount("a snapshot every 100 ms, mounted, SQLite", "sqlite-wal"),
    trusted(
        "level metadata, one scribble of the size of the dead zone, wherever it is",
        "no metadata at risk",
        ("risk", AT_RISK),
        0.0,
    ),
    trusted(
        "level metadata, scribbles of that size over an aged pool",
        "none loses metadata",
        ("risk", LOST),
        0.0,
    ),
    trusted(
        "level full, a file server's pool that is 95 % full (NOVA-Fortis 14.8 %)",
        "redundancy takes at most 14.8 % of it",
        ("space", REDUNDANCY_FULL),
        0.148,
    ),
    trusted(
        "level metadata, the same (NOVA-Fortis 2.1 %)",
        "redundancy takes at most 2.1 % of it",
        ("space", REDUNDANCY_METADATA),
        0.021,
    ),
    Entry {
        what: "to make a snapshot where there is none",
        figure: "at most 5 us",
        rule: Rule::Takes(CREATE_AT_0, 5000),
    },
    Entry {
        what: "to make a snapshot where there are 1,000",
        figure: "at most 5 us",
        rule: Rule::Takes(CREATE_AT_MANY, 5000),
    },
    trusted(
        "manifests of 1,000 snapshots (NOVA-Fortis 0.027 to 0.05 %)",
        "at most 0.05 % of the space in use",
        ("snapshots", MANIFESTS),
        0.0005,
    ),
];

/// What was found of a line.
struct Found {
    measured: String,
    met: Option<bool>,
}

fn judged(met: bool, measured: String) -> Option<Found> {
    Some(Found { measured, met: Some(met) })
}

/// What must hold, as far as the rows tell.
pub fn judge(report: &Report) -> Vec<Target> {
    let rows = Rows(report);
    let judge = |entry: &Entry| {
        let Found { measured, met } = entry.rule.judge(&rows)?;
        let (what, figure) = (entry.what.to_owned(), entry.figure.to_owned());
        Some(Target { what, figure, measured, met })
    };
    TABLE.iter().filter_map(judge).collect()
}

/// The rows and figures of a run.
struct Rows<'a>(&'a Report);

impl Rows<'_> {
    fn of(&self, workload: &str, subject: &str, threads: usize, mode: Mode) -> Option<&Row> {
        self.0.rows.iter().find(|row| {
            (row.workload.as_str(), row.subject.as_str()) == (workload, subject)
                && (row.threads, row.mode.as_str()) == (threads, mode.name())
        })
    }

    /// Of one thread.
    fn alone(&self, workload: &str, subject: &str) -> Option<&Row> {
        self.of(workload, subject, 1, Private)
    }

    /// Of one thread that opens pools of so many files: several wait for each other's processors.
    fn opening(&self, workload: &str, files: u64) -> Option<&Row> {
        let alone = |row: &&Row| row.workload == workload && row.threads == 1;
        self.0.rows.iter().filter(alone).find(|row| row.size == files)
    }

    fn figure(&self, workload: &str, subject: &str, what: &str) -> Option<&Figure> {
        self.0.figures.iter().find(|one| {
            (one.workload.as_str(), one.subject.as_str(), one.what.as_str())
                == (workload, subject, what)
        })
    }

    /// How many times as much two threads do as one.
    fn scaling(&self, workload: &str, subject: &str, mode: Mode) -> Option<f64> {
        let two = self.of(workload, subject, 2, mode)?.ops_per_s;
        Some(two / self.alone(workload, subject)?.ops_per_s)
    }

    /// How two threads do, of which `met` tells whether it is enough. On one processor they take turns, whatever they share.
    fn judged_of_two(&self, met: bool, measured: String) -> Option<Found> {
        if self.0.machine.cores >= 2 {
            return judged(met, measured);
        }
        let measured = format!("{measured}; this machine has one processor");
        Some(Found { measured, met: None })
    }

    /// The workloads that all of these have rows of, done by one thread.
    fn common(&self, subjects: [&str; 3]) -> Vec<[&Row; 3]> {
        let first = self.0.rows.iter().filter(|row| row.subject == subjects[0] && row.threads == 1);
        let all = first.filter_map(|row| {
            let [_, second, third] = subjects;
            Some([row, self.alone(&row.workload, second)?, self.alone(&row.workload, third)?])
        });
        all.collect()
    }
}

impl Rule {
    /// None where its rows were not measured.
    fn judge(&self, rows: &Rows<'_>) -> Option<Found> {
        match *self {
            Self::Time(workload, subject, of, most) => {
                let (ours, theirs) = (rows.alone(workload, subject)?, rows.alone(workload, of)?);
                let times = ours.ns_per_op / theirs.ns_per_op;
                let (ours, theirs) = (ours.ns_per_op, theirs.ns_per_op);
                judged(times <= most, format!("{times:.2} x ({ours:.0} ns to {theirs:.0} ns)"))
            }
            Self::Rate(workload, subject, others) => rate_of(rows, workload, subject, others),
            Self::ScalesAsLimit(workload, mode, least) => {
                let ours = rows.scaling(workload, LIBRARY, mode)?;
                let limit = rows.scaling(workload, LIMIT, mode)?;
                let part = ours / limit;
                let measured = format!("{part:.2} ({ours:.2} x, limit {limit:.2} x)");
                rows.judged_of_two(part >= least, measured)
            }
            Self::Scales(workload, mode, least) => {
                let ours = rows.scaling(workload, LIBRARY, mode)?;
                rows.judged_of_two(ours >= least, format!("{ours:.2} x"))
            }
            Self::MountAdds(times) => mount_adds(rows, times),
            Self::Windows(most) => windows_cost(rows, &rows.0.machine.windows, most),
            Self::Opens(workload, files, most) => {
                let row = rows.opening(workload, files)?;
                let found = format!("{:.2} ms; the data was never stored", row.ns_per_op / 1e6);
                judged(row.ns_per_op <= most, found)
            }
            Self::Weighs(what, most) => weighs(rows, what, most),
            Self::Figure(workload, what, most) => {
                let found = rows.figure(workload, TRUST.id(), what)?;
                judged(found.value <= most, found.shown())
            }
            Self::Takes(workload, most) => {
                let found = rows.alone(workload, TRUST.id())?.p50_ns?;
                judged(found <= most, format!("{:.2} us", found as f64 / 1e3))
            }
            Self::Ages(first, last, most) => ages(rows, first, last, most),
        }
    }
}

/// Of ratios to those that are on no medium: `own` says who.
fn not_slowed(measured: &str, own: &str) -> Found {
    let measured = format!("{measured}; {own} the machine's own times, not the medium's");
    Found { measured, met: None }
}

/// Those of the others that were measured are compared with.
fn rate_of(
    rows: &Rows<'_>,
    workload: &str,
    subject: &str,
    others: &[(&str, f64)],
) -> Option<Found> {
    let ours = rows.alone(workload, subject)?;
    let (emulated, ours) = (ours.emulated, ours.ops_per_s);
    let mut met = true;
    let mut all = Vec::new();
    for (other, least) in others {
        let Some(row) = rows.alone(workload, other) else { continue };
        let times = ours / row.ops_per_s;
        met &= times >= *least;
        all.push(format!("{times:.2} x {other}"));
    }
    let complete = all.len() == others.len();
    let measured = all.join(", ");
    if emulated && !measured.is_empty() {
        return Some(not_slowed(&measured, "which have"));
    }
    // What fails against one of them fails, whoever else is missing.
    let met = if complete || !met { Some(met) } else { None };
    (!measured.is_empty()).then_some(Found { measured, met })
}

fn mount_adds(rows: &Rows<'_>, times: f64) -> Option<Found> {
    let all = rows.common([MOUNT, NULL, LIBRARY]);
    let part = |[mount, null, library]: &[&Row; 3]| {
        mount.ns_per_op / (null.ns_per_op + times * library.ns_per_op)
    };
    let mut over: Vec<_> = all.iter().map(|rows| (part(rows), &rows[0].workload)).collect();
    over.sort_by(|one, other| other.0.total_cmp(&one.0));
    let (worst, workload) = *over.first()?;
    let count = over.iter().filter(|(part, _)| *part > 1.0).count();
    let measured =
        format!("{count} of {} take longer; the worst is {workload}: {worst:.2} x", all.len());
    if all.iter().flatten().any(|row| row.emulated) {
        return Some(not_slowed(&measured, "null-fuse has"));
    }
    judged(count == 0, measured)
}

fn ages(rows: &Rows<'_>, first: &str, last: &str, most: f64) -> Option<Found> {
    let times = rows.alone(last, LIBRARY)?.ns_per_op / rows.alone(first, LIBRARY)?.ns_per_op;
    let figure = |what| rows.figure("churn", LIBRARY, what);
    let mut measured = format!("{:+.1} %", (times - 1.0) * 100.0);
    if let Some(huge) = figure(FREE_HUGE) {
        measured += &format!("; {} of the free space in aligned 2 MiB extents", huge.shown());
    }
    let reached = figure(REACHED);
    if let Some(part) = reached.filter(|part| part.value < 1.0) {
        measured += &format!("; the time was over after {} of that", part.shown());
    }
    // What is too slow half way is too slow.
    let complete = reached.is_some_and(|part| part.value >= 1.0);
    let met = if times > most { Some(false) } else { complete.then_some(true) };
    Some(Found { measured, met })
}

/// Judged are the indexes, of which the engine knows what they take.
fn weighs(rows: &Rows<'_>, what: &str, most: f64) -> Option<Found> {
    const ENGINE: &str = "lode-engine";
    let bytes = rows.figure("memory", ENGINE, what)?;
    let files = rows.figure("memory", ENGINE, FILE_COUNT)?.value as u64;
    if files == FILES {
        return judged(bytes.value <= most, bytes.shown());
    }
    let measured = format!("{} of only {files} files: memory was short", bytes.shown());
    Some(Found { measured, met: None })
}

fn windows_cost(rows: &Rows<'_>, windows: &str, most: f64) -> Option<Found> {
    let library =
        [LIBRARY, GUARDED, UNGUARDED].iter().any(|id| rows.alone("append-4k", id).is_some());
    if windows != "key" {
        let measured = format!("this machine has no memory protection keys (windows: {windows})");
        return library.then_some(Found { measured, met: None });
    }
    let closed = rows.alone("append-4k", GUARDED)?.ns_per_op;
    let times = closed / rows.alone("append-4k", UNGUARDED)?.ns_per_op;
    judged(times <= most, format!("append 4 KiB {:+.1} %", (times - 1.0) * 100.0))
}

#[cfg(test)]
mod tests;
