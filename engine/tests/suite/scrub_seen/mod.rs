//! A pool with a file, and snapshots of it, in memory that counts its loads: for tests of scrubs.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lode_engine::layout::{Strips, Superblock};
use lode_engine::{
    AccessTimes, Finding, FormatOptions, Ino, NewInode, OpenOptions, Outcome, Pool, Protection,
    What, XattrChange, XattrWhen, ino_beside, mode,
};
use lode_testkit::{Healing, Hooks, Memory, Poisoned, TestHost, Told};

pub const BYTES: u64 = 8 << 20;
pub const PAGE: u64 = 4096;
pub const PAGES: u64 = 6;
pub const SLOT: u64 = 512;
pub const LEVELS: [Protection; 3] = [Protection::None, Protection::Metadata, Protection::Full];

/// Memory that counts the loads of each line, in bytes.
pub type Counted = Told;

#[derive(Clone, Default)]
pub struct Loads(Arc<Mutex<BTreeMap<u64, u64>>>);

impl Hooks<Poisoned<Memory>> for Loads {
    fn loads(&self, _: &Poisoned<Memory>, at: u64, bytes: u64) {
        let mut loads = self.0.lock().unwrap();
        for byte in (at..at + bytes).step_by(8) {
            *loads.entry(byte / 64).or_default() += 8.min(at + bytes - byte);
        }
    }
}

impl Loads {
    /// How often each byte of these was loaded since this was asked last, if all were equally often.
    pub fn take(&self, pages: &[u64]) -> Vec<u64> {
        let loads = core::mem::take(&mut *self.0.lock().unwrap());
        let lines = |page: &u64| (page * 64..page * 64 + 64).collect::<Vec<_>>();
        let times = |page| {
            let lines = lines(page);
            let most = lines.iter().map(|line| loads.get(line).copied().unwrap_or(0)).max();
            most.unwrap() / 64
        };
        pages.iter().map(times).collect()
    }
}

pub type CountedPool = Pool<Counted, TestHost>;

/// A pool with a file of some pages.
pub struct Made {
    pub memory: Counted,
    pub loads: Loads,
    pub pool: CountedPool,
    pub ino: Ino,
    pub bytes: Vec<u8>,
}

pub fn made(protection: Protection) -> Made {
    made_in(protection, Healing::Never)
}

pub fn made_in(protection: Protection, healing: Healing) -> Made {
    let memory = Poisoned::new(Memory::new(BYTES), healing);
    let loads = Loads::default();
    let memory = Counted { memory, hooks: Arc::new(loads.clone()) };
    let format = FormatOptions { lanes: 2, log_lines: 9, protection, ..FormatOptions::default() };
    let format = FormatOptions { dead_zone: 0, ..format };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory);
    let ino = create(&pool, b"file");
    let bytes: Vec<u8> = (0..PAGES * PAGE - 300).map(|at| (at / 7) as u8).collect();
    pool.write(ino, 0, &bytes).unwrap();
    Made { memory, loads, pool, ino, bytes }
}

pub fn open(memory: &Counted) -> CountedPool {
    let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

pub fn create(pool: &CountedPool, name: &[u8]) -> Ino {
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    pool.create(pool.root(), name, &new).unwrap().ino
}

pub fn set_attribute(pool: &CountedPool, ino: Ino, value: Option<&[u8]>) {
    let change = XattrChange { name: b"user.long", value, when: XattrWhen::Always };
    pool.setxattr(ino, &change).unwrap();
}

/// The pages of the pool that a file is in.
pub fn pages_of(pool: &CountedPool, ino: Ino) -> Vec<u64> {
    let extents = pool.dump_inode(ino).unwrap().extents;
    let runs = extents.iter().map(|one| (one.pool_offset / PAGE, one.bytes.div_ceil(PAGE)));
    runs.flat_map(|(page, pages)| page..page + pages).collect()
}

impl Made {
    /// The page of the pool that a page of the file is in.
    pub fn page(&self, page: u64) -> u64 {
        self.pages()[page as usize]
    }

    pub fn pages(&self) -> Vec<u64> {
        pages_of(&self.pool, self.ino)
    }

    /// Gives a page of the file other bytes, in another place.
    pub fn overwrite(&self, page: u64) {
        self.pool.write(self.ino, page * PAGE, &[9; PAGE as usize]).unwrap();
    }

    pub fn scrub(&self) -> Vec<Finding> {
        self.scrub_by(10_000).1
    }

    /// Scrubs by so many bytes at a time; the bytes looked at and what was found.
    pub fn scrub_by(&self, bytes: u64) -> (u64, Vec<Finding>) {
        let mut scrub = self.pool.begin_scrub().unwrap();
        let (mut found, mut steps) = (Vec::new(), 0);
        while !scrub.is_over() {
            self.pool.scrub(&mut scrub, bytes).unwrap();
            found.extend(scrub.take_findings());
            steps += 1;
            assert!(steps < 10_000, "it does not get on");
        }
        (scrub.done(), found)
    }

    /// The number that the file has in a snapshot.
    pub fn seen(&self, name: &str) -> Ino {
        ino_beside(self.ino, self.pool.snapshot_root(name.as_bytes()).unwrap())
    }

    /// The file in a snapshot is what it was.
    pub fn same(&self, name: &str) {
        let mut read = vec![0; self.bytes.len()];
        assert_eq!(self.pool.read(self.seen(name), 0, &mut read), Ok(read.len()));
        assert!(read == self.bytes);
    }

    pub fn sound(&self) {
        assert_eq!(self.pool.check(&mut |_, _| ()).unwrap().damage, []);
    }

    pub fn strips(&self) -> Strips {
        let raw = self.memory.memory.inner().get(0, 512);
        Superblock::parse(raw[..].try_into().unwrap()).unwrap().geometry().strips
    }

    pub fn twin(&self, at: u64) -> u64 {
        at ^ (PAGE << self.memory.memory.inner().image()[92])
    }

    pub fn scribble(&self, at: u64) {
        let inner = self.memory.memory.inner();
        let byte = inner.get(at, 1)[0];
        inner.put(at, &[byte ^ 0x40]);
    }

    pub fn poison(&self, at: u64, bytes: u64) {
        self.memory.memory.poison(at, bytes);
    }
}

pub fn data(outcome: Outcome, ino: Ino, at: u64, offset: u64, bytes: u64) -> Finding {
    Finding { what: What::Data, outcome, ino, at, offset, bytes }
}
