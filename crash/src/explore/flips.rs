//! One bit flips: of a record, of a header, of anything that has a seal.
//!
//! In a pool that was closed it is always noticed, by opening or by the full check. (What a
//! checkpoint says is in the logs, too: without it the pool opens as after a crash, and is right, but says
//! so.) In one that was not closed, the end of a log may be what a crash left; whatever a later record follows is
//! not. What was noticed is never guessed: the right tree is shown, or an error.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::layout::{CrcTable, Superblock};
use lode_engine::{OpenOptions, Pool};
use lode_testkit::format::{LINE, PAGE, Run as Lines, SLOT, Survey};
use lode_testkit::run::panic_text;
use lode_testkit::snapshot::{difference, snapshot};

use super::cuts::Wrong;
use super::path::Stage;
use super::run::Run;
use super::{CutReport, Explorer, Leg};
use crate::case::Case;
use crate::judge::{Expected, sound};
use crate::region::{Pages, Simulated, Stored};
use crate::states::Choice;

/// Bytes of a superblock, and of what an anchor line's seal covers in front of its words.
const SUPERBLOCK: usize = 512;
const ANCHOR: usize = 40;
/// Place of the line that says where the second superblock is.
const LOCATOR_AT: usize = 1024;
/// Bytes of a lane's lines, and the place of its link to inode tables.
const LANE: usize = 256;
const CHAIN_AT: usize = 128;
/// Place and bytes of a line's seal.
const SEAL: (usize, usize) = (56, 8);

/// Sealed bytes.
struct Sealed {
    what: &'static str,
    at: usize,
    bytes: usize,
    /// Who finds that it is damaged.
    found_by: FoundBy,
    /// A salvage, always tried, makes it right again: nothing is lost.
    made_right: bool,
}

/// Who finds damage, the earliest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FoundBy {
    /// Opening: it fails and writes nothing, or makes good and says so.
    Opening,
    /// Opening, or whoever looks at everything.
    Looking,
    /// Nobody: it is made right when it is met.
    Nobody,
}

impl FoundBy {
    fn words(self) -> &'static str {
        match self {
            FoundBy::Opening => "opening it",
            FoundBy::Looking => "reading and checking it",
            FoundBy::Nobody => "nobody",
        }
    }
}

impl Explorer<'_> {
    /// Flips bits in the pool that a case leaves, one at a time: as it is, and closed.
    pub(super) fn flips(&mut self, case: &Case, mut run: Run<'_>) -> Result<(), Wrong> {
        let first = case.before.len();
        for (step, op) in case.ops.iter().enumerate() {
            run.step(first + step, op)?;
        }
        let expected = run.expected()?;
        let open = run.pool.medium().seen();
        run.pool.close().map_err(|error| format!("close: {error:?}"))?;
        let closed = run.pool.medium().seen();
        for (step, image) in [open, closed].iter().enumerate() {
            let bytes = image.image();
            let survey = Survey::of(&bytes);
            let sealed = match (case.geometry.strip, step) {
                (Some(_), _) => strips(&survey, &bytes),
                (None, 0) => followed(&survey, &bytes),
                (None, _) => all(&survey, &bytes),
            };
            for (number, one) in sealed.iter().enumerate() {
                self.flips_of((step, number), one, image, &expected)?;
            }
        }
        Ok(())
    }

    /// A bit of each of its words.
    fn flips_of(
        &mut self,
        (step, number): (usize, usize),
        sealed: &Sealed,
        image: &Pages,
        expected: &Expected,
    ) -> Result<(), Wrong> {
        let all = (0..sealed.bytes * 8).filter(|bit| {
            let word = bit / 64;
            bit % 64 == (word * 11 + number * 7) % 64
        });
        let wanted = self.wanted((step, number));
        let state = ["open", "closed"][step];
        let replayed = wanted.is_some();
        let bits = wanted.unwrap_or_else(|| all.collect());
        for bit in bits.into_iter().filter(|bit| *bit < sealed.bytes * 8) {
            self.may_go_on()?;
            let at = sealed.at + bit / 8;
            let flipped = flipped(image, at, bit % 8);
            let looked = catch_unwind(AssertUnwindSafe(|| {
                self.look(&flipped, sealed, expected)?;
                let every = self.limits.salvaged_every;
                if sealed.made_right {
                    self.opening_cut(&flipped, expected)?;
                    let salvaged = self.salvage(&flipped)?;
                    let salvaged = salvaged.ok_or_else(|| "a salvage was refused".to_owned())?;
                    self.is_right(&salvaged, expected)?;
                } else if replayed || bit % every == number % every {
                    self.salvage(&flipped)?;
                }
                Ok(())
            }));
            let looked =
                looked.unwrap_or_else(|payload| Err(Wrong::from(panic_text(payload.as_ref()))));
            self.tally.flips += 1;
            let place = format!("in a pool left {state}");
            let which = format!("bit {} of byte {at:#x}, of {}", bit % 8, sealed.what);
            let cut =
                CutReport { place, fence: None, stores: Vec::new(), bit: Some(which), bad: None };
            if replayed {
                self.note_cut(cut.clone());
            }
            let leg = |choice| Leg { stage: Stage::Bit, step, point: number, choice };
            looked.map_err(|wrong: Wrong| wrong.after(leg(Choice(vec![bit as u16])), cut))?;
        }
        Ok(())
    }

    /// Opens a pool with a flipped bit.
    fn look(&self, image: &Pages, sealed: &Sealed, expected: &Expected) -> Result<(), String> {
        for (read_only, how) in [(true, "read-only"), (false, "for writing")] {
            let found = self.found_by(image, read_only, expected);
            let found = found.map_err(|what| format!("opened {how}: {what}"))?;
            if sealed.found_by == FoundBy::Nobody && found != FoundBy::Nobody {
                return Err(format!("opened {how}, damage found by {}", found.words()));
            }
            if found > sealed.found_by {
                let wanted = sealed.found_by.words();
                return Err(format!(
                    "opened {how}, damage found by {}, not {wanted}",
                    found.words()
                ));
            }
        }
        Ok(())
    }

    /// A pool that was made right has everything.
    fn is_right(&self, image: &Pages, expected: &Expected) -> Result<(), String> {
        match self.found_by(image, false, expected)? {
            FoundBy::Nobody => Ok(()),
            found => Err(format!("salvaged, but damage found by {}", found.words())),
        }
    }

    /// Who finds damage. What is shown otherwise must be right.
    fn found_by(
        &self,
        image: &Pages,
        read_only: bool,
        expected: &Expected,
    ) -> Result<FoundBy, String> {
        let options = OpenOptions { read_only, ..self.setup.options() };
        let medium = Simulated::plain(image);
        let Ok(pool) = Pool::open(medium.clone(), self.setup.host(8), &options) else {
            return match medium.stores() {
                0 => Ok(FoundBy::Opening),
                _ => Err("an opening that found damage wrote".to_owned()),
            };
        };
        let opening = pool.opening();
        if !opening.damage.is_empty() {
            return Ok(FoundBy::Opening);
        }
        let made_good = opening.is_damaged();
        let seen = match snapshot(&pool, self.setup.times(), Some(&expected.tree)) {
            Ok(seen) => seen,
            Err(what) if made_good => return Err(format!("made good by opening it, but {what}")),
            Err(_) => return Ok(FoundBy::Looking),
        };
        if let Some(what) = difference(&expected.tree, &seen) {
            return Err(format!("what is shown is wrong: {what}"));
        }
        // A read-only opening leaves links as they are, and the check tells of them, too.
        let stays = read_only && !opening.chain_damage.is_empty();
        match (sound(&pool, "check"), made_good) {
            (Err(what), true) if !stays => Err(format!("made good by opening it, but {what}")),
            (_, true) => Ok(FoundBy::Opening),
            (Err(_), false) => Ok(FoundBy::Looking),
            (Ok(()), false) => Ok(FoundBy::Nobody),
        }
    }
}

fn flipped(image: &Pages, at: usize, bit: usize) -> Pages {
    let mut image = image.clone();
    let (line, byte) = (at / LINE * LINE, at % LINE);
    let mut bytes = [0; LINE];
    image.load(line as u64, &mut bytes);
    bytes[byte] ^= 1 << bit;
    image.store(line as u64, 1 << byte, &bytes, Stored::Metadata);
    image
}

fn sealed(what: &'static str, at: usize, bytes: usize) -> Sealed {
    Sealed { what, at, bytes, found_by: FoundBy::Looking, made_right: false }
}

/// The link of a lane to its inode tables. Without it they are searched for, or a checkpoint knows
/// them.
fn chain_link(survey: &Survey, lane: usize) -> Sealed {
    let at = survey.superblock.lane_table + lane * LANE + CHAIN_AT;
    Sealed { made_right: true, ..sealed("a link to inode tables", at, SEAL.1) }
}

/// The sealed part of an anchor line, its seal, and its link, which has a check of its own.
fn anchor(what: &'static str, at: usize) -> [Sealed; 3] {
    let link = sealed("a link", at + ANCHOR, SEAL.1);
    [sealed(what, at, ANCHOR), link, sealed(what, at + SEAL.0, SEAL.1)]
}

/// Everything in a closed pool that has a seal (but for the dead, and what ends in them).
fn all(survey: &Survey, image: &[u8]) -> Vec<Sealed> {
    let mut all = Vec::new();
    for at in [0, survey.superblock.pages as usize * PAGE - PAGE] {
        all.push(sealed("a superblock", at, SUPERBLOCK));
    }
    all.push(sealed("the locator", LOCATOR_AT, LINE));
    all.extend((0..survey.superblock.lanes).map(|lane| chain_link(survey, lane)));
    for piece in &survey.pieces {
        let header = anchor("the header of a piece of inode table", *piece);
        let found_by = FoundBy::Opening;
        all.extend(header.map(|one| Sealed { found_by, made_right: true, ..one }));
    }
    for (at, bytes) in &survey.segments {
        let header = sealed("the header of a checkpoint", *at, LINE);
        let stream = sealed("a checkpoint", *at + LINE, *bytes);
        let found_by = FoundBy::Opening;
        all.extend([header, stream].map(|one| Sealed { found_by, ..one }));
    }
    for log in survey.logs.iter().filter(|log| !log.dead) {
        let identity = log.ino as usize * SLOT;
        all.extend(anchor("an inode's identity", identity));
        let pages = log.runs.iter().filter(|run| run.anchor != identity);
        all.extend(pages.flat_map(|run| anchor("the header of a log page", run.anchor)));
        let records = log.runs.iter().flat_map(|run| (0..run.valid).map(|line| run.at(line)));
        all.extend(records.map(|at| sealed("a record", at, LINE)));
        let values = log.values(image).into_iter().flatten();
        all.extend(values.map(|(at, bytes)| sealed("a value", at, bytes)));
    }
    all
}

/// A line of each strip of the files' data, and what is kept of it. Whatever flips, all is shown, and right.
fn strips(survey: &Survey, image: &[u8]) -> Vec<Sealed> {
    let superblock = image.first_chunk().and_then(|raw| Superblock::parse(raw).ok());
    let Some(strips) = superblock.map(|superblock| superblock.geometry().strips) else {
        return Vec::new();
    };
    let pages = survey.logs.iter().filter(|log| !log.dead).flat_map(|log| log.pages(image));
    let kept = |page: u64| {
        let data = (0..strips.a_page() as u64).map(move |strip| {
            let at = page * PAGE as u64 + strip * strips.bytes();
            ("file data", at, LINE as u64)
        });
        let tables = [
            ("a checksum of file data", strips.crcs_at(page, CrcTable::First), strips.crc_bytes()),
            ("a second checksum", strips.crcs_at(page, CrcTable::Second), strips.crc_bytes()),
            ("the parity of file data", strips.parity_at(page), LINE as u64),
        ];
        data.chain(tables)
    };
    let all = pages.flat_map(kept);
    let all = all.map(|(what, at, bytes)| sealed(what, at as usize, bytes as usize));
    all.map(|one| Sealed { found_by: FoundBy::Nobody, ..one }).collect()
}

/// What no crash can have left unfinished: the records of transactions that have another one behind
/// them in some log, and what leads to pages with such ones.
fn followed(survey: &Survey, image: &[u8]) -> Vec<Sealed> {
    let transaction = |at: usize| &image[at + 6..at + 16];
    let mut is_followed: HashMap<&[u8], bool> = HashMap::new();
    let mut records = Vec::new();
    // The first piece of inode table, that of the root, is there from the beginning, as is what leads
    // to it.
    let first = survey.pieces.first().map(|at| anchor("the header of the first inode table", *at));
    let first = first.into_iter().flat_map(|[header, _, seal]| [header, seal]);
    let first = first.map(|one| Sealed { made_right: true, ..one });
    let mut all: Vec<Sealed> = first.chain([chain_link(survey, 0)]).collect();
    for log in survey.logs.iter().filter(|log| !log.dead) {
        let lines: Vec<usize> =
            log.runs.iter().flat_map(|run| (0..run.valid).map(|line| run.at(line))).collect();
        let last = lines.last().map(|at| transaction(*at));
        for at in lines {
            *is_followed.entry(transaction(at)).or_default() |= last != Some(transaction(at));
            records.push(at);
        }
        let several = |run: &Lines, more: usize| {
            let all: HashSet<&[u8]> =
                (0..run.valid).map(|line| transaction(run.at(line))).collect();
            all.len() > more
        };
        for pair in log.runs.windows(2).filter(|pair| several(&pair[0], 1)) {
            all.push(sealed("a link", pair[0].anchor + ANCHOR, SEAL.1));
        }
        // One transaction of each lane may have had its page begin.
        for run in log.runs.iter().skip(1).filter(|run| several(run, survey.superblock.lanes)) {
            all.push(sealed("the header of a log page", run.anchor, ANCHOR));
        }
    }
    records.retain(|at| is_followed[transaction(*at)]);
    all.extend(records.into_iter().map(|at| sealed("a record", at, LINE)));
    all.into_iter().map(|one| Sealed { found_by: FoundBy::Opening, ..one }).collect()
}
