//! A load for a block device that is served by NBD in a machine whose plug is pulled, and the judge of what is left:
//! `tests/vm/`.
//!
//! Batches of writes follow from a seed; a batch is over when all that it asked for is answered, which is said in a line of
//! its own, `ack N`. A batch may be of writes with FUA, or end with a FLUSH. When the machine starts again it is told the last
//! such line that was seen: by it and the seed each sector has a version that it may not be older than, and one that it may
//! not be newer than. What was found is noted in a file, as no sector may be older later; then the load goes on.
//!
//! `stamps SOCKET EXPORT KEPT SECTOR SEED ACKED NOTES`; with `--check` as the last word nothing is done but the judging. KEPT says what
//! the device has of a sector that is written when the power fails: `whole` ones, `words` of several versions, or `promised-words`, where
//! what was answered is lost, too, but for what FUA and FLUSH promised.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use lode_testkit::nbd::Client;
use lode_testkit::rng::{Rng, mix};
use lode_testkit::stamps::{Kept, Stamps};

/// Batches that may have begun beyond the last acknowledgement that was seen: what a console holds back, which is a
/// page of lines of seven bytes or more.
const AHEAD: u32 = 640;
/// Batches of one load, should nobody pull the plug.
const MOST: u32 = 100_000;
/// Requests of a batch, at most, and sectors of a request.
const DEPTH: u64 = 8;
const RUN: u64 = 24;

/// What is asked for at a time. Its number and one is the version that it writes.
struct Batch {
    version: u32,
    /// First sectors and counts, of which none is in two.
    runs: Vec<(u64, u64)>,
    fua: bool,
    flush: bool,
}

impl Batch {
    fn new(seed: u64, number: u32, sectors: u64) -> Self {
        let mut rng = Rng::new(mix(seed) ^ u64::from(number));
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for _ in 0..=rng.below(DEPTH) {
            let first = rng.below(sectors);
            let count = (1 + rng.below(RUN)).min(sectors - first);
            if runs.iter().all(|(at, len)| first + count <= *at || at + len <= first) {
                runs.push((first, count));
            }
        }
        let (fua, flush) = (rng.once_in(4), rng.once_in(3));
        Self { version: number + 1, runs, fua, flush }
    }

    fn sectors(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|(first, count)| *first..first + count)
    }

    fn begins(&self, stamps: &mut Stamps) {
        self.sectors().for_each(|number| stamps.begin(number, self.version));
    }

    fn is_answered(&self, stamps: &mut Stamps) {
        self.sectors().for_each(|number| stamps.answer(number, self.version, self.fua));
        if self.flush {
            let flush = stamps.flush();
            stamps.flushed(flush);
        }
    }

    fn write(&self, client: &mut Client, stamps: &Stamps, sector: u64) -> std::io::Result<()> {
        for (cookie, (first, count)) in self.runs.iter().enumerate() {
            let numbers = *first..first + count;
            let bytes: Vec<u8> =
                numbers.flat_map(|number| stamps.stamped(number, self.version)).collect();
            client.write(cookie as u64, first * sector, &bytes, self.fua)?;
        }
        for _ in &self.runs {
            client.answer()?;
        }
        if self.flush {
            client.flush(DEPTH)?;
            client.answer()?;
        }
        Ok(())
    }
}

/// What is known for sure when a load begins: its first batch, and the version of each sector.
struct Notes {
    next: u32,
    versions: Vec<u32>,
    /// No load has begun before.
    is_first: bool,
}

impl Notes {
    /// As they were noted; nothing is known where nothing is noted.
    fn read(path: &Path, sectors: u64) -> Self {
        let Ok(text) = std::fs::read_to_string(path) else {
            return Self { next: 0, versions: vec![0; sectors as usize], is_first: true };
        };
        let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
        let next = numbers.next().expect("notes are written wholly");
        let versions: Vec<u32> = numbers.collect();
        assert_eq!(versions.len() as u64, sectors, "notes are written wholly");
        Self { next, versions, is_first: false }
    }

    /// They are there when this returns, or those of before are.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let new = path.with_extension("new");
        let words: Vec<String> = self.versions.iter().map(u32::to_string).collect();
        let mut file = File::create(&new)?;
        write!(file, "{}\n{}\n", self.next, words.join(" "))?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(path.parent().expect("a file has a directory"))?.sync_all()
    }
}

/// Writes a sector of several versions anew, as the newest one that it may have: so nothing is wrong should that be cut off, too.
fn make_whole(
    client: &mut Client,
    stamps: &mut Stamps,
    number: u64,
    sector: u64,
) -> std::io::Result<u32> {
    let version = stamps.begun(number);
    client.write(0, number * sector, &stamps.stamped(number, version), true)?;
    client.answer()?;
    stamps.set(number, version);
    Ok(version)
}

/// Looks at every sector, after so many batches were acknowledged.
fn judge(
    client: &mut Client,
    stamps: &mut Stamps,
    (kept, sector): (Kept, u64),
    notes: &Notes,
    (seed, acked): (u64, u32),
) -> Result<Notes, String> {
    for (number, version) in notes.versions.iter().enumerate() {
        stamps.set(number as u64, *version);
    }
    let acked = acked.max(notes.next);
    for number in notes.next..acked + AHEAD {
        let batch = Batch::new(seed, number, stamps.count());
        batch.begins(stamps);
        if number < acked {
            batch.is_answered(stamps);
        }
    }
    let (mut versions, mut wrong) = (Vec::new(), Vec::new());
    for first in (0..stamps.count()).step_by(RUN as usize) {
        let count = RUN.min(stamps.count() - first);
        let read = client.read(first * sector, (count * sector) as usize);
        let bytes = read.map_err(|error| error.to_string())?;
        for (number, bytes) in (first..).zip(bytes.chunks(sector as usize)) {
            match stamps.found_on(kept, number, bytes) {
                Ok(Some(version)) => versions.push(version),
                Ok(None) => {
                    let version = make_whole(client, stamps, number, sector);
                    versions.push(version.map_err(|error| error.to_string())?);
                }
                Err(what) => wrong.push(what),
            }
        }
    }
    if let Some(first) = wrong.first() {
        return Err(format!("{} sectors are wrong after {acked} batches: {first}", wrong.len()));
    }
    // (A version is written once: what may have begun is not begun again.)
    let next = if notes.is_first { 0 } else { acked + AHEAD };
    Ok(Notes { next, versions, is_first: false })
}

fn load(
    client: &mut Client,
    stamps: &Stamps,
    sector: u64,
    (seed, from): (u64, u32),
) -> std::io::Result<()> {
    let mut console = std::io::stdout();
    println!("lode-vm: loading");
    for number in from..from + MOST {
        Batch::new(seed, number, stamps.count()).write(client, stamps, sector)?;
        writeln!(console, "ack {}", number + 1)?;
        console.flush()?;
    }
    Ok(())
}

fn pulled(words: &[String]) -> Result<(), String> {
    let [socket, export, kept, sector, seed, acked, notes, rest @ ..] = words else {
        return Err("usage: see above".into());
    };
    let kept = match kept.as_str() {
        "whole" => Kept::Whole,
        "words" => Kept::Words,
        "promised-words" => Kept::PromisedWords,
        other => return Err(format!("{other}: nothing is kept so")),
    };
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (sector, seed, acked) = (number(sector)?, number(seed)?, number(acked)? as u32);
    let mut client = Client::connect(Path::new(socket), export).map_err(|e| e.to_string())?;
    let mut stamps = Stamps::new(sector as usize, (client.size / sector) as usize);
    let before = Notes::read(Path::new(notes), stamps.count());
    let found = judge(&mut client, &mut stamps, (kept, sector), &before, (seed, acked))?;
    let stamped = found.versions.iter().filter(|version| **version > 0).count();
    let newer = found.versions.iter().filter(|version| **version > acked).count();
    if rest.is_empty() {
        found.write(Path::new(notes)).map_err(|error| format!("{notes}: {error}"))?;
    }
    let told = format!("{stamped} sectors stamped, {newer} of them not acknowledged");
    println!("lode-vm: state {} of {acked} acknowledged: {told}", found.next);
    match rest {
        [] => load(&mut client, &stamps, sector, (seed, found.next)).map_err(|e| e.to_string()),
        _ if stamped == 0 => Err("nothing was ever written".into()),
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match pulled(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("lode-vm: FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}
