//! `lode dump`: the bytes of a pool for people and testers, of a damaged pool too.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lode_engine::{Error, Ino};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::args::DumpArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::{Output, write_out};
use crate::progress::Progress;
use crate::raw::Raw;
use crate::region::{self, MappedPool};
use crate::report::{
    DumpReport, InodeReport, OpeningFacts, PoolFacts, UnreadableReport, superblock_text,
};
use crate::superblock::{self, Copy};

/// Runs it.
///
/// # Errors
/// Where the pool can't be opened: after its superblocks were shown.
pub(crate) fn run(args: &DumpArgs, output: &Output) -> Result<()> {
    let superblocks = superblocks(&args.pool)?;
    let pool = match region::open_pool(&args.pool, true, output) {
        Ok(pool) => pool,
        Err(failure) => {
            if args.inode.is_none() && !superblocks.is_empty() {
                print_superblocks_only(superblocks, output)?;
            }
            return Err(failure);
        }
    };
    let only = match &args.inode {
        None => None,
        Some(which) => {
            let inode = find(&pool, &args.pool, which)?;
            let dump = pool.dump_inode(inode).map_err(|error| match error {
                Error::Stale | Error::NotFound => no_inode(&args.pool, which),
                error => Failure::engine(&args.pool, &error),
            })?;
            Some(InodeReport::from(&dump))
        }
    };
    let inodes =
        Inodes { pool: &pool, only, progress: output.progress, unreadable: RefCell::default() };
    if !output.json {
        return print_text(args, &superblocks, &inodes);
    }
    let info = pool.info().map_err(|error| Failure::engine(&args.pool, &error))?;
    output.stream_json(&DumpReport {
        superblocks,
        pool: Some(PoolFacts::new(&args.pool, &info)),
        opening: Some(OpeningFacts::from(&pool.opening())),
        inodes: &inodes,
        unreadable: &inodes.unreadable,
    })
}

fn no_inode(pool: &Path, which: &OsStr) -> Failure {
    Failure::new(Kind::NotFound, format!("there is no inode {}", which.to_string_lossy()))
        .at(pool)
        .advise("`lode dump --brief POOL` lists all inodes; /PATH finds one by its path")
}

fn superblocks(path: &Path) -> Result<Vec<Copy>> {
    let raw = Raw::open(path).map_err(|error| region::explain(path, &error))?;
    // What can't be read (a directory) has no raw superblocks to show.
    Ok(superblock::read_copies(&raw, raw.bytes().unwrap_or(0)).unwrap_or_default())
}

fn print_superblocks_only(superblocks: Vec<Copy>, output: &Output) -> Result<()> {
    if output.json {
        let inodes: [InodeReport; 0] = [];
        let unreadable = RefCell::default();
        let (pool, opening) = (None, None);
        return output.stream_json(&DumpReport {
            superblocks,
            pool,
            opening,
            inodes,
            unreadable: &unreadable,
        });
    }
    write_text(&superblocks.iter().map(superblock_text).collect::<String>())
}

fn print_text(args: &DumpArgs, superblocks: &[Copy], inodes: &Inodes<'_>) -> Result<()> {
    if args.inode.is_none() {
        write_text(&superblocks.iter().map(superblock_text).collect::<String>())?;
    }
    let mut outcome = Ok(());
    let walked = inodes.each(&mut |inode| {
        let text = if args.brief { inode.brief() } else { inode.text() };
        outcome = write_text(&text);
        outcome.is_ok()
    });
    walked.map_err(|error| Failure::engine(&args.pool, &error))?;
    for inode in inodes.unreadable.borrow().iter() {
        write_text(&format!("inode {} can't be read: {}\n", inode.inode, inode.what))?;
    }
    outcome
}

fn write_text(text: &str) -> Result<()> {
    write_out(text.as_bytes())
        .map_err(|error| Failure::io("writing the output", Path::new("standard output"), &error))
}

/// The inode a user names: a number, or a path from the root of the pool.
fn find(pool: &MappedPool, path: &Path, which: &OsStr) -> Result<Ino> {
    if let Some(number) = which.to_str().and_then(|text| text.parse().ok()) {
        return Ok(number);
    }
    let mut inode = pool.root();
    for name in which.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let found = pool.lookup(inode, name).map_err(|error| {
            let named = format!("{} in {}", which.to_string_lossy(), path.display());
            Failure::engine(Path::new(&named), &error)
        })?;
        inode = found.ino;
    }
    Ok(inode)
}

/// The inodes to show, read while they are written.
struct Inodes<'a> {
    pool: &'a MappedPool,
    only: Option<InodeReport>,
    progress: bool,
    unreadable: RefCell<Vec<UnreadableReport>>,
}

impl Inodes<'_> {
    fn each(&self, take: &mut dyn FnMut(&InodeReport) -> bool) -> lode_engine::Result<()> {
        if let Some(inode) = &self.only {
            take(inode);
            return Ok(());
        }
        // Where the output goes to the terminal it shows the progress itself.
        let shown = !io::stdout().is_terminal();
        let all = if shown { self.count()? } else { 0 };
        let mut progress = shown.then(|| Progress::new("dumping inodes", self.progress));
        let mut done = 0;
        self.pool.for_each_inode(&mut |inode| {
            if let Some(progress) = &mut progress {
                progress.set(done, all);
            }
            done += 1;
            match self.pool.dump_inode(inode) {
                Ok(dump) => take(&InodeReport::from(&dump)),
                Err(error) => {
                    let what = error.to_string();
                    self.unreadable.borrow_mut().push(UnreadableReport { inode, what });
                    true
                }
            }
        })
    }

    fn count(&self) -> lode_engine::Result<u64> {
        let mut count = 0;
        self.pool.for_each_inode(&mut |_| {
            count += 1;
            true
        })?;
        Ok(count)
    }
}

impl Serialize for Inodes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut sequence = to.serialize_seq(None)?;
        let mut outcome = Ok(());
        let walked = self.each(&mut |inode| {
            outcome = sequence.serialize_element(inode);
            outcome.is_ok()
        });
        outcome?;
        walked.map_err(S::Error::custom)?;
        sequence.end()
    }
}
