//! A bit of what memory knows flips in a pool that is used: whatever is done then, what was acknowledged is there, now and
//! in the next session, of files and of snapshots, and the pool is sound.

#![allow(clippy::unwrap_used, clippy::panic)]

extern crate std;

use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use lode_testkit::Memory;

use crate::layout::Superblock;
use crate::space::tests::{Dice, TestHost};
use crate::{
    FormatOptions, Ino, NewInode, OpenOptions, Pool, Protection, RenameMode, Result, SetAttr, mode,
};

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const NAMES: u64 = 12;
/// Pools in which a bit flips.
const SEEDS: u64 = 600;

type Files = BTreeMap<String, Vec<u8>>;

/// A pool and what there has to be in it.
struct Used {
    memory: Memory,
    pool: Pool<Memory, TestHost>,
    files: Files,
    snapshots: BTreeMap<String, Files>,
    dice: Dice,
    made: u32,
}

fn open(memory: &Memory) -> Pool<Memory, TestHost> {
    Pool::open(memory.clone(), TestHost, &OpenOptions::default()).unwrap()
}

impl Used {
    fn new(seed: u64) -> Self {
        let memory = Memory::new(3 << 20);
        let protection =
            [Protection::None, Protection::Metadata, Protection::Full][seed as usize % 3];
        let format =
            FormatOptions { lanes: 1, protection, dead_zone: 0, ..FormatOptions::default() };
        Pool::format(memory.clone(), TestHost, &format).unwrap();
        let pool = open(&memory);
        let (files, snapshots) = (Files::new(), BTreeMap::new());
        Self { memory, pool, files, snapshots, dice: Dice(seed * 7919), made: 0 }
    }

    /// One operation. What gives an error has done nothing.
    fn step(&mut self) -> Result<()> {
        let name = format!("file-{}", self.dice.roll(NAMES));
        match self.dice.roll(16) {
            0 => self.make_snapshot(),
            1 => self.end_snapshot(),
            2 => self.rename(&name),
            3 | 4 => self.unlink(&name),
            5 | 6 => self.resize(&name),
            _ => self.write(&name),
        }
    }

    fn ino(&self, name: &str) -> Ino {
        self.pool.lookup(self.pool.root(), name.as_bytes()).unwrap().ino
    }

    fn write(&mut self, name: &str) -> Result<()> {
        if !self.files.contains_key(name) {
            self.pool.create(self.pool.root(), name.as_bytes(), &FILE)?;
            self.files.insert(name.into(), Vec::new());
        }
        let (at, len) = (self.dice.roll(30_000) as usize, 1 + self.dice.roll(20_000) as usize);
        let bytes = vec![self.dice.roll(256) as u8; len];
        self.pool.write(self.ino(name), at as u64, &bytes)?;
        let file = self.files.get_mut(name).unwrap();
        file.resize(file.len().max(at + len), 0);
        file[at..at + len].copy_from_slice(&bytes);
        Ok(())
    }

    fn resize(&mut self, name: &str) -> Result<()> {
        if !self.files.contains_key(name) {
            return Ok(());
        }
        let size = self.dice.roll(40_000);
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.pool.setattr(self.ino(name), &changes)?;
        self.files.get_mut(name).unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        if self.files.contains_key(name) {
            self.pool.unlink(self.pool.root(), name.as_bytes())?;
            self.files.remove(name);
        }
        Ok(())
    }

    /// Ends a file whose log has pages.
    fn end_a_long_log(&mut self) -> Result<()> {
        for _ in 0..40 {
            self.write("file-0")?;
        }
        self.unlink("file-0")
    }

    fn rename(&mut self, name: &str) -> Result<()> {
        let to = format!("file-{}", self.dice.roll(NAMES));
        if self.files.contains_key(name) && name != to {
            let root = self.pool.root();
            let (from, onto) = (name.as_bytes(), to.as_bytes());
            self.pool.rename(root, from, root, onto, RenameMode::Replace)?;
            let file = self.files.remove(name).unwrap();
            self.files.insert(to, file);
        }
        Ok(())
    }

    fn make_snapshot(&mut self) -> Result<()> {
        let name = format!("snapshot-{}", self.made);
        self.made += 1;
        self.pool.create_snapshot(name.as_bytes())?;
        self.snapshots.insert(name, self.files.clone());
        Ok(())
    }

    fn end_snapshot(&mut self) -> Result<()> {
        let at = self.dice.roll(4) as usize;
        if let Some(name) = self.snapshots.keys().nth(at).cloned() {
            self.pool.delete_snapshot(name.as_bytes())?;
            self.snapshots.remove(&name);
        }
        Ok(())
    }

    /// What is listed below a root, as it is read.
    fn read(&self, root: Ino) -> Files {
        let mut names = Vec::new();
        let listed = self.pool.readdir(root, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        });
        listed.unwrap();
        let read = |name: &[u8]| {
            let attr = self.pool.lookup(root, name).unwrap();
            let mut bytes = vec![0xee; attr.size as usize];
            assert_eq!(self.pool.read(attr.ino, 0, &mut bytes).unwrap(), bytes.len());
            bytes
        };
        names.iter().map(|name| (String::from_utf8(name.clone()).unwrap(), read(name))).collect()
    }

    fn compare(&self, case: &str) {
        assert!(self.read(self.pool.root()) == self.files, "{case}: files");
        for (name, files) in &self.snapshots {
            let root = self.pool.snapshot_root(name.as_bytes()).unwrap();
            assert!(self.read(root) == *files, "{case}: {name}");
        }
        let there = self.pool.snapshot_names().unwrap();
        assert_eq!(there.len(), self.snapshots.len(), "{case}: {there:?}");
    }

    fn flip(&mut self, which: u64) -> Option<&'static str> {
        let store = &self.pool.store;
        let mut roll = |sides| self.dice.roll(sides);
        match which % 12 {
            9 => store.table.flip_some(&mut roll).map(|()| "of the free slots"),
            10 => store.flip_waiting(true, &mut roll).map(|()| "of a slot that waits"),
            11 => store.flip_waiting(false, &mut roll).map(|()| "of log pages that wait"),
            of_space @ ..5 => store.space.flip_some(of_space, &mut self.dice),
            of_snapshots => store.snapshots.flip_some(of_snapshots, &mut self.dice),
        }
    }
}

#[test]
fn whatever_bit_of_lists_and_manifests_flips_nothing_is_lost_then_or_later() {
    let (mut flips, mut noticed) = (BTreeMap::new(), 0);
    for seed in 1..=SEEDS {
        let mut used = Used::new(seed);
        for _ in 0..30 + used.dice.roll(60) {
            // (That it is full is no matter.)
            let _ = used.step();
        }
        let _ = used.end_a_long_log();
        let Some(what) = used.flip(seed) else { continue };
        let case = format!("seed {seed}, {what}");
        *flips.entry(what).or_insert(0) += 1;
        for _ in 0..used.dice.roll(60) {
            let _ = used.step();
        }
        used.compare(&case);
        // (What is not known to be right is not stored: the next session finds out.)
        let _ = used.pool.close();
        used.pool = open(&used.memory);
        noticed += u32::from(!used.pool.opening().clean);
        let found = used.pool.check(&mut |_, _| ()).unwrap();
        assert_eq!(found.damage, [], "{case}");
        used.compare(&case);
        for _ in 0..40 {
            let _ = used.step();
        }
        used.compare(&case);
    }
    let told = format!("{flips:?}, {noticed} sessions left no checkpoint");
    assert!(flips.len() == 12 && flips.values().all(|count| *count >= 20), "{told}");
    assert!(noticed > 200, "{told}");
}

#[test]
fn a_superblock_of_which_a_bit_flips_in_memory_is_stored_as_it_was() {
    let flips: [fn(&mut Superblock); 10] = [
        |it| it.pages ^= 1 << 7,
        |it| it.secret[3] ^= 4,
        |it| it.twin_log2 ^= 1,
        |it| it.strip_log2 ^= 1,
        |it| it.root ^= 1 << 9,
        |it| it.root_nonce ^= 2,
        |it| it.epoch ^= 1 << 30,
        |it| it.update ^= 1,
        |it| it.features[2] ^= 1 << 20,
        |it| it.uuid[0] ^= 1,
    ];
    for (seed, flip) in (1..).zip(flips.iter().cycle().take(60)) {
        let mut used = Used::new(seed);
        for _ in 0..30 {
            let _ = used.step();
        }
        used.pool.store.superblock.flip(flip);
        for _ in 0..30 {
            let _ = used.step();
        }
        used.pool.set_label(b"another").unwrap();
        used.pool.close().unwrap();
        used.pool = open(&used.memory);
        assert!(used.pool.opening().clean, "seed {seed}");
        assert_eq!(used.pool.check(&mut |_, _| ()).unwrap().damage, [], "seed {seed}");
        used.compare(&format!("seed {seed}"));
    }
}
