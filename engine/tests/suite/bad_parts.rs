//! Less than a line is not stored to memory that can't be loaded, where nobody has met it yet: on real hardware that
//! ends the program. And operations find other pages where fresh ones turn out to be bad.

use lode_engine::layout::{CrcTable, Strips, Superblock};
use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, Protection, SetAttr,
    XattrChange, XattrWhen, mode,
};
use lode_testkit::rng::Rng;
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

type Bad = Poisoned<Memory>;
type BadPool = Pool<Bad, TestHost>;

const BYTES: u64 = 8 << 20;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const PAGE: u64 = 4096;
/// Levels at which bad memory costs no more than what is in it.
const LEVELS: [Protection; 2] = [Protection::Metadata, Protection::Full];
const TABLES: [CrcTable; 2] = [CrcTable::First, CrcTable::Second];

fn made(protection: Protection, healing: Healing) -> (Bad, BadPool) {
    let memory = Poisoned::new(Memory::new(BYTES), healing);
    let dead_zone = if protection == Protection::None { 0 } else { 60_000 };
    let format = FormatOptions { protection, dead_zone, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory);
    (memory, pool)
}

fn open(memory: &Bad) -> BadPool {
    let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(1), &options).unwrap()
}

fn file(pool: &BadPool, name: &str) -> Ino {
    pool.create(pool.root(), name.as_bytes(), &NEW).unwrap().ino
}

/// Pages of files' data that are free now: where a file was that is gone.
fn freed(pool: &BadPool) -> Vec<u64> {
    let ino = file(pool, "gone");
    pool.write(ino, 0, &vec![9; 2 << 20]).unwrap();
    let pages = pages_of(pool, ino);
    pool.unlink(pool.root(), b"gone").unwrap();
    pool.maintain().unwrap();
    pages
}

/// All pages that are free now and that file data may have.
fn free(pool: &BadPool) -> Vec<u64> {
    let ino = file(pool, "all");
    while pool.append(ino, &[9; PAGE as usize]).is_ok() {}
    let pages = pages_of(pool, ino);
    pool.unlink(pool.root(), b"all").unwrap();
    pool.maintain().unwrap();
    pages
}

fn pages_of(pool: &BadPool, ino: Ino) -> Vec<u64> {
    let extents = pool.dump_inode(ino).unwrap().extents;
    extents
        .iter()
        .flat_map(|one| one.pool_offset / PAGE..(one.pool_offset + one.bytes) / PAGE)
        .collect()
}

fn read(pool: &BadPool, ino: Ino) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; pool.getattr(ino)?.size as usize];
    pool.read(ino, 0, &mut bytes)?;
    Ok(bytes)
}

/// A file as it should be.
#[derive(Clone, Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        self.resize(self.0.len().max(end));
        self.0[offset as usize..end].copy_from_slice(bytes);
    }

    fn resize(&mut self, size: usize) {
        self.0.resize(size, 0);
    }
}

/// A write, an append, or a truncation somewhere in or behind a file.
fn change(
    pool: &BadPool,
    ino: Ino,
    model: &mut Model,
    fill: u8,
    rng: &mut Rng,
) -> Result<(), Error> {
    let most = if rng.once_in(2) { 6000 } else { 300 };
    let bytes = vec![fill; 1 + rng.below(most) as usize];
    match rng.below(4) {
        0 => {
            let size = rng.below(12_000);
            pool.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
            model.resize(size as usize);
        }
        1 => {
            pool.append(ino, &bytes)?;
            model.write(model.0.len() as u64, &bytes);
        }
        _ => {
            let offset = rng.below(9000);
            pool.write(ino, offset, &bytes)?;
            model.write(offset, &bytes);
        }
    }
    Ok(())
}

#[test]
fn fresh_pages_get_whole_lines() {
    for (seed, level) in (0..48).zip(LEVELS.into_iter().cycle()) {
        let (memory, pool) = made(level, Healing::ByLines);
        let mut rng = Rng::new(seed);
        let ino = file(&pool, "file");
        // (Of no metadata that may come there are both copies bad.)
        let apart = 1 << memory.inner().get(92, 1)[0];
        for page in freed(&pool).into_iter().filter(|page| page & apart == 0) {
            memory.poison(page * PAGE, PAGE);
        }
        let mut model = Model::default();
        for fill in 0..12 {
            change(&pool, ino, &mut model, fill, &mut rng)
                .unwrap_or_else(|error| panic!("seed {seed}, {level:?}: {error:?}"));
            assert_eq!(read(&pool, ino).unwrap(), model.0, "seed {seed}, {level:?}");
        }
        let target = vec![b't'; 1 + rng.below(3000) as usize];
        pool.symlink(pool.root(), b"link", &target, 0, 0).unwrap();
        let value = vec![7; 1 + rng.below(9000) as usize];
        let set = XattrChange { name: b"user.x", value: Some(&value), when: XattrWhen::Always };
        pool.setxattr(ino, &set).unwrap();
        pool.close().unwrap();
        drop(pool);
        assert_eq!(memory.machine_checks(), 0, "seed {seed}, {level:?}");
        let pool = open(&memory);
        assert!(pool.opening().clean && !pool.opening().is_damaged(), "seed {seed}, {level:?}");
        assert_eq!(read(&pool, ino).unwrap(), model.0, "seed {seed}, {level:?}");
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}, {level:?}");
    }
}

/// A hole, or old bytes, that end in the midst of a line of a page that becomes a fresh one, beside what is new.
#[test]
fn what_a_file_has_in_front_of_a_fresh_piece_ends_in_a_whole_line() {
    let sizes = [1, 63, 64, 100, 700, 2999, 4000];
    let both = |size| [(size, true), (size, false)];
    let places = [(64, 20), (0, 2500), (100, 2400), (3010, 200), (3010, 3000)];
    for level in Protection::ALL {
        for ((size, is_hole), (at, len)) in
            sizes.into_iter().flat_map(both).flat_map(|one| places.map(|place| (one, place)))
        {
            let (memory, pool) = made(level, Healing::ByLines);
            let ino = file(&pool, "file");
            let mut model = Model::default();
            let write = |model: &mut Model, offset: u64, bytes: &[u8]| {
                pool.write(ino, offset, bytes).unwrap();
                model.write(offset, bytes);
            };
            write(&mut model, 0, &[1; 10]);
            if is_hole {
                let bytes = PAGE + size;
                let change = SetAttr { size: Some(bytes), ..SetAttr::default() };
                pool.setattr(ino, &change).unwrap();
                model.resize(bytes as usize);
            } else {
                write(&mut model, PAGE, &vec![2; size as usize]);
                // (What it sees is not overwritten in place.)
                pool.create_snapshot(b"kept").unwrap();
            }
            let twins = level != Protection::None;
            let apart = if twins { 1 << memory.inner().get(92, 1)[0] } else { 0 };
            for page in free(&pool).into_iter().filter(|page| page & apart == 0) {
                memory.poison(page * PAGE, PAGE);
            }
            write(&mut model, PAGE + at, &vec![3; len]);
            let story = format!("{level:?}, {size} bytes, a hole: {is_hole}, {len} bytes at {at}");
            assert_eq!(read(&pool, ino).unwrap(), model.0, "{story}");
            assert_eq!(memory.machine_checks(), 0, "{story}");
        }
    }
}

/// At level `none`, where a log has no other copy: it goes on where all of it can be read.
#[test]
fn a_log_does_not_go_on_in_bad_memory() {
    let (memory, pool) = made(Protection::None, Healing::ByLines);
    let new = NewInode { mode: mode::DIRECTORY | 0o755, ..NEW };
    let dirs: Vec<Ino> = (0..100)
        .map(|number: u32| {
            pool.create(pool.root(), number.to_string().as_bytes(), &new).unwrap().ino
        })
        .collect();
    let one = file(&pool, "one");
    for page in free(&pool).into_iter().filter(|page| page % 8 != 0) {
        memory.poison(page * PAGE + 2 * 64, PAGE - 2 * 64);
    }
    for (name, dir) in (0..20u32).flat_map(|name| dirs.iter().map(move |dir| (name, *dir))) {
        let linked = pool.link(one, dir, name.to_string().as_bytes());
        linked.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    pool.close().unwrap();
    let pool = open(&memory);
    for (name, dir) in (0..20u32).flat_map(|name| dirs.iter().map(move |dir| (name, *dir))) {
        assert_eq!(pool.lookup(dir, name.to_string().as_bytes()).map(|attr| attr.ino), Ok(one));
    }
    assert_eq!(memory.machine_checks(), 0);
}

#[test]
fn what_is_changed_in_place_is_looked_at_first() {
    let mut refused = 0;
    for (seed, level) in (0..300).zip(LEVELS.into_iter().cycle()) {
        let healing = if seed % 4 < 2 { Healing::ByLines } else { Healing::Never };
        let (memory, pool) = made(level, healing);
        let mut rng = Rng::new(seed);
        let ino = file(&pool, "file");
        let mut model = Model::default();
        for fill in 0..4 {
            change(&pool, ino, &mut model, fill, &mut rng).unwrap();
        }
        let pages = pages_of(&pool, ino);
        let Some(page) = pages.get(rng.below(pages.len().max(1) as u64) as usize) else { continue };
        memory.poison(page * PAGE + rng.below(64) * 64, 64);
        for fill in 4..8 {
            let before = model.clone();
            if let Err(error) = change(&pool, ino, &mut model, fill, &mut rng) {
                assert!(matches!(error, Error::Media { .. }), "seed {seed}: {error:?}");
                refused += 1;
                model = before;
            }
        }
        // (What is lost is an error, at level full nothing is.)
        match read(&pool, ino) {
            Ok(bytes) => assert!(bytes == model.0, "seed {seed}, {level:?}"),
            Err(Error::Media { .. }) if level == Protection::Metadata => {}
            Err(error) => panic!("seed {seed}, {level:?}: {error:?}"),
        }
        drop(pool);
        assert_eq!(memory.machine_checks(), 0, "seed {seed}, {level:?}");
    }
    assert!(refused > 10, "{refused}");
}

fn strips(memory: &Bad) -> Strips {
    let raw = memory.inner().get(0, 512);
    Superblock::parse(raw.first_chunk().unwrap()).unwrap().geometry().strips
}

#[test]
fn checksums_that_can_not_be_stored_are_in_the_other_table() {
    for table in TABLES {
        let (memory, pool) = made(Protection::Full, Healing::Never);
        let (ino, strips) = (file(&pool, "file"), strips(&memory));
        let mut rng = Rng::new(3);
        let mut model = Model::default();
        for page in freed(&pool) {
            memory.poison(strips.crcs_at(page, table), strips.crc_bytes());
        }
        for fill in 0..30 {
            change(&pool, ino, &mut model, fill, &mut rng).unwrap();
            assert_eq!(read(&pool, ino).unwrap(), model.0);
        }
        drop(pool);
        assert_eq!(memory.machine_checks(), 0);
        assert_eq!(read(&open(&memory), ino).unwrap(), model.0);
    }
}

#[test]
fn a_page_without_room_for_its_checksums_is_given_to_nobody() {
    let (memory, pool) = made(Protection::Full, Healing::Never);
    let (ino, strips) = (file(&pool, "file"), strips(&memory));
    let mut model = Model::default();
    let mut rng = Rng::new(4);
    let freed = freed(&pool);
    for page in freed.iter().step_by(3) {
        for table in TABLES {
            memory.poison(strips.crcs_at(*page, table), strips.crc_bytes());
        }
    }
    for fill in 0..30 {
        let at = model.0.len() as u64 / PAGE * PAGE;
        let bytes = vec![fill; 2 * PAGE as usize];
        pool.write(ino, at, &bytes).unwrap();
        model.write(at, &bytes);
        change(&pool, ino, &mut model, fill, &mut rng).unwrap();
        assert_eq!(read(&pool, ino).unwrap(), model.0);
        let number = u64::from(fill);
        let target = vec![b't'; 1000 + number as usize];
        pool.symlink(pool.root(), format!("link{number}").as_bytes(), &target, 0, 0).unwrap();
    }
    drop(pool);
    assert_eq!(memory.machine_checks(), 0);
}
