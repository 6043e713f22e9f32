//! Programs that go through trees of files: tar, make and a compiler, a scanner.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::program::{Program, Work, bounded, missing, timed, wrong};
use crate::error::{BenchError, Result};
use crate::place::{run_program, told_by};

/// `tar`, in the directory of the file system.
fn tar(work: &Work<'_>, letters: &str) -> Command {
    let mut tar = bounded("tar");
    tar.arg(letters).current_dir(work.root);
    tar
}

/// Takes an archive out.
pub(super) struct Untar;

impl Program for Untar {
    fn id(&self) -> &'static str {
        "untar"
    }

    fn about(&self) -> &'static str {
        "tar x of a tree of sources, the archive being in the same file system"
    }

    fn quick(&self) -> bool {
        true
    }

    fn missing(&self, _dir: &Path) -> Option<String> {
        missing(&[("tar", "tar")])
    }

    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        let at = work.root.join("tree.tar");
        let copied = fs::copy(&work.kit.tree, &at);
        copied.map(drop).map_err(|error| BenchError::io("making", &at, error))
    }

    fn run(&self, work: &Work<'_>) -> Result<f64> {
        timed(work.root, || run_program(tar(work, "xf").arg("tree.tar")))
    }

    fn verify(&self, work: &Work<'_>) -> Result<()> {
        run_program(tar(work, "df").arg("tree.tar"))
    }
}

/// Makes an archive.
pub(super) struct Tar;

impl Program for Tar {
    fn id(&self) -> &'static str {
        "tar"
    }

    fn about(&self) -> &'static str {
        "tar c of a tree of sources to an archive in the same file system"
    }

    fn quick(&self) -> bool {
        true
    }

    fn missing(&self, _dir: &Path) -> Option<String> {
        missing(&[("tar", "tar")])
    }

    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        run_program(tar(work, "xf").arg(&work.kit.tree))
    }

    fn run(&self, work: &Work<'_>) -> Result<f64> {
        timed(work.root, || run_program(tar(work, "cf").args(["archive.tar", "tree"])))
    }

    fn verify(&self, work: &Work<'_>) -> Result<()> {
        run_program(tar(work, "df").arg("archive.tar"))?;
        // What is not in the archive is not compared.
        let sizes = [&work.kit.tree, &work.root.join("archive.tar")].map(|path| {
            fs::metadata(path)
                .map(|found| found.len())
                .map_err(|e| BenchError::io("reading", path, e))
        });
        match sizes {
            [Ok(wanted), Ok(found)] if wanted == found => Ok(()),
            [Ok(wanted), Ok(found)] => {
                Err(wrong("tar", format!("the archive has {found} bytes instead of {wanted}")))
            }
            [wanted, found] => wanted.and(found).map(drop),
        }
    }
}

/// Compiles a program of many files.
pub(super) struct Build;

impl Program for Build {
    fn id(&self) -> &'static str {
        "build"
    }

    fn about(&self) -> &'static str {
        "make -j2 of a program of many small C files (the paper's devel has untar, patch, tar and diff)"
    }

    fn missing(&self, _dir: &Path) -> Option<String> {
        missing(&[("make", "make"), ("cc", "gcc"), ("tar", "tar")])
    }

    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        run_program(tar(work, "xf").arg(&work.kit.sources))
    }

    fn run(&self, work: &Work<'_>) -> Result<f64> {
        let mut make = bounded("make");
        make.args(["--silent", "-j2", "-C", "sources"]).current_dir(work.root);
        // What the compiler makes in between is in the file system, too.
        make.env("TMPDIR", work.root).env_remove("MAKEFLAGS");
        timed(work.root, || run_program(&mut make))
    }

    fn verify(&self, work: &Work<'_>) -> Result<()> {
        let printed = told_by(&mut Command::new(work.root.join("sources/all")), 0)?;
        if printed == work.kit.printed {
            return Ok(());
        }
        Err(wrong(
            "what was compiled",
            format!("it prints {printed:?}, not {:?}", work.kit.printed),
        ))
    }
}

/// Looks for viruses.
pub(super) struct Clamav;

impl Program for Clamav {
    fn id(&self) -> &'static str {
        "clamav"
    }

    fn about(&self) -> &'static str {
        "clamscan of a tree of sources, with a small database of its own"
    }

    fn missing(&self, _dir: &Path) -> Option<String> {
        missing(&[("clamscan", "clamav"), ("tar", "tar")])
    }

    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        run_program(tar(work, "xf").arg(&work.kit.tree))
    }

    fn run(&self, work: &Work<'_>) -> Result<f64> {
        let mut scan = bounded("clamscan");
        scan.args(["--recursive", "--infected", "--no-summary", "--database"]);
        scan.arg(&work.kit.signatures).arg("tree").current_dir(work.root);
        scan.env("TMPDIR", work.root);
        let mut found = String::new();
        // It ends with 1 where it has found something: it must.
        let ns = timed(work.root, || told_by(&mut scan, 1).map(|told| found = told))?;
        match found.lines().filter(|line| line.ends_with(" FOUND")).count() {
            1 => Ok(ns),
            count => Err(wrong("clamscan", format!("it found {count} infected files, not 1"))),
        }
    }

    fn verify(&self, _work: &Work<'_>) -> Result<()> {
        Ok(())
    }
}
