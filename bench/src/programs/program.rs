//! What a program is asked to do.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::syncfs;

use super::kit::Kit;
use super::{dbench, files, postgres};
use crate::error::{BenchError, Result};
use crate::file_system::find_program;

/// Seconds after which a program is taken for stuck.
const SECONDS_MAX: &str = "180";

/// Where a program works.
pub struct Work<'a> {
    /// A directory of the file system that is measured, all its own.
    pub(super) root: &'a Path,
    /// Of the run, beside it.
    pub(super) beside: &'a Path,
    pub(super) kit: &'a Kit,
}

/// A program, or several that do one thing.
pub trait Program: Sync {
    /// Its name, for good: that of the paper.
    fn id(&self) -> &'static str;

    /// What an operation is, in a sentence.
    fn about(&self) -> &'static str;

    /// It is in a quick run.
    fn quick(&self) -> bool {
        false
    }

    /// Bytes that an operation moves; 0 where it is a whole run.
    fn size(&self) -> u64 {
        0
    }

    /// Why it can't be run here, below the directory `dir`.
    fn missing(&self, dir: &Path) -> Option<String>;

    /// Makes ready what it works on. Not timed; what the kernel caches of it is gone when it runs.
    ///
    /// # Errors
    /// Where that fails.
    fn prepare(&self, work: &Work<'_>) -> Result<()>;

    /// Runs it; returns how long an operation takes, in nanoseconds.
    ///
    /// # Errors
    /// Where it fails.
    fn run(&self, work: &Work<'_>) -> Result<f64>;

    /// Looks whether it has done what it was to do. Not timed.
    ///
    /// # Errors
    /// Where it has not.
    fn verify(&self, work: &Work<'_>) -> Result<()>;
}

/// All of them, in the order they are run.
pub(super) const ALL: &[&dyn Program] =
    &[&files::Untar, &files::Tar, &files::Build, &dbench::Sfs, &files::Clamav, &postgres::Tpcc];

/// The program of this name.
pub fn by_id(id: &str) -> Option<&'static dyn Program> {
    ALL.iter().find(|program| program.id() == id).copied()
}

/// A command that is ended where it gets stuck, and when this process ends: what goes on keeps mounts in use.
pub(super) fn bounded(program: &str) -> Command {
    let found = find_program(program).unwrap_or_else(|| PathBuf::from(program));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "timeout", "--kill-after=5", SECONDS_MAX]);
    command.arg(found).env("LC_ALL", "C");
    command
}

/// Nanoseconds until `work` is done, and durable.
pub(super) fn timed(root: &Path, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let failed = |error| BenchError::io("syncing", root, error);
    let dir = File::open(root).map_err(failed)?;
    let began = Instant::now();
    work()?;
    syncfs(&dir).map_err(|error| failed(error.into()))?;
    Ok(began.elapsed().as_secs_f64() * 1e9)
}

/// What a program has not done.
pub(super) fn wrong(program: &str, said: String) -> BenchError {
    BenchError::Program { program: program.to_owned(), said }
}

/// Why these programs can't be run: the first that is not here, with its package.
pub(super) fn missing(needed: &[(&str, &str)]) -> Option<String> {
    let mut all = STARTED_BY.iter().chain(needed);
    let (program, package) = all.find(|(program, _)| find_program(program).is_none())?;
    Some(format!("{program} is missing: apt install {package}"))
}

/// What all programs are started by.
const STARTED_BY: [(&str, &str); 2] = [("setpriv", "util-linux"), ("timeout", "coreutils")];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_those_of_the_paper() {
        let ids: BTreeSet<_> = ALL.iter().map(|program| program.id()).collect();
        assert_eq!(ids, ["build", "clamav", "sfs", "tar", "tpcc", "untar"].into());
        assert!(by_id("tar").is_some() && by_id("tpch").is_none());
        let quick: Vec<_> = ALL.iter().filter(|one| one.quick()).map(|one| one.id()).collect();
        assert_eq!(quick, ["untar", "tar", "sfs"]);
    }

    #[test]
    fn who_has_no_program_is_told_the_package() {
        assert_eq!(missing(&[("sh", "dash")]), None);
        let said = missing(&[("sh", "dash"), ("nosuchprogram", "nothing")]).unwrap();
        assert_eq!(said, "nosuchprogram is missing: apt install nothing");
    }

    #[test]
    fn a_program_ends_with_whoever_started_it() {
        // Who starts it is killed before it says anything, and what it has started with it.
        let dir = tempfile::tempdir().unwrap();
        let mut command = bounded("sh");
        command.args(["-c", "echo $$ >pid; exec sleep 60"]).current_dir(dir.path());
        let words: Vec<_> =
            std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let mut parent = Command::new("sh");
        parent.args(["-c", "\"$@\"; :", "sh"]).args(words).current_dir(dir.path());
        let mut parent = parent.spawn().unwrap();
        let wait = |is_so: &dyn Fn() -> bool| {
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                is_so()
            })
        };
        let pid = || {
            std::fs::read_to_string(dir.path().join("pid")).ok().filter(|pid| pid.ends_with('\n'))
        };
        assert!(wait(&|| pid().is_some()));
        let stat = Path::new("/proc").join(pid().unwrap().trim()).join("stat");
        assert!(stat.exists());
        parent.kill().unwrap();
        parent.wait().unwrap();
        let is_over = || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
        assert!(wait(&is_over));
    }

    #[test]
    fn what_is_timed_is_as_long_as_it_takes_and_a_failure_is_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let pause = std::time::Duration::from_millis(20);
        let slept = timed(dir.path(), || {
            std::thread::sleep(pause);
            Ok(())
        });
        assert!(slept.unwrap() >= pause.as_secs_f64() * 1e9);
        assert!(timed(dir.path(), || Err(wrong("true", "no".to_owned()))).is_err());
    }
}
