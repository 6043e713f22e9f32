//! Every workload on a directory in memory: that it goes on for ever, asks for what it changes to
//! be durable, and leaves what it found.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rusqlite::Connection;

use super::*;
use crate::calls::{For, Name};
use crate::stats::Histogram;
use crate::subject::Posix;
use crate::worker::Until;

/// Counts what is asked for.
#[derive(Default)]
struct Counts {
    files: AtomicU64,
    names: AtomicU64,
    /// Cuts of one page that was there.
    cut: AtomicU64,
    /// So many files that are made, or writes, until one fails; 0 for none.
    fails_in: AtomicU64,
}

impl Counts {
    fn may_fail(&self) -> io::Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let before = self.fails_in.fetch_update(Relaxed, Relaxed, less);
        if before == Ok(1) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

struct Counting {
    posix: Posix,
    counts: Arc<Counts>,
}

impl Calls for Counting {
    type File = <Posix as Calls>::File;
    type Dir = <Posix as Calls>::Dir;
    type Map = <Posix as Calls>::Map;

    fn create(&self, at: &Name) -> io::Result<Self::File> {
        self.counts.may_fail()?;
        self.posix.create(at)
    }
    fn open(&self, at: &Name, what_for: For) -> io::Result<Self::File> {
        self.posix.open(at, what_for)
    }
    fn open_dir(&self, at: &Name) -> io::Result<Self::Dir> {
        self.posix.open_dir(at)
    }
    fn unlink(&self, at: &Name) -> io::Result<()> {
        self.posix.unlink(at)
    }
    fn mkdir(&self, at: &Name) -> io::Result<()> {
        self.posix.mkdir(at)
    }
    fn rmdir(&self, at: &Name) -> io::Result<()> {
        self.posix.rmdir(at)
    }
    fn rename(&self, from: &Name, to: &Name) -> io::Result<()> {
        // Over another name it would be something else.
        assert!(self.posix.stat(to).is_err());
        self.posix.rename(from, to)
    }
    fn stat(&self, at: &Name) -> io::Result<u64> {
        self.posix.stat(at)
    }
    fn list(&self, at: &Name) -> io::Result<u64> {
        self.posix.list(at)
    }
    fn read_at(&self, file: &Self::File, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.posix.read_at(file, at, into)
    }
    fn write_at(&self, file: &Self::File, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.counts.may_fail()?;
        self.posix.write_at(file, at, bytes)
    }
    fn append(&self, file: &Self::File, bytes: &[u8]) -> io::Result<()> {
        self.posix.append(file, bytes)
    }
    fn set_len(&self, file: &Self::File, bytes: u64) -> io::Result<()> {
        let before = rustix::fs::fstat(file)?;
        let whole = before.st_blocks * 512 >= before.st_size;
        let page = before.st_size.cast_unsigned() == bytes + 4096;
        self.counts.cut.fetch_add(u64::from(whole && page), Relaxed);
        self.posix.set_len(file, bytes)
    }
    fn persist(&self, _file: &Self::File) -> io::Result<()> {
        self.counts.files.fetch_add(1, Relaxed);
        Ok(())
    }
    fn persist_names(&self, _dir: &Self::Dir) -> io::Result<()> {
        self.counts.names.fetch_add(1, Relaxed);
        Ok(())
    }
    fn map(&self, at: &Name) -> io::Result<Self::Map> {
        self.posix.map(at)
    }
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
    fn path(&self) -> Option<&Path> {
        self.posix.path()
    }
    fn database(&self, at: &Name) -> io::Result<Option<Connection>> {
        self.posix.database(at)
    }
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in(crate::place::usual()).unwrap()
}

/// Some slices of a cell, all threads one after the other; returns the operations.
fn slices(workers: &mut [Box<dyn Worker>]) -> u64 {
    let mut operations = 0;
    for turn in 0..4 {
        for worker in &mut *workers {
            // Some end in the middle of a batch, and of a list of calls.
            let stop = AtomicBool::new(turn == 0);
            let busy = Duration::from_micros(700 * turn);
            let until = Until { busy, every: 1, clock_ns: 0, stop: &stop };
            operations += worker.slice(&until, &mut Histogram::new()).unwrap().operations;
        }
    }
    operations
}

#[test]
fn every_workload_goes_on_in_every_mode_and_takes_no_more_and_more_room() {
    let dir = memory();
    let mut stage = Stage::new(Posix::new(dir.path(), false).unwrap());
    for cell in crate::plan::cells(&[], &[1, 2], false) {
        let Some(mut workers) = workers(&mut stage, &cell).unwrap() else { continue };
        assert_eq!(workers.len(), cell.threads);
        assert!(slices(&mut workers) >= 4, "{cell}");
    }
    // The files for random places, and SQLite's.
    let bytes = bytes_below(dir.path());
    assert!(bytes < stage::DATA_BYTES + (8 << 20), "{bytes}");
}

fn bytes_below(dir: &Path) -> u64 {
    let bytes = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        found if found.is_dir() => bytes_below(&entry.path()),
        found => found.len(),
    };
    std::fs::read_dir(dir).unwrap().flatten().map(bytes).sum()
}

/// Random overwrites leave some file systems a file in small pieces; what reads it next is not to measure that.
#[test]
fn who_reads_a_file_finds_it_as_it_was_made_whatever_was_measured_before() {
    let dir = memory();
    let mut stage = Stage::new(Posix::new(dir.path(), false).unwrap());
    let mut file_of = |id, threads| {
        let cell = Cell { workload: by_id(id).unwrap(), threads, mode: Mode::Shared };
        workers(&mut stage, &cell).unwrap().unwrap();
        std::os::unix::fs::MetadataExt::ino(&dir.path().join("data0").metadata().unwrap())
    };
    let made = file_of("read-4k", 1);
    assert_eq!(
        [file_of("write-1m", 2), file_of("overwrite-4k", 1), file_of("overwrite-512", 2)],
        [made; 3]
    );
    let again = file_of("read-1m", 2);
    assert_ne!(again, made);
    assert_eq!([file_of("read-4k", 1), file_of("overwrite-4k", 1)], [again; 2]);
    assert_ne!(file_of("write-1m", 1), again);
}

#[test]
fn who_reads_a_mapped_file_finds_it_as_it_was_made_too() {
    let dir = memory();
    let mut stage = Stage::new(Posix::new(dir.path(), false).unwrap());
    let mut file_of = |id, threads| {
        let cell = Cell { workload: by_id(id).unwrap(), threads, mode: Mode::Private };
        drop(workers(&mut stage, &cell).unwrap().unwrap());
        let file = |number| dir.path().join(format!("data{number}")).metadata().unwrap();
        [0, threads - 1].map(|number| std::os::unix::fs::MetadataExt::ino(&file(number)))
    };
    let made = file_of("map-read-4k", 2);
    assert_eq!([file_of("map-store-64", 2), file_of("overwrite-4k", 2)], [made; 2]);
    let again = file_of("map-read-4k", 2);
    assert!(again[0] != made[0] && again[1] != made[1], "{made:?} {again:?}");
    assert_eq!([file_of("map-store-64", 2), file_of("read-4k", 2)], [again; 2]);
    // (The system maps no file in as many pieces as random overwrites leave.)
    assert_eq!(file_of("overwrite-4k", 2), again);
    let once_more = file_of("map-store-64", 2);
    assert!(once_more[0] != again[0] && once_more[1] != again[1], "{again:?} {once_more:?}");
}

#[test]
fn what_could_not_be_made_ready_is_made_anew_when_it_is_asked_for_again() {
    for (id, threads, fails_in) in [
        // At once, in the middle of the first file and of the second.
        ("read-4k", 2, 1),
        ("read-4k", 2, 4),
        ("overwrite-4k", 2, 131),
        // Among the names of a directory.
        ("open-close", 1, 5),
    ] {
        let (dir, counts) = (memory(), Arc::new(Counts::default()));
        let posix = Posix::new(dir.path(), false).unwrap();
        let mut stage = Stage::new(Counting { posix, counts: Arc::clone(&counts) });
        let cell = Cell { workload: by_id(id).unwrap(), threads, mode: Mode::Private };
        counts.fails_in.store(fails_in, Relaxed);
        let failed = workers(&mut stage, &cell).map(drop).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull, "{id}");
        assert_eq!(bytes_below(dir.path()), 0, "{id}: what is half made takes no room");
        let mut again = workers(&mut stage, &cell).unwrap().unwrap();
        assert!(slices(&mut again) >= 4, "{id}");
    }
}

#[test]
fn what_is_cut_off_was_there() {
    let dir = memory();
    let counts = Arc::new(Counts::default());
    let posix = Posix::new(dir.path(), false).unwrap();
    let mut stage = Stage::new(Counting { posix, counts: Arc::clone(&counts) });
    let workload = by_id("truncate").unwrap();
    let cell = Cell { workload, threads: 1, mode: Mode::Private };
    let mut workers = workers(&mut stage, &cell).unwrap().unwrap();
    // More than there are pages in the file.
    let operations: u64 = (0..20).map(|_| slices(&mut workers)).sum();
    assert!(operations > 1000);
    assert_eq!(counts.cut.load(Relaxed), operations);
}

#[test]
fn what_an_operation_changes_is_made_durable_by_it() {
    let dir = memory();
    let counts = Arc::new(Counts::default());
    let posix = Posix::new(dir.path(), false).unwrap();
    let mut stage = Stage::new(Counting { posix, counts: Arc::clone(&counts) });
    // Files and directories that are made durable, of one operation.
    let each = [
        ("create", (1, 1)),
        ("unlink", (0, 1)),
        ("create-unlink", (1, 2)),
        ("mkdir", (0, 1)),
        ("rename", (0, 1)),
        ("append-64", (1, 0)),
        ("append-64k", (1, 0)),
        ("overwrite-512", (1, 0)),
        ("write-1m", (1, 0)),
        ("stat", (0, 0)),
        ("open-close", (0, 0)),
        ("readdir", (0, 0)),
        ("read-4k", (0, 0)),
    ];
    for (id, (files, names)) in each {
        let workload = by_id(id).unwrap();
        let cell = Cell { workload, threads: 2, mode: Mode::Shared };
        let mut workers = workers(&mut stage, &cell).unwrap().unwrap();
        counts.files.store(0, Relaxed);
        counts.names.store(0, Relaxed);
        let operations = slices(&mut workers);
        let found = (counts.files.load(Relaxed), counts.names.load(Relaxed));
        assert_eq!(found, (files * operations, names * operations), "{id}");
    }
}

#[test]
fn a_personality_makes_durable_what_its_calls_change() {
    for (personality, files, names) in [
        // Create, write, append; create, delete.
        (&personalities::FILESERVER, 3, 2),
        (&personalities::WEBSERVER, 1, 0),
        (&personalities::WEBPROXY, 3, 2),
        (&personalities::VARMAIL, 3, 2),
        (&personalities::OLTP, 2, 0),
    ] {
        let (dir, counts) = (memory(), Arc::new(Counts::default()));
        let posix = Posix::new(dir.path(), false).unwrap();
        let mut stage = Stage::new(Counting { posix, counts: Arc::clone(&counts) });
        let workload = ALL.iter().find(|one| one.kind == Kind::Personality(personality)).unwrap();
        let cell = Cell { workload, threads: 1, mode: Mode::Private };
        let mut workers = workers(&mut stage, &cell).unwrap().unwrap();
        counts.files.store(0, Relaxed);
        counts.names.store(0, Relaxed);
        let stop = AtomicBool::new(true);
        let until = Until { busy: Duration::ZERO, every: 1, clock_ns: 0, stop: &stop };
        // One call at a time, the whole list three times.
        for _ in 0..3 * personality.calls.len() {
            let slice = workers[0].slice(&until, &mut Histogram::new()).unwrap();
            assert_eq!(slice.operations, 1);
        }
        let found = (counts.files.load(Relaxed), counts.names.load(Relaxed));
        assert_eq!(found, (3 * files, 3 * names), "{}", workload.id);
    }
}

#[test]
fn names_are_distinct_and_found() {
    let ids: BTreeSet<_> = ALL.iter().map(|workload| (workload.id, workload.size)).collect();
    assert_eq!(ids.len(), ALL.len());
    assert_eq!(by_id("append-4k").unwrap().size, 4096);
    assert!(by_id("append").is_none());
}
