//! What programs work on, made once, beside all that is measured.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::{INFECTED, make_sources, make_tree};
use crate::error::{BenchError, Result};
use crate::place::{Place, run_program};
use crate::random::Random;

/// Signatures that match nothing.
const SIGNATURES: usize = 2000;

/// How much programs are given to do.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Files of the tree.
    pub(super) files: usize,
    /// C files of the program that is compiled.
    pub(super) units: usize,
    /// Seconds of what runs for a time.
    pub(super) seconds: u32,
    /// Of each of the database's clients.
    pub(super) transactions: u32,
}

impl Load {
    /// That of a run.
    pub(super) const fn new(quick: bool) -> Self {
        if quick {
            Self { files: 1000, units: 40, seconds: 2, transactions: 50 }
        } else {
            Self { files: 3000, units: 100, seconds: 4, transactions: 200 }
        }
    }
}

/// Archives and texts.
pub(super) struct Kit {
    pub(super) load: Load,
    /// Of `tree`, and of `sources`.
    pub(super) tree: PathBuf,
    pub(super) sources: PathBuf,
    /// What the program prints that is compiled.
    pub(super) printed: String,
    /// Signatures for a scanner, one of which is found in one file.
    pub(super) signatures: PathBuf,
}

impl Kit {
    /// Makes all of it.
    pub(super) fn new(place: &Place, load: Load) -> Result<Self> {
        let dir = place.new_dir("kit")?;
        let failed = |error| BenchError::io("making what programs work on, in", &dir, error);
        make_tree(&dir.join("tree"), load.files).map_err(failed)?;
        let printed = make_sources(&dir.join("sources"), load.units).map_err(failed)?;
        let signatures = dir.join("lode.ndb");
        fs::write(&signatures, database()).map_err(failed)?;
        let (tree, sources) = (pack(&dir, "tree")?, pack(&dir, "sources")?);
        Ok(Self { load, tree, sources, printed, signatures })
    }
}

/// Makes a directory an archive.
fn pack(dir: &Path, name: &str) -> Result<PathBuf> {
    let archive = dir.join(name).with_extension("tar");
    run_program(Command::new("tar").arg("cf").arg(&archive).arg("-C").arg(dir).arg(name))?;
    let removed = fs::remove_dir_all(dir.join(name));
    removed.map_err(|error| BenchError::io("removing a directory of", dir, error))?;
    Ok(archive)
}

/// A database as ClamAV's: a name, for any type of file, anywhere in it, these bytes.
fn database() -> String {
    let mut random = Random::new(2);
    let mut text = String::new();
    let mut add = |name: &str, bytes: &[u8]| {
        let _ = write!(text, "{name}:0:*:");
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    };
    add("Lode.Bench.Infected", INFECTED.as_bytes());
    for number in 0..SIGNATURES {
        let bytes = [0; 24].map(|_: u8| 128 + random.below(128) as u8);
        add(&format!("Lode.Bench.Nothing-{number}"), &bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kit_is_archives_and_a_database_with_one_signature_that_is_found() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(Some(base.path()), 16 << 20).unwrap();
        let load = Load { files: 10, units: 2, ..Load::new(true) };
        let kit = Kit::new(&place, load).unwrap();
        for (archive, wanted) in
            [(&kit.tree, "tree/part0/unit0/file9.c"), (&kit.sources, "Makefile")]
        {
            let listed = Command::new("tar").arg("tf").arg(archive).output().unwrap();
            assert!(String::from_utf8_lossy(&listed.stdout).contains(wanted), "{wanted}");
        }
        let text = fs::read_to_string(&kit.signatures).unwrap();
        assert_eq!(text.lines().count(), SIGNATURES + 1);
        assert!(text.starts_with("Lode.Bench.Infected:0:*:4c4f4445"), "{}", &text[..40]);
    }
}
