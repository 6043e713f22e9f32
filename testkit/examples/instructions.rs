//! Does one operation of the engine many times, for who counts its instructions: `tests/scripts/instructions.sh`.
//!
//! Nothing here is left to chance: random bits are numbered, the clock stands, the medium is stored to by
//! instructions that every x86-64 has, and what is counted happens in one function, [`measured_work`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use lode_engine::{
    FormatOptions, Handle, Ino, NewInode, OpenOptions, Pool, RenameMode, SetAttr, mode,
};
use lode_pmem::{Mapped, RegionOptions, WindowMode};
use lode_testkit::TestHost;
use lode_testkit::rng::Rng;

const POOL_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Pages of the file that is read and overwritten: each in an extent of its own, or few of them, as they come.
const PAGES: u64 = 1024;
/// Entries of the directory.
const ENTRIES: u64 = 1000;

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };

/// An operation: what is there before, and one turn of it.
type Prepare = fn(&Bed, u64);
type Turn = fn(&Bed, u64);

/// By name.
const OPERATIONS: [(&str, Prepare, Turn); 12] = [
    ("append-4k", |_, _| (), |bed, _| bed.append(4096)),
    ("append-64", |_, _| (), |bed, _| bed.append(64)),
    ("overwrite-4k", Bed::fill, |bed, turn| bed.write(bed.random(turn) % PAGES * PAGE, 4096)),
    ("overwrite-512", Bed::fill, |bed, turn| bed.write(bed.random(turn) % (PAGES * 8) * 512, 512)),
    ("read-4k", Bed::fill, |bed, turn| bed.read(bed.random(turn) % PAGES * PAGE)),
    ("truncate", Bed::append_each, |bed, turn| bed.cut(turn)),
    ("create", |_, _| (), |bed, turn| bed.create(ENTRIES + turn)),
    ("mkdir", |_, _| (), |bed, turn| bed.make_dir(ENTRIES + turn)),
    ("unlink", Bed::create_each, |bed, turn| bed.unlink(ENTRIES + turn)),
    ("rename", |_, _| (), |bed, turn| bed.rename(turn)),
    ("lookup", |_, _| (), |bed, turn| bed.look(bed.random(turn) % ENTRIES)),
    ("lookup-again", Bed::look_at_all, |bed, turn| bed.look(bed.random(turn) % ENTRIES)),
];

/// A pool with a file and a directory.
struct Bed {
    pool: Pool<Mapped, TestHost>,
    file: Handle<TestHost>,
    dir: Ino,
    data: [u8; PAGE as usize],
    random: Vec<u64>,
}

/// A name of the directory.
struct Name([u8; 12]);

impl Name {
    fn of(number: u64) -> Self {
        let mut name = *b"entry-000000";
        let mut rest = number;
        for digit in name.iter_mut().rev().take(6) {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self(name)
    }
}

impl Bed {
    fn new(turns: u64) -> Self {
        let options =
            RegionOptions::new().windows(WindowMode::None).flush("sse2+clflush".parse().unwrap());
        let region = Mapped::anonymous(POOL_BYTES, &options).unwrap();
        Pool::format(&region, TestHost::new(1), &FormatOptions::default()).unwrap();
        let pool = Pool::open(region, TestHost::new(2), &OpenOptions::default()).unwrap();
        let file = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
        let file = pool.hold(file).unwrap();
        let dir = pool.create(pool.root(), b"directory", &NEW_DIR).unwrap().ino;
        let mut bits = Rng::new(3);
        let random = (0..turns).map(|_| bits.below(u64::MAX)).collect();
        let bed = Self { pool, file, dir, data: [7; PAGE as usize], random };
        (0..ENTRIES).for_each(|number| bed.create(number));
        bed
    }

    fn random(&self, turn: u64) -> u64 {
        self.random[turn as usize]
    }

    fn append(&self, bytes: usize) {
        self.pool.append_held(&self.file, &self.data[..bytes]).unwrap();
    }

    fn append_each(&self, turns: u64) {
        (0..turns).for_each(|_| self.append(4096));
    }

    fn fill(&self, _: u64) {
        self.append_each(PAGES);
    }

    fn write(&self, at: u64, bytes: usize) {
        self.pool.write_held(&self.file, at, &self.data[..bytes]).unwrap();
    }

    fn read(&self, at: u64) {
        let mut into = [0; PAGE as usize];
        assert_eq!(self.pool.read_held(&self.file, at, &mut into).unwrap(), into.len());
    }

    /// Takes the last page off a file that had `turn` pages more.
    fn cut(&self, turn: u64) {
        let size = Some((self.random.len() as u64 - turn - 1) * PAGE);
        self.pool.setattr(self.file.ino(), &SetAttr { size, ..SetAttr::default() }).unwrap();
    }

    fn create(&self, number: u64) {
        self.pool.create(self.dir, &Name::of(number).0, &NEW).unwrap();
    }

    fn create_each(&self, turns: u64) {
        (0..turns).for_each(|turn| self.create(ENTRIES + turn));
    }

    fn make_dir(&self, number: u64) {
        self.pool.create(self.dir, &Name::of(number).0, &NEW_DIR).unwrap();
    }

    fn unlink(&self, number: u64) {
        self.pool.unlink(self.dir, &Name::of(number).0).unwrap();
    }

    /// The first entry goes to the end, again and again.
    fn rename(&self, turn: u64) {
        let (from, to) = (Name::of(turn), Name::of(ENTRIES + turn));
        self.pool.rename(self.dir, &from.0, self.dir, &to.0, RenameMode::Replace).unwrap();
    }

    fn look_at_all(&self, _: u64) {
        (0..ENTRIES).for_each(|number| self.look(number));
    }

    fn look(&self, number: u64) {
        let found = self.pool.lookup(self.dir, &Name::of(number).0).unwrap();
        assert_eq!(self.pool.getattr(found.ino).unwrap().ino, found.ino);
    }
}

/// What is counted: the turns, from the first to the last.
#[inline(never)]
fn measured_work(bed: &Bed, turn: Turn, turns: u64) {
    for number in 0..turns {
        turn(bed, number);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(wanted) = words.first() else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let turns = words.get(1).expect("how often").parse().expect("a number");
    let (_, prepare, turn) = OPERATIONS.iter().find(|(name, ..)| name == wanted).expect("a name");
    let bed = Bed::new(turns);
    prepare(&bed, turns);
    measured_work(&bed, *turn, turns);
    let Bed { pool, file, .. } = bed;
    pool.let_go(file);
    pool.close().unwrap();
}
