//! `lode heap stats`: who has how much memory of a pool, asked from its server, once or again and again.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lode_fuse::control::place::Record;
use lode_fuse::control::{Client, place};

use super::HeapStatsArgs;
use crate::ask::understand;
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::output::{Output, Report};
use crate::report::HeapStatsReport;
use crate::report::heap::HeapPool;
use crate::screen::{Screen, Turns, write_out};

/// Who ends takes no longer from its last answer.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

pub(super) fn stats(args: &HeapStatsArgs, output: &Output) -> Result<()> {
    match args.watch {
        None => output.print(&report(args.target.as_deref())?),
        Some(every) => watch(args.target.as_deref(), every, output),
    }
}

fn watch(target: Option<&Path>, every: Duration, output: &Output) -> Result<()> {
    let failed = |what: &'static str| {
        move |error: std::io::Error| Failure::new(Kind::Failed, format!("{what} failed: {error}"))
    };
    let mut turns = Turns::new(every).map_err(failed("waiting"))?;
    let mut screen = Screen::new();
    loop {
        let report = report(target)?;
        let shown = if output.json {
            output.json_line(&report).map(|line| write_out(&line))?
        } else {
            screen.show(&report.text())
        };
        let goes_on = shown.map_err(failed("writing the output"))?;
        if !goes_on || !turns.wait().map_err(failed("waiting"))? {
            return Ok(());
        }
    }
}

/// What is lent of the pool, or mount, that is named; of all of this user where none is.
fn report(target: Option<&Path>) -> Result<HeapStatsReport> {
    let records = match target {
        Some(target) => {
            let clean = mounts::clean_path(target)?;
            let record = server_of(&clean);
            vec![record.ok_or_else(|| nobody(target))?]
        }
        None => servers(),
    };
    let named = target.is_some();
    let asked = records.iter().map(lent_of).filter(|pool| named || pool.is_ok());
    Ok(HeapStatsReport { pools: asked.collect::<Result<_>>()? })
}

/// The server of a pool, or mount.
pub(super) fn server_of(clean: &Path) -> Option<Record> {
    servers().into_iter().find(|record| is_of(record, clean))
}

fn is_of(record: &Record, path: &Path) -> bool {
    let text = path.to_string_lossy();
    record.mount == text || record.pool == text
}

fn nobody(target: &Path) -> Failure {
    Failure::new(Kind::NotMounted, "the pool is neither mounted nor served by this user")
        .at(target)
        .advise("`lode heap serve POOL` lends its memory to programs, and so does `lode mount POOL DIR`")
}

/// The servers of this user that live.
fn servers() -> Vec<Record> {
    let directory = place::directory();
    if place::check(&directory).is_err() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    sockets.sort();
    let records = sockets.iter().filter(|path| path.extension().is_some_and(|it| it == "json"));
    records
        .filter_map(|record| place::read_record(record))
        .filter(|record| mounts::is_running(record.pid))
        .collect()
}

/// What is lent by a server. One that ends meanwhile is none.
fn lent_of(record: &Record) -> Result<HeapPool> {
    match ask(record) {
        Err(_) if is_ending(record) => Err(nobody(Path::new(&record.mount))),
        answer => answer,
    }
}

/// Whether a server that did not answer is gone within a second.
fn is_ending(record: &Record) -> bool {
    let (began, point) = (Instant::now(), Path::new(&record.mount));
    while server_of(point).is_some_and(|server| server.pid == record.pid) {
        if began.elapsed() > ENDS_WITHIN {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

fn ask(record: &Record) -> Result<HeapPool> {
    let point = Path::new(&record.mount);
    let failed = |error| mount_failure(point, &error);
    let answer = Client::for_mount(point).map_err(failed)?.ask("heap-stats").map_err(failed)?;
    let lent = understand(point, answer)?;
    let dir = (record.mount != record.pool).then(|| record.mount.clone());
    let socket = place::socket(&place::directory(), point).display().to_string();
    Ok(HeapPool { pool: record.pool.clone(), dir, socket, lent })
}
