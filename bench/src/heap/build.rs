//! A program of C files that is compiled and linked: by the system's malloc, and with memory of a pool by each method.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lode_loan::Method;

use super::helper::Helper;
use super::sources;
use crate::place::told_by;

/// How long a phase may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What `make` is asked for in each phase.
const PHASES: [&str; 2] = ["objects", "all"];
/// What rows call a build as a whole, and its phases.
pub(super) const WORKLOADS: [&str; 3] = ["build", "build-compile", "build-link"];

/// C files, and what compiles them.
pub(super) struct Build {
    dir: PathBuf,
    /// What is compiled prints.
    prints: Option<String>,
}

impl Build {
    /// So many files in a new directory `dir`.
    pub(super) fn new(dir: &Path, units: usize) -> io::Result<Self> {
        sources::write(dir, units)?;
        Ok(Self { dir: dir.to_owned(), prints: None })
    }

    /// Seconds of a build with memory of `pool` by `method`, or the system's: all of it, and by phases, as [`WORKLOADS`].
    pub(super) fn once(
        &mut self,
        lode: &Path,
        lent: Option<(&Path, Method)>,
    ) -> io::Result<[f64; 3]> {
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|of| of == "o") || path.ends_with("all") {
                fs::remove_file(path)?;
            }
        }
        let [mut compile, mut link] = [0.0; 2];
        for (phase, seconds) in PHASES.into_iter().zip([&mut compile, &mut link]) {
            *seconds = self.phase(phase, lode, lent)?;
        }
        let failed = |error: crate::BenchError| io::Error::other(error.to_string());
        let printed = told_by(&mut Command::new(self.dir.join("all")), 0).map_err(failed)?;
        match self.prints.get_or_insert_with(|| printed.clone()) {
            same if *same == printed => Ok([compile + link, compile, link]),
            other => Err(io::Error::other(format!(
                "what was compiled prints {printed}, not as before {other}"
            ))),
        }
    }

    fn phase(&self, phase: &str, lode: &Path, lent: Option<(&Path, Method)>) -> io::Result<f64> {
        let mut command = Command::new(if lent.is_some() { lode } else { Path::new("make") });
        if let Some((pool, method)) = lent {
            command.args(["heap", "run", "--method", method.name(), "--pool"]).arg(pool);
            command.args(["--", "make"]);
        }
        command.args(["-s", "-j2", "-C"]).arg(&self.dir).arg(phase);
        // (What a make above this run has said is not for this one.)
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        let begin = Instant::now();
        let mut made = Helper::start(&mut command, self.dir.join("build.log"))?;
        let status = made.wait(PATIENCE)?;
        let seconds = begin.elapsed().as_secs_f64();
        if status.success() { Ok(seconds) } else { Err(made.failed()) }
    }
}

/// How much more the later one took, as a part of the earlier one, in the middle one of those rounds that both were in.
pub(super) fn more(than: &[f64], of: &[f64]) -> f64 {
    let more: Vec<f64> = than.iter().zip(of).map(|(than, of)| of / than - 1.0).collect();
    crate::stats::median(&more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_compiled_and_linked_again_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut build = Build::new(dir.path(), 2).unwrap();
        for _ in 0..2 {
            let [all, compile, link] = build.once(Path::new("lode"), None).unwrap();
            assert!(compile > 0.0 && link > 0.0 && all == compile + link);
        }
        build.prints = Some("something else".to_owned());
        let error = build.once(Path::new("lode"), None).unwrap_err();
        assert!(error.to_string().contains("something else"), "{error}");
        fs::write(dir.path().join("unit1.c"), "no C\n").unwrap();
        assert!(build.once(Path::new("lode"), None).is_err());
    }

    #[test]
    fn builds_are_compared_round_by_round() {
        // The machine became slower: by more than the one is slower than the other.
        assert!((more(&[1.0, 2.0, 4.0], &[1.1, 2.2, 4.4]) - 0.1).abs() < 1e-9);
        assert_eq!(more(&[], &[]), 0.0);
    }
}
