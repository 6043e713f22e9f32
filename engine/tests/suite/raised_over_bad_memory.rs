//! A pool with snapshots, over memory that has gone bad, gets a higher level or keeps the one that it has: with an error that
//! says why, and nothing but what is lost missing, in no snapshot either. Nobody is ever shown other bytes.

use std::collections::BTreeMap;

use lode_engine::layout::{SUPERBLOCK_BYTES, Superblock};
use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, NewInode, OpenOptions, Outcome, Pool, Protection,
    SetAttr, XattrChange, XattrWhen, mode,
};
use lode_testkit::rng::Rng;
use lode_testkit::{Healing, Memory, Poisoned, TestHost, seeds};

type Bad = Poisoned<Memory>;
type BadPool = Pool<Bad, TestHost>;

const BYTES: u64 = 8 << 20;
const PAGE: u64 = 4096;
const LINE: u64 = 64;

/// Files by name, and what they hold.
type Tree = BTreeMap<String, Vec<u8>>;

/// What goes bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hit {
    /// Data of files as they are now, which a snapshot may see, too.
    Data,
    /// Data that a snapshot sees.
    Seen,
    /// A page of a file's log.
    Log,
    /// The checkpoint, with the manifests of snapshots: of a pool that was closed.
    Manifests,
    /// Any few lines of the pool.
    Anywhere,
}

const HITS: [Hit; 5] = [Hit::Data, Hit::Seen, Hit::Log, Hit::Manifests, Hit::Anywhere];

/// A pool that was in use.
struct Used {
    memory: Bad,
    rng: Rng,
    now: Tree,
    kept: Vec<(String, Tree)>,
}

fn open(memory: &Bad) -> Result<BadPool, Error> {
    let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options)
}

fn protect(memory: &Bad, to: Protection) -> Result<bool, Error> {
    Pool::protect(memory.clone(), TestHost::new(3), to, 0, &mut |_, _| ())
}

fn is_damage(error: Error) -> bool {
    matches!(error, Error::Media { .. } | Error::Corrupt(_) | Error::Lost(_))
}

impl Used {
    fn new(seed: u64, protection: Protection) -> (Self, BadPool) {
        let healing = [Healing::Never, Healing::ByLines][seed as usize % 2];
        let memory = Poisoned::new(Memory::new(BYTES), healing);
        let log_lines = [9, 63][seed as usize / 2 % 2];
        let (lanes, dead_zone) = (2, 0);
        let format =
            FormatOptions { lanes, protection, dead_zone, log_lines, ..FormatOptions::default() };
        Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
        let pool = open(&memory).unwrap();
        let (now, kept) = (Tree::new(), Vec::new());
        (Self { memory, rng: Rng::new(seed), now, kept }, pool)
    }

    fn operate(&mut self, pool: &BadPool, steps: usize) {
        for step in 0..steps {
            let name = format!("file {}", self.rng.below(7));
            let len = [10, 600, PAGE, 5 * PAGE][self.rng.below(4) as usize] as usize;
            match self.rng.below(12) {
                0 => self.remove(pool, &name),
                1 => self.cut(pool, &name),
                2 => {
                    let ino = self.file(pool, &name);
                    let (value, when) = ([step as u8; 5000], XattrWhen::Always);
                    let change = XattrChange { name: b"user.long", value: Some(&value), when };
                    pool.setxattr(ino, &change).unwrap();
                }
                3 => {
                    let name = format!("snapshot {step}");
                    pool.create_snapshot(name.as_bytes()).unwrap();
                    self.kept.push((name, self.now.clone()));
                }
                4 => pool.maintain().unwrap(),
                _ => self.write(pool, &name, &vec![step as u8 ^ 0x5a; len]),
            }
        }
    }

    fn file(&mut self, pool: &BadPool, name: &str) -> Ino {
        self.now.entry(name.to_owned()).or_default();
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        match pool.create(pool.root(), name.as_bytes(), &new) {
            Ok(made) => made.ino,
            Err(_) => pool.lookup(pool.root(), name.as_bytes()).unwrap().ino,
        }
    }

    fn write(&mut self, pool: &BadPool, name: &str, bytes: &[u8]) {
        let ino = self.file(pool, name);
        let file = self.now.get_mut(name).unwrap();
        let offset = self.rng.below(file.len() as u64 + 1) as usize;
        pool.write(ino, offset as u64, bytes).unwrap();
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn cut(&mut self, pool: &BadPool, name: &str) {
        let ino = self.file(pool, name);
        let file = self.now.get_mut(name).unwrap();
        file.truncate(file.len() / 2);
        let size = Some(file.len() as u64);
        pool.setattr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
    }

    fn remove(&mut self, pool: &BadPool, name: &str) {
        if self.now.remove(name).is_some() {
            pool.unlink(pool.root(), name.as_bytes()).unwrap();
        }
    }

    /// All trees: as it is now, and of each snapshot.
    fn trees(&self, pool: &BadPool) -> Result<Vec<(String, Ino, &Tree)>, Error> {
        let mut trees = vec![("now".to_owned(), pool.root(), &self.now)];
        for (name, tree) in &self.kept {
            trees.push((name.clone(), pool.snapshot_root(name.as_bytes())?, tree));
        }
        Ok(trees)
    }

    /// Where the data of these trees is: of each line, its place in the pool.
    fn lines_of(&self, pool: &BadPool, is_kept: bool) -> Vec<u64> {
        let mut lines = Vec::new();
        for (number, (_, root, tree)) in self.trees(pool).unwrap().into_iter().enumerate() {
            for (name, bytes) in tree.iter().filter(|_| (number > 0) == is_kept) {
                let file = pool.lookup(root, name.as_bytes()).unwrap().ino;
                let file = pool.hold(file).unwrap();
                for one in pool.extents(&file, 0, bytes.len() as u64).unwrap() {
                    let end = one.bytes.min(bytes.len() as u64 - one.file_offset);
                    lines.extend((one.pool_offset..one.pool_offset + end).step_by(LINE as usize));
                }
                pool.let_go(file);
            }
        }
        lines
    }

    /// Lines to be hit. Empty where there are none of this kind.
    fn choose(&mut self, pool: &BadPool, hit: Hit) -> Vec<u64> {
        let among = match hit {
            Hit::Data => self.lines_of(pool, false),
            Hit::Seen => self.lines_of(pool, true),
            Hit::Log => {
                let names: Vec<String> = self.now.keys().cloned().collect();
                let dump = |name: &String| {
                    let ino = pool.lookup(pool.root(), name.as_bytes()).unwrap().ino;
                    pool.dump_inode(ino).unwrap().log_pages
                };
                let pages = names.iter().flat_map(dump);
                pages.flat_map(|at| (at..at + PAGE).step_by(LINE as usize)).collect()
            }
            Hit::Manifests => {
                let raw = self.memory.inner().get(0, SUPERBLOCK_BYTES);
                let superblock = Superblock::parse(raw[..].try_into().unwrap()).unwrap();
                let at = superblock.checkpoint * PAGE;
                return if at == 0 { Vec::new() } else { (at..at + PAGE).step_by(64).collect() };
            }
            Hit::Anywhere => (PAGE..BYTES - PAGE).step_by(LINE as usize).collect(),
        };
        if among.is_empty() {
            return among;
        }
        let count = 1 + self.rng.below(3);
        (0..count).map(|_| among[self.rng.below(among.len() as u64) as usize]).collect()
    }

    /// All that is shown is right, or an error: of data only where it `may_fail`. Returns whether anything was refused.
    fn compare(&self, pool: &BadPool, may_fail: bool, of_metadata: bool, case: &str) -> bool {
        let mut refused = false;
        let mut met = |error: Error, of_data: bool, what: &str| {
            let may = is_damage(error) && (of_metadata || of_data && may_fail);
            assert!(may, "{case}: {what}: {error:?}");
            refused = true;
        };
        let trees = match self.trees(pool) {
            Ok(trees) => trees,
            Err(error) => {
                met(error, false, "snapshots");
                return true;
            }
        };
        for (tree, root, files) in trees {
            for (name, wanted) in files {
                let what = format!("{tree}: {name}");
                let found = match pool.lookup(root, name.as_bytes()) {
                    Ok(found) => found,
                    Err(error) => {
                        met(error, false, &what);
                        continue;
                    }
                };
                assert_eq!(found.size, wanted.len() as u64, "{case}: {what}");
                for (offset, part) in (0..).step_by(LINE as usize).zip(wanted.chunks(LINE as usize))
                {
                    let mut bytes = vec![0; part.len()];
                    match pool.read(found.ino, offset, &mut bytes) {
                        Ok(_) => assert!(bytes == part, "{case}: {what}, byte {offset}"),
                        Err(error) => met(error, true, &format!("{what}, byte {offset}")),
                    }
                }
            }
        }
        refused
    }
}

/// What a scrub says that is lost.
fn lost(pool: &BadPool) -> usize {
    let mut scrub = pool.begin_scrub().unwrap();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, 1 << 20).unwrap();
    }
    scrub.take_findings().iter().filter(|found| found.outcome == Outcome::Lost).count()
}

/// What became of it: raised, refused, or damaged so that it can't be opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Raised,
    Refused,
    Shut,
}

fn raise(used: &mut Used, from: Protection, to: Protection, hit: Hit, case: &str) -> End {
    let of_metadata = matches!(hit, Hit::Log | Hit::Anywhere) && from == Protection::None;
    let raised = protect(&used.memory, to);
    let pool = match open(&used.memory) {
        Ok(pool) => pool,
        Err(error) => {
            let refused = matches!(raised, Err(error) if is_damage(error));
            assert!(of_metadata && refused && is_damage(error), "{case}: {raised:?}, {error:?}");
            return End::Shut;
        }
    };
    let has = pool.info().unwrap().protection;
    match raised {
        Ok(changed) => assert!(changed && has == to, "{case}: {has:?}"),
        Err(Error::NoSpace) => assert!(has >= from && has < to, "{case}: {has:?}"),
        Err(error) => {
            assert!(is_damage(error) && has >= from && has < to, "{case}: {error:?} {has:?}")
        }
    }
    // What has checksums was there when it got them.
    let refused = used.compare(&pool, has != Protection::Full, of_metadata, case);
    if !of_metadata {
        // (Values of attributes are not twice there.)
        let damage = pool.check(&mut |_, _| ()).unwrap().damage;
        assert!(damage.is_empty() || hit == Hit::Anywhere, "{case}: {damage:?}");
        let lost = lost(&pool);
        // (Values of attributes are not looked at here.)
        assert!(lost > 0 || !refused, "{case}");
        assert!(lost == 0 || refused || hit == Hit::Anywhere, "{case}: {lost} lost");
    }
    // It goes on as it is.
    if !of_metadata {
        _ = pool.unlink(pool.root(), b"later");
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let later = pool.create(pool.root(), b"later", &new).unwrap().ino;
        let (written, mut bytes) = (vec![9; 9000], vec![0; 9000]);
        match pool.write(later, 0, &written) {
            Ok(()) => {
                assert_eq!(pool.read(later, 0, &mut bytes), Ok(9000), "{case}");
                assert!(bytes == written, "{case}");
            }
            error => assert_eq!(error, Err(Error::NoSpace), "{case}"),
        }
        pool.close().unwrap();
    }
    if raised.is_ok() { End::Raised } else { End::Refused }
}

/// Says what became of each turn.
fn history(seed: u64) -> Vec<(Hit, Protection, End)> {
    let hit = HITS[seed as usize % HITS.len()];
    let from = [Protection::None, Protection::Metadata][seed as usize / 5 % 2];
    let case = format!("seed {seed}, {hit:?}, {from:?}");
    let (mut used, pool) = Used::new(seed, from);
    used.operate(&pool, 90);
    let is_closed = (seed / 10).is_multiple_of(2) || hit == Hit::Manifests;
    let mut lines = used.choose(&pool, hit);
    if is_closed {
        pool.close().unwrap();
    }
    if hit == Hit::Manifests {
        lines = used.choose(&pool, hit);
    }
    let is_known = (seed / 20).is_multiple_of(2) && !is_closed;
    lines.iter().for_each(|at| used.memory.poison(*at, LINE));
    if is_known {
        // Whoever has met it leaves it in the list.
        used.compare(&pool, true, true, &case);
        _ = pool.maintain();
    }
    drop(pool);
    let steps: &[Protection] = match (from, seed / 40 % 2) {
        (Protection::None, 0) => &[Protection::Metadata, Protection::Full],
        _ => &[Protection::Full],
    };
    let (mut level, mut ends) = (from, Vec::new());
    for to in steps {
        let case = format!("{case} to {to:?}");
        let mut end = raise(&mut used, level, *to, hit, &case);
        ends.push((hit, *to, end));
        if hit == Hit::Manifests && end == End::Refused {
            // A checkpoint that is lost is damage. The pool was opened since, and has another one.
            end = raise(&mut used, level, *to, hit, &format!("{case}, again"));
            ends.push((hit, *to, end));
        }
        if end != End::Raised {
            break;
        }
        level = *to;
    }
    ends
}

#[test]
fn a_pool_over_bad_memory_is_raised_or_stays_as_it_was_and_shows_nothing_wrong() {
    let all = std::sync::Mutex::new(Vec::new());
    seeds::each(seeds::count("LODE_RAISED_BAD_SEQUENCES", 400), |seed| {
        let ends = history(seed);
        all.lock().unwrap().extend(ends);
    });
    let all = all.into_inner().unwrap();
    let count = |hit, end| all.iter().filter(|one| (one.0, one.2) == (hit, end)).count();
    for hit in HITS {
        println!(
            "{hit:?}: {:?}",
            [End::Raised, End::Refused, End::Shut].map(|end| count(hit, end))
        );
    }
    // Each of them comes to what it must come to, now and then.
    for (hit, end) in [
        (Hit::Data, End::Raised),
        (Hit::Data, End::Refused),
        (Hit::Seen, End::Refused),
        (Hit::Log, End::Shut),
        (Hit::Log, End::Raised),
        (Hit::Manifests, End::Refused),
        (Hit::Manifests, End::Raised),
        (Hit::Anywhere, End::Raised),
    ] {
        assert!(count(hit, end) > 0, "{hit:?} {end:?}");
    }
}
