//! A program of C files that is compiled: by the system's malloc, and with memory of a pool by each method.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lode_loan::Method;

use super::helper::Helper;
use crate::place::told_by;
use crate::programs::make_sources;

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// C files, and what compiles them.
pub(super) struct Build {
    dir: PathBuf,
    printed: String,
}

impl Build {
    /// So many files in a new directory `dir`.
    pub(super) fn new(dir: &Path, units: usize) -> io::Result<Self> {
        Ok(Self { printed: make_sources(dir, units)?, dir: dir.to_owned() })
    }

    /// Seconds of a build with memory of `pool` by `method`, or the system's.
    pub(super) fn once(&self, lode: &Path, lent: Option<(&Path, Method)>) -> io::Result<f64> {
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|of| of == "o") || path.ends_with("all") {
                fs::remove_file(path)?;
            }
        }
        let mut command = Command::new(if lent.is_some() { lode } else { Path::new("make") });
        if let Some((pool, method)) = lent {
            command.args(["heap", "run", "--method", method.name(), "--pool"]).arg(pool);
            command.args(["--", "make"]);
        }
        command.arg("-s").arg("-C").arg(&self.dir);
        // (What a make above this run has said is not for this one.)
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        let begin = Instant::now();
        let mut made = Helper::start(&mut command, self.dir.join("build.log"))?;
        let status = made.wait(PATIENCE)?;
        let seconds = begin.elapsed().as_secs_f64();
        if !status.success() {
            return Err(made.failed());
        }
        let printed = told_by(&mut Command::new(self.dir.join("all")), 0);
        match printed {
            Ok(printed) if printed == self.printed => Ok(seconds),
            Ok(other) => Err(io::Error::other(format!("what was compiled prints {other}"))),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}
