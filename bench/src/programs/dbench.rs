//! `sfs`: dbench, with the list of calls of its package.

use std::fs;
use std::path::Path;

use super::program::{Program, Work, bounded, missing, timed, wrong};
use crate::error::{BenchError, Result};
use crate::place::{run_program, told_by};

/// That go through the list at the same time, each in a directory of its own.
const CLIENTS: &str = "2";
/// What dbench calls an MB.
const MB: u64 = 1 << 20;

/// A file server's clients.
pub(super) struct Sfs;

impl Program for Sfs {
    fn id(&self) -> &'static str {
        "sfs"
    }

    fn about(&self) -> &'static str {
        "1 MiB of what dbench's two clients read and write (the paper's is SPECsfs, which is not free)"
    }

    fn quick(&self) -> bool {
        true
    }

    fn size(&self) -> u64 {
        MB
    }

    fn missing(&self, _dir: &Path) -> Option<String> {
        missing(&[("dbench", "dbench")])
    }

    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        let at = work.root.join("clients");
        fs::create_dir(&at).map_err(|error| BenchError::io("making the directory", &at, error))
    }

    fn run(&self, work: &Work<'_>) -> Result<f64> {
        let mut dbench = bounded("dbench");
        dbench.args(["--timelimit", &work.kit.load.seconds.to_string(), "--directory"]);
        dbench.arg(work.root.join("clients")).arg(CLIENTS);
        let mut told = String::new();
        timed(work.root, || told_by(&mut dbench, 0).map(|all| told = all))?;
        throughput(&told).map(|rate| 1e9 / rate).ok_or_else(|| {
            let last: Vec<_> = told.lines().rev().take(3).collect();
            wrong("dbench", format!("it tells no throughput: {}", last.join("; ")))
        })
    }

    fn verify(&self, work: &Work<'_>) -> Result<()> {
        // It cleans up: what it has made is gone, and that is durable.
        run_program(bounded("rm").arg("-r").arg(work.root.join("clients")))
    }
}

/// MB a second, as dbench's last line has it; none where a client failed.
fn throughput(told: &str) -> Option<f64> {
    if told.contains("failed") {
        return None;
    }
    let line = told.lines().find_map(|line| line.trim().strip_prefix("Throughput "))?;
    let rate: f64 = line.split_whitespace().next()?.parse().ok()?;
    (rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_is_that_of_clients_none_of_which_failed() {
        let last = "Throughput 831.25 MB/sec  2 clients  2 procs  max_latency=2.1 ms\n";
        assert_eq!(throughput(&format!("   2 of 2\n\n{last}")), Some(831.25));
        assert_eq!(throughput(&format!("[12] open ./x failed for handle 1\n{last}")), None);
        assert_eq!(throughput("Throughput 0 MB/sec"), None);
        assert_eq!(throughput("Throughput much"), None);
        assert_eq!(throughput(""), None);
    }
}
