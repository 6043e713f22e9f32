//! Races of all processes in one directory, whose outcomes are legal one by one and add up:
//! records appended to one file, a lock that is a name, links of one inode, the same few names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::common::model::content;
use super::common::random::Random;

/// Most records of a process: the log is to fit into the pool.
const RECORDS_MAX: u64 = 15_000;
const RECORD_HEADER: usize = 32;
const NAMES: u64 = 6;
const LINKS_MAX: usize = 40;

/// What a process has done, as far as it must add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Operations in its own tree.
    pub modelled: u64,
    /// Records it has appended.
    pub appended: u64,
    /// How often it had the lock.
    pub locked: u64,
    /// Links it has left.
    pub links: u64,
    /// Operations on the names that all fight for.
    pub raced: u64,
}

impl Report {
    /// As one line.
    pub fn text(&self) -> String {
        let Self { modelled, appended, locked, links, raced } = self;
        format!("{modelled} {appended} {locked} {links} {raced}")
    }

    /// From that line.
    pub fn parse(text: &str) -> Self {
        let numbers: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        let [modelled, appended, locked, links, raced] = numbers[..] else {
            panic!("no report: {text}");
        };
        Self { modelled, appended, locked, links, raced }
    }
}

/// Makes what the processes share.
pub fn prepare(mount: &Path) {
    for dir in ["races", "races/names", "races/links"] {
        fs::create_dir(mount.join(dir)).unwrap();
    }
    for (file, text) in [("log", ""), ("counter", "0"), ("base", "")] {
        fs::write(mount.join("races").join(file), text).unwrap();
    }
}

/// One process's part.
pub struct Races {
    dir: PathBuf,
    number: u64,
    random: Random,
    log: File,
    links: Vec<PathBuf>,
    next: u64,
    report: Report,
}

impl Races {
    /// The part of process `number`.
    pub fn new(mount: &Path, seed: u64, number: u64) -> Self {
        let dir = mount.join("races");
        let log = File::options().append(true).open(dir.join("log")).unwrap();
        let random = Random::new(seed ^ number << 40);
        fs::write(dir.join(format!("own{number}")), "").unwrap();
        let report = Report::default();
        Self { dir, number, random, log, links: Vec::new(), next: 1, report }
    }

    /// Some rounds of each race.
    pub fn some(&mut self) {
        for _ in 0..8 {
            self.append();
            self.names();
            self.names();
        }
        for _ in 0..4 {
            self.lock();
            self.link();
        }
    }

    /// Closes all it has open; what it has done.
    pub fn end(self) -> Report {
        Report { links: self.links.len() as u64, ..self.report }
    }

    fn append(&mut self) {
        if self.report.appended == RECORDS_MAX {
            return;
        }
        self.report.appended += 1;
        let bytes = content(self.number, self.report.appended, 64 + self.random.below(1200));
        let written = self.log.write(&bytes).unwrap();
        assert_eq!(written, bytes.len(), "part of a record was appended");
    }

    /// Whoever makes the name has the lock, whatever kind of thing he makes; he alone counts on.
    fn lock(&mut self) {
        let (lock, own) = (self.dir.join("lock"), self.dir.join(format!("own{}", self.number)));
        let made = match self.random.below(5) {
            0 => File::create_new(&lock).map(drop),
            1 => fs::create_dir(&lock),
            2 => symlink("nowhere", &lock),
            3 => fs::hard_link(&own, &lock),
            _ => {
                let spare = self.dir.join(format!("spare{}", self.number));
                fs::write(&spare, "").unwrap();
                renameat_with(CWD, &spare, CWD, &lock, RenameFlags::NOREPLACE).map_err(Into::into)
            }
        };
        if !happened("taking the lock", made, &[Errno::EXIST]) {
            return;
        }
        let counter = self.dir.join("counter");
        let count: u64 = fs::read_to_string(&counter).unwrap().parse().unwrap();
        fs::write(&counter, (count + 1).to_string()).unwrap();
        self.report.locked += 1;
        if fs::symlink_metadata(&lock).unwrap().is_dir() {
            fs::remove_dir(&lock).unwrap();
        } else {
            fs::remove_file(&lock).unwrap();
        }
    }

    fn link(&mut self) {
        if self.links.len() == LINKS_MAX || (!self.links.is_empty() && self.random.below(2) == 0) {
            let at = self.random.below(self.links.len() as u64) as usize;
            fs::remove_file(self.links.swap_remove(at)).unwrap();
        } else {
            let link = self.dir.join(format!("links/{}-{}", self.number, self.next));
            self.next += 1;
            fs::hard_link(self.dir.join("base"), &link).unwrap();
            self.links.push(link);
        }
    }

    fn names(&mut self) {
        self.report.raced += 1;
        let number = self.random.below(NAMES);
        let another = (number + 1 + self.random.below(NAMES - 1)) % NAMES;
        let (name, other) = (self.name(number), self.name(another));
        let rename = |flags| renameat_with(CWD, &name, CWD, &other, flags).map_err(Into::into);
        let (gone, taken) = (Errno::NOENT, Errno::EXIST);
        match self.random.below(10) {
            0 | 1 => self.put(&name),
            2 => {
                let refused = [gone, Errno::ISDIR, Errno::NOTDIR];
                happened("rename", fs::rename(&name, &other), &refused);
            }
            3 => {
                happened("rename, not replacing", rename(RenameFlags::NOREPLACE), &[gone, taken]);
            }
            4 => {
                happened("exchange", rename(RenameFlags::EXCHANGE), &[gone]);
            }
            5 => {
                happened("unlink", fs::remove_file(&name), &[gone, Errno::ISDIR]);
            }
            6 => {
                happened("mkdir", fs::create_dir(&name), &[taken]);
                happened("rmdir", fs::remove_dir(&other), &[gone, Errno::NOTDIR]);
            }
            7 => {
                let refused = [gone, taken, Errno::PERM];
                happened("link", fs::hard_link(&name, &other), &refused);
            }
            8 => whole(&name, &[gone, Errno::ISDIR]),
            _ => self.list(),
        }
    }

    fn name(&self, number: u64) -> PathBuf {
        self.dir.join(format!("names/{number}"))
    }

    /// A file that is whole before it gets its name.
    fn put(&mut self, name: &Path) {
        let made = self.dir.join(format!("made{}", self.number));
        self.next += 1;
        fs::write(&made, content(self.number, self.next, 64 + self.random.below(9000))).unwrap();
        if !happened("rename over a name", fs::rename(&made, name), &[Errno::ISDIR]) {
            fs::remove_file(&made).unwrap();
        }
    }

    /// Each may be there or not while others make and remove it; nothing else is.
    fn list(&self) {
        for entry in fs::read_dir(self.dir.join("names")).unwrap() {
            let name = entry.unwrap().file_name();
            let number = name.to_str().and_then(|text| text.parse::<u64>().ok());
            assert!(number.is_some_and(|number| number < NAMES), "listed: {name:?}");
        }
    }
}

/// Whether it was done; if not, for one of the reasons there can be.
#[track_caller]
fn happened(what: &str, outcome: io::Result<()>, why_not: &[Errno]) -> bool {
    let Err(error) = outcome else {
        return true;
    };
    let legal = why_not.iter().any(|why| error.raw_os_error() == Some(why.raw_os_error()));
    assert!(legal, "{what}: {error}");
    false
}

/// What is read under a name that all fight for is what somebody wrote, wholly.
#[track_caller]
fn whole(name: &Path, why_not: &[Errno]) {
    match fs::read(name) {
        Ok(bytes) => assert_eq!(record(&bytes).map(|of| of.2), Ok(bytes.len()), "{name:?}"),
        Err(error) => _ = happened("read", Err(error), why_not),
    }
}

/// The record that bytes begin with: process, number, length.
fn record(bytes: &[u8]) -> Result<(u64, u64, usize), String> {
    let header = bytes.get(..RECORD_HEADER).ok_or("a record is cut off")?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    let (number, seq, len) = (word(8), word(16), word(24));
    let found = bytes.get(..len as usize).ok_or("a record is cut off, or none begins here")?;
    if found != content(number, seq, len) {
        return Err(format!("record {seq} of process {number} is torn"));
    }
    Ok((number, seq, len as usize))
}

/// Checks that all adds up.
pub fn judge(mount: &Path, reports: &[Report]) {
    let dir = mount.join("races");
    let bytes = fs::read(dir.join("log")).unwrap();
    let (mut at, mut next) = (0, vec![1; reports.len()]);
    while at < bytes.len() {
        let (number, seq, len) =
            record(&bytes[at..]).unwrap_or_else(|why| panic!("at {at}: {why}"));
        assert_eq!(seq, next[number as usize], "appends of process {number}, at {at}");
        next[number as usize] += 1;
        at += len;
    }
    let appended: Vec<u64> = reports.iter().map(|report| report.appended + 1).collect();
    assert_eq!(next, appended, "records are lost");
    let locked: u64 = reports.iter().map(|report| report.locked).sum();
    assert_eq!(
        fs::read_to_string(dir.join("counter")).unwrap(),
        locked.to_string(),
        "two held the lock"
    );
    let links: u64 = reports.iter().map(|report| report.links).sum();
    assert_eq!(fs::metadata(dir.join("base")).unwrap().nlink(), links + 1, "links of one file");
    assert_eq!(fs::read_dir(dir.join("links")).unwrap().count() as u64, links);
    for entry in fs::read_dir(dir.join("names")).unwrap() {
        whole(&entry.unwrap().path(), &[Errno::ISDIR]);
    }
}
