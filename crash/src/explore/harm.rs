//! Memory that loses something between operations, and the scrub that makes it good.
//!
//! What is damaged is found by the second reading of the format that tests have, and of data by a read-only opening of a
//! copy: who looks for it in the pool itself would make good what was damaged before.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::layout::{BAD_AT, CrcTable, Geometry, LANE_CHAIN_AT, LOCATOR_AT, Superblock};
use lode_engine::{Ino, InodeDump, OpenOptions, Outcome, Pool, mode};
use lode_testkit::execute::list;
use lode_testkit::format::{LINE, PAGE, SLOT, Survey};
use lode_testkit::fs::Fs;
use lode_testkit::harm::{Harm, Harmed, HarmedBy, scrubbed};
use lode_testkit::rng::mix;
use lode_testkit::run::panic_text;

use super::run::Run;
use super::{Setup, SimulatedPool};
use crate::judge::Health;
use crate::region::Simulated;

const LINE_BYTES: u64 = LINE as u64;
const PAGE_BYTES: u64 = PAGE as u64;
/// Bytes of a line that its seal covers, whatever it is.
const SEALED: u64 = 40;
/// Bytes of a lane on the medium.
const LANE: usize = 256;
/// Line of an inode's slot in which its death is told.
const DEATH: usize = 7;

/// A line, and its second copy if it has one.
type Copies = (u64, Option<u64>);

impl Run<'_> {
    /// Damages a line, durably. Nothing, where there is none of this kind.
    pub(super) fn damage(&mut self, harm: &Harm) -> Result<(), String> {
        let medium = self.pool.medium().clone();
        let all = Found::of(self.setup, &medium)?.lines(harm.of);
        let (number, copies) = (harm.number / 2, harm.number % 2);
        let by_turns = all.iter().any(|(_, second)| second.is_some());
        let number = if by_turns { number } else { harm.number };
        let Some((first, second)) = all.get(number as usize % all.len().max(1)) else {
            return Ok(());
        };
        let at = if copies == 1 { second.unwrap_or(*first) } else { *first };
        let (line, byte) = (at / LINE_BYTES * LINE_BYTES, at % LINE_BYTES);
        let mut bytes = [0; LINE];
        medium.seen().load(line, &mut bytes);
        match harm.by {
            HarmedBy::Zero => bytes.fill(0),
            HarmedBy::Flip => {
                let byte = match harm.of {
                    // (Others may be behind the end of the file, or of the list.)
                    Harmed::Chain | Harmed::Checksum | Harmed::ValueChecksum | Harmed::BadList => {
                        byte
                    }
                    Harmed::Data | Harmed::Kept | Harmed::Value => 0,
                    _ => mix(harm.number) % SEALED,
                };
                bytes[byte as usize] ^= 1 << (harm.number % 8);
            }
            // (Rubbish: so nothing that is stored there is what it held.)
            HarmedBy::Poison | HarmedBy::Broken => {
                (0..).zip(bytes.as_chunks_mut::<8>().0).for_each(|(word, there)| {
                    *there = mix(line + word).to_le_bytes();
                })
            }
        }
        medium.overwrite(line, &bytes);
        match harm.by {
            HarmedBy::Poison => medium.poison(line, 1),
            HarmedBy::Broken => medium.wreck(line),
            HarmedBy::Flip | HarmedBy::Zero => {}
        }
        (self.health, self.is_to_be_found) = (Health::Hurt, true);
        Ok(())
    }

    /// Scrubs the pool to the end: what was damaged is found, and repaired; else nothing is.
    pub(super) fn scrub(&mut self) -> Result<(), String> {
        let pool = &self.pool;
        let scrub = || {
            let scrubbed = catch_unwind(AssertUnwindSafe(|| scrubbed(pool)));
            let scrubbed =
                scrubbed.map_err(|payload| format!("scrub: {}", panic_text(payload.as_ref())))?;
            scrubbed.map_err(|error| format!("scrub: {error} ({error:?})"))
        };
        let found = scrub()?;
        if let Some(bad) = found.iter().find(|one| one.outcome != Outcome::Repaired) {
            return Err(format!("a scrub does not repair what could be repaired: {bad:?}"));
        }
        match found.first() {
            None if self.is_to_be_found => return Err("a scrub misses what was damaged".to_owned()),
            Some(one) if self.health != Health::Hurt && !self.may_be_torn => {
                return Err(format!("nothing was damaged, and a scrub finds {one:?}"));
            }
            _ => {}
        }
        if let Some(one) = scrub()?.first() {
            return Err(format!("scrubbed, and a second scrub finds {one:?}"));
        }
        if pool.medium().machine_checks() > 0 {
            return Err("less than a line was stored to memory that can't be loaded".to_owned());
        }
        (self.health, self.is_to_be_found, self.may_be_torn) = (Health::Scrubbed, false, false);
        Ok(())
    }
}

/// What lies where in a pool.
struct Found {
    image: Vec<u8>,
    survey: Survey,
    geometry: Geometry,
    /// Runs of pages with data of files, as far as these reach: offset and bytes.
    data: Vec<(u64, u64)>,
    /// Those that only snapshots see.
    kept: Vec<(u64, u64)>,
    has_bad: bool,
}

impl Found {
    fn of(setup: &Setup, medium: &Simulated) -> Result<Self, String> {
        let image = medium.seen().image();
        let fail = |what: &str| format!("to damage something: {what}");
        let copies = [0, image.len() - PAGE].map(|at| {
            let raw: Option<&[u8; 512]> =
                image.get(at..at + 512).and_then(|raw| raw.try_into().ok());
            raw.and_then(|raw| Superblock::parse(raw).ok())
        });
        let superblock = copies.into_iter().flatten().max_by_key(|one| one.update);
        let geometry = superblock.ok_or_else(|| fail("no superblock is left"))?.geometry();
        let options = OpenOptions { read_only: true, ..setup.options() };
        let pool = Pool::open(medium.fork(), setup.host(7), &options)
            .map_err(|error| fail(&format!("{error:?}")))?;
        let snapshots = Fs::snapshots(&pool).map_err(|error| fail(&format!("{error:?}")))?;
        let mut data = Vec::new();
        let mut seen = BTreeSet::new();
        extents_in(&pool, pool.root(), &mut seen, &mut data)?;
        let mut kept = Vec::new();
        for (_, root) in snapshots {
            extents_in(&pool, root, &mut seen, &mut kept)?;
        }
        let has_bad = pool.bad_memory().is_ok_and(|bad| !bad.is_empty());
        Ok(Self { survey: Survey::of(&image), image, geometry, data, kept, has_bad })
    }

    /// The lines of a kind, in their order. (Where one is part of a line, its offset.)
    fn lines(&self, of: Harmed) -> Vec<Copies> {
        let (survey, last) = (&self.survey, (self.image.len() - PAGE) as u64);
        let behind = |at: u64| (at, Some(last + at));
        let logs = |dead: bool| survey.logs.iter().filter(move |log| log.dead == dead);
        let records = |dead: bool| {
            let runs = logs(dead).flat_map(|log| &log.runs);
            runs.flat_map(|run| (0..run.valid).map(move |line| run.at(line)))
        };
        let pages = |dead: bool| {
            let all =
                logs(dead).flat_map(|log| log.runs.iter().map(move |run| (log.ino, run.anchor)));
            all.filter(|(ino, anchor)| *anchor != *ino as usize * SLOT).map(|(_, anchor)| anchor)
        };
        let slots = |dead: bool| logs(dead).map(|log| log.ino as usize * SLOT);
        match of {
            Harmed::Superblock => (0..512).step_by(LINE).map(behind).collect(),
            Harmed::Locator => vec![(LOCATOR_AT, None)],
            Harmed::BadList if !self.has_bad => Vec::new(),
            Harmed::BadList => vec![behind(BAD_AT)],
            Harmed::Chain => {
                let lanes = 0..survey.superblock.lanes;
                let chain = LANE_CHAIN_AT as usize;
                self.twins(lanes.map(|lane| survey.superblock.lane_table + lane * LANE + chain))
            }
            Harmed::Table => self.twins(survey.pieces.iter().copied()),
            Harmed::Identity => self.twins(slots(false)),
            Harmed::Record => self.twins(records(false)),
            Harmed::LogPage => self.twins(pages(false)),
            Harmed::Dead => {
                let deaths = slots(true).map(|slot| slot + DEATH * LINE);
                self.twins(slots(true).chain(deaths).chain(pages(true)).chain(records(true)))
            }
            Harmed::Checksum | Harmed::Parity | Harmed::Data => self.of_data(of, &self.data),
            Harmed::Kept => self.of_data(of, &self.kept),
            Harmed::Value | Harmed::ValueChecksum => self.of_data(of, &self.values()),
        }
    }

    /// First and second copies of metadata; none, where the second is not kept.
    fn twins(&self, all: impl Iterator<Item = usize>) -> Vec<Copies> {
        let apart = self.geometry.twin_pages * PAGE_BYTES;
        let all = all.map(|at| (at as u64, Some(at as u64 ^ apart)));
        all.filter(|_| apart != 0).collect()
    }

    /// Runs of pages with values of attributes of living inodes, as far as these reach.
    fn values(&self) -> Vec<(u64, u64)> {
        let logs = self.survey.logs.iter().filter(|log| !log.dead);
        let pieces = logs.flat_map(|log| log.values(&self.image)).flatten();
        pieces.map(|(at, len)| (at as u64, len as u64)).collect()
    }

    /// Data, and what is kept of it; none, where nothing is.
    fn of_data(&self, of: Harmed, runs: &[(u64, u64)]) -> Vec<Copies> {
        let strips = &self.geometry.strips;
        let is_by_lines = matches!(of, Harmed::Data | Harmed::Kept | Harmed::Value);
        let step = if is_by_lines { LINE } else { PAGE };
        let places = runs.iter().flat_map(|(at, bytes)| (*at..at + bytes).step_by(step));
        let copies = |at: u64| match of {
            Harmed::Checksum | Harmed::ValueChecksum => {
                let [first, second] = [CrcTable::First, CrcTable::Second]
                    .map(|table| strips.crcs_at(at / PAGE_BYTES, table));
                (first, Some(second))
            }
            Harmed::Parity => (strips.parity_at(at / PAGE_BYTES), None),
            _ => (at, None),
        };
        places.filter(|_| strips.are_kept()).map(copies).collect()
    }
}

/// Adds where the data of all files below a directory lies that was not seen before.
fn extents_in(
    pool: &SimulatedPool,
    dir: Ino,
    seen: &mut BTreeSet<u64>,
    into: &mut Vec<(u64, u64)>,
) -> Result<(), String> {
    let fail = |error| format!("to damage something: {error:?}");
    for (name, _) in list(pool, dir).map_err(fail)? {
        let attr = Fs::lookup(pool, dir, &name).map_err(fail)?;
        match attr.mode & mode::TYPE {
            mode::DIRECTORY => extents_in(pool, attr.ino, seen, into)?,
            mode::FILE => {
                let InodeDump { extents, .. } = pool.dump_inode(attr.ino).map_err(fail)?;
                for one in extents {
                    let len = one.bytes.min(attr.size.saturating_sub(one.file_offset));
                    let pages = (0..len).step_by(PAGE).map(|skip| (one.pool_offset + skip, skip));
                    let new = pages.filter(|(at, _)| seen.insert(*at));
                    into.extend(new.map(|(at, skip)| (at, PAGE_BYTES.min(len - skip))));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
