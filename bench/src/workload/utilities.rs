//! Programs that everybody uses, on a tree of small files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::stage::Stage;
use crate::calls::Calls;
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};

const DIRECTORIES: usize = 20;
/// In each of them.
const FILES: usize = 20;
const FILE_BYTES: usize = 8 << 10;

struct Tour<C: Calls> {
    calls: Arc<C>,
    /// An archive beside what is measured, and a directory in it.
    archive: PathBuf,
    dir: PathBuf,
}

impl<C: Calls> Tour<C> {
    /// Runs a program to its end; what it has written is durable then.
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<()> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.dir).stdin(Stdio::null());
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        // To grep, nothing found is 1.
        let found_nothing = program == "grep" && status.code() == Some(1);
        if status.success() || found_nothing {
            return self.calls.settle();
        }
        Err(io::Error::other(format!("{program} ended with {status}")))
    }
}

impl<C: Calls> Step for Tour<C> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        let archive = self.archive.to_string_lossy().into_owned();
        self.run("cp", &[&archive, "archive.tar"])?;
        self.run("tar", &["xf", "archive.tar"])?;
        self.run("find", &["tree", "-type", "f", "-size", "+1M"])?;
        self.run("grep", &["-r", "no such text", "tree"])?;
        self.run("cp", &["-r", "tree", "copy"])?;
        self.run("rm", &["-r", "tree", "copy", "archive.tar"])
    }
}

impl<C: Calls> Drop for Tour<C> {
    fn drop(&mut self) {
        // What can't be removed goes with its file system.
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_file(&self.archive);
    }
}

/// Makes the archive at `at`, the tree being made beside it and removed.
fn make_archive(at: &Path) -> io::Result<()> {
    let beside = at.with_extension("d");
    let bytes = vec![b'a'; FILE_BYTES];
    for directory in 0..DIRECTORIES {
        let dir = beside.join(format!("tree/d{directory}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES {
            fs::write(dir.join(format!("f{file}")), &bytes)?;
        }
    }
    let made = Command::new("tar").arg("cf").arg(at).arg("-C").arg(&beside).arg("tree").status()?;
    fs::remove_dir_all(&beside)?;
    if made.success() { Ok(()) } else { Err(io::Error::other("tar could not make an archive")) }
}

/// Each thread goes through all programs again and again, in a directory of its own; nobody where
/// programs do not get there.
pub fn tours<C: Calls>(
    stage: &mut Stage<C>,
    cell: &Cell,
) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
    let Some(root) = stage.calls.path().map(Path::to_owned) else { return Ok(None) };
    let mut all = Vec::new();
    for _ in 0..cell.threads {
        let number = stage.number();
        let dir = root.join(format!("u{number}"));
        fs::create_dir(&dir)?;
        // Beside the mount, in the run's own directory: reading it is the same for all.
        let beside = root.parent().unwrap_or(&root);
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let archive = beside.join(format!("{name}-{number}.tar"));
        make_archive(&archive)?;
        all.push(worker(Tour { calls: Arc::clone(&stage.calls), archive, dir }));
    }
    Ok(Some(all))
}
