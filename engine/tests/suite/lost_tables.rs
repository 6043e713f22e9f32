//! Inode tables that damage cuts off: while a checkpoint knows them nothing is lost, and after a crash
//! a salvage finds them again.

use std::collections::BTreeMap;

use lode_engine::{
    Attr, Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, Salvage, SetAttr, mode,
};
use lode_testkit::format::Survey;
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
/// The page that a link word leads to.
const LINK_PAGE: u64 = (1 << 34) - 1;
/// Places of the link word and of the chain's word in their lines.
const LINK_AT: usize = 40;
const CHAIN_AT: usize = 128;
const LANE: usize = 256;
const FILES: usize = 1200;

fn open(memory: &Memory) -> Result<TestPool, Error> {
    Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default())
}

fn name(number: usize) -> Vec<u8> {
    format!("file-{number}").into_bytes()
}

/// A pool with files in many tables, left open or closed.
fn made(closed: bool) -> Memory {
    let memory = Memory::new(4 << 20);
    let format = FormatOptions { lanes: 3, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let host = TestHost::new(2);
    let pool = Pool::open(memory.clone(), host, &OpenOptions::default()).unwrap();
    for number in 0..FILES {
        let ino = pool.create(pool.root(), &name(number), &NEW).unwrap().ino;
        pool.setattr(ino, &SetAttr { uid: Some(number as u32), ..SetAttr::default() }).unwrap();
    }
    // A round, so that nothing is in doubt: else the last file is taken for one that a crash cut off.
    pool.create(pool.root(), b"dead", &NEW).unwrap();
    pool.unlink(pool.root(), b"dead").unwrap();
    pool.maintain().unwrap();
    if closed {
        pool.close().unwrap();
    }
    memory.copy()
}

/// What is in the root directory.
fn files(pool: &TestPool) -> BTreeMap<Vec<u8>, Attr> {
    let mut all = BTreeMap::new();
    pool.readdir(pool.root(), 0, &mut |entry| {
        all.insert(entry.name.to_vec(), pool.getattr(entry.ino).unwrap());
        true
    })
    .unwrap();
    all
}

/// What was told: tables found, where chains were cut; names removed; whatever else.
#[derive(Default, PartialEq, Eq, Debug)]
struct Report {
    found: Vec<usize>,
    mended: usize,
    removed: usize,
    others: Vec<String>,
}

fn salvage(memory: &Memory) -> Result<Report, Error> {
    let mut report = Report::default();
    Pool::salvage(memory.clone(), TestHost::new(3), &mut |event| match event {
        Salvage::TablesFound { tables, .. } => report.found.push(tables),
        Salvage::ChainMended { .. } => report.mended += 1,
        Salvage::EntryRemoved { .. } => report.removed += 1,
        other => report.others.push(format!("{other:?}")),
    })
    .map(|()| report)
}

fn sound(memory: &Memory) -> TestPool {
    assert_eq!(salvage(memory), Ok(Report::default()), "salvaged twice");
    let pool = open(memory).unwrap();
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    pool
}

/// All words that lead to a table.
fn links(survey: &Survey) -> Vec<usize> {
    let lane = |lane| survey.superblock.lane_table + lane * LANE + CHAIN_AT;
    let lanes = (0..survey.superblock.lanes).map(lane);
    lanes.chain(survey.pieces.iter().map(|piece| piece + LINK_AT)).collect()
}

#[test]
fn tables_that_nothing_leads_to_are_found_and_lose_nothing() {
    let memory = made(false);
    let before = files(&open(&memory.copy()).unwrap());
    assert_eq!(before.len(), FILES);
    let image = memory.image();
    let survey = Survey::of(&image);
    assert!(survey.pieces.len() > 6, "{:?}", survey.pieces);
    let links = links(&survey);
    let mut most = 0;
    // Each alone, headers too, then all links at once.
    let headers = survey.pieces.iter().map(|piece| piece + 9);
    let each = links.iter().copied().chain(headers).map(|at| vec![at]);
    for some in each.chain([links.clone()]) {
        let mut image = image.clone();
        for at in &some {
            image[at + at / 8 % 8] ^= 1 << (at / 64 % 8);
        }
        let memory = Memory::from_image(&image);
        let report = salvage(&memory).unwrap();
        assert!((1..=3).contains(&report.found.len()), "{some:x?}: {report:?}");
        most = most.max(report.found.iter().sum());
        let found = report.found.clone();
        assert_eq!(report, Report { found, ..Report::default() }, "{some:x?}");
        assert!(files(&sound(&memory)) == before, "{some:x?}");
    }
    assert_eq!(most, survey.pieces.len(), "with all links damaged all tables are found");
}

#[test]
fn a_table_without_a_link_and_a_header_is_lost_and_the_ones_behind_it_are_not() {
    let memory = made(false);
    let before = files(&open(&memory.copy()).unwrap());
    let image = memory.image();
    let survey = Survey::of(&image);
    for piece in &survey.pieces {
        let mut image = image.clone();
        let page = |at: usize| {
            let word = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
            (word & LINK_PAGE) as usize
        };
        let link = links(&survey).into_iter().find(|at| page(*at) == piece / 4096).unwrap();
        image[link] ^= 1;
        image[piece + 9] ^= 1;
        let memory = Memory::from_image(&image);
        let has_root = *piece == survey.pieces[0];
        let report = match salvage(&memory) {
            Ok(report) if !has_root => report,
            Err(Error::Corrupt(_)) if has_root => {
                assert!(memory.image() == image, "refused, but written");
                continue;
            }
            other => panic!("{piece:#x}: {other:?}"),
        };
        assert_eq!((report.found.len(), report.others.len()), (1, 0), "{report:?}");
        let after = files(&sound(&memory));
        assert_eq!(after.len() + report.removed, FILES);
        assert!(report.removed > 0 && report.removed < FILES / 2, "{report:?}");
        let lost = |ino: Ino| (*piece..piece + (2 << 20)).contains(&(ino as usize * 512));
        for (name, attr) in &before {
            match after.get(name) {
                Some(found) => assert_eq!(found, attr),
                None => assert!(lost(attr.ino), "{attr:?}"),
            }
        }
    }
}

/// Opening by the checkpoint reads no header; the next recovery could do nothing without.
#[test]
fn a_header_is_made_anew_while_the_checkpoint_knows_it() {
    let memory = made(true);
    let before = files(&open(&memory.copy()).unwrap());
    let image = memory.image();
    let survey = Survey::of(&image);
    for piece in &survey.pieces {
        for byte in [0, 4, 9, 17, 41, 50, 60] {
            let mut image = image.clone();
            image[piece + byte] ^= 1 << (byte % 8);
            let memory = Memory::from_image(&image);
            let pool = open(&memory).unwrap();
            let is_used = !(48..56).contains(&byte);
            assert_eq!(!pool.opening().chain_damage.is_empty(), is_used, "byte {byte}");
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
            // Not closed: a crash right after.
            let memory = memory.copy();
            drop(pool);
            let pool = open(&memory).unwrap();
            assert!(!pool.opening().clean && pool.opening().damage.is_empty());
            assert!(files(&pool) == before, "byte {byte} of {piece:#x}");
            let memory = Memory::from_image(&image);
            let report = salvage(&memory).unwrap();
            assert_eq!((report.mended > 0, report.removed), (is_used, 0), "{report:?}");
            assert!(files(&sound(&memory)) == before, "byte {byte} of {piece:#x}");
        }
    }
}

/// What is left of a table that was given back is none.
#[test]
fn tables_that_were_given_back_do_not_come_back() {
    let memory = made(false);
    let pool = open(&memory).unwrap();
    let first = Survey::of(&memory.image()).pieces.len();
    for number in 40..FILES {
        pool.unlink(pool.root(), &name(number)).unwrap();
    }
    for _ in 0..8 {
        pool.maintain().unwrap();
    }
    // Log pages, data and tables take some of their pages.
    let ino = pool.create(pool.root(), b"data", &NEW).unwrap().ino;
    for page in 0..20 {
        pool.write(ino, page * 12_288, &[7; 4096]).unwrap();
        pool.write(ino, page * 12_288, &[8; 100]).unwrap();
    }
    let memory = memory.copy();
    drop(pool);
    let before = files(&open(&memory.copy()).unwrap());
    let image = memory.image();
    let survey = Survey::of(&image);
    assert!(survey.pieces.len() < first, "no table was given back");
    for at in links(&survey) {
        let mut image = image.clone();
        image[at] ^= 4;
        let memory = Memory::from_image(&image);
        let report = salvage(&memory).unwrap();
        assert!(report.found.iter().sum::<usize>() <= survey.pieces.len(), "{report:?}");
        assert!(files(&sound(&memory)) == before, "link at {at:#x}: {report:?}");
    }
}
