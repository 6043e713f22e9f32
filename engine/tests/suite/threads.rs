//! Many threads at once do to a pool what they do to the model: each in a subtree of its
//! own exactly, all in shared directories by what every order of them must preserve.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};

use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, RenameMode, mode,
};
use lode_model::Model;
use lode_testkit::execute::{Handles, execute, list};
use lode_testkit::fs::{Fs, TestPool};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Op, Path, print};
use lode_testkit::rng::Rng;
use lode_testkit::run::same;
use lode_testkit::snapshot::{Times, difference, snapshot};
use lode_testkit::{Memory, TestHost};

const THREADS: usize = 8;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn pool(bytes: u64, relaxed: bool) -> TestPool {
    let (memory, host) = (Memory::new(bytes), TestHost::with_cpus(1, THREADS));
    let format = FormatOptions { lanes: THREADS as u32, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    let options = OpenOptions { relaxed, atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory, host, &options).unwrap()
}

/// The pool is sound, and what is seen of it is the same after a clean and after an unclean
/// opening.
fn assert_sound_and_lasting(pool: &TestPool) {
    // Reading may move access times.
    let times = Times { access: false, ..Times::ALL };
    let seen = snapshot(pool, times, None).unwrap();
    for clean in [false, true] {
        let report = pool.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.damage, []);
        if clean {
            pool.close().unwrap();
        }
        let again =
            Pool::open(pool.medium().copy(), TestHost::new(3), &OpenOptions::default()).unwrap();
        assert_eq!(again.opening().damage, []);
        assert_eq!(again.opening().clean, clean);
        let found = snapshot(&again, times, Some(&seen)).unwrap();
        assert_eq!(difference(&seen, &found), None, "reopened, clean {clean}");
        assert_eq!(again.check(&mut |_, _| ()).unwrap().damage, []);
    }
}

/// Runs `work(thread)` in all threads, which begin together.
fn in_threads(work: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

/// Sets a flag when it is dropped, in a panic too.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn own_subtrees(seed: u64, relaxed: bool, count: usize) {
    let pool = pool(256 << 20, relaxed);
    let model = Model::new();
    for thread in 0..THREADS {
        let name = format!("t{thread}").into_bytes();
        pool.create(pool.root(), &name, &NEW_DIR).unwrap();
        model.create(model.root(), &name, &NEW_DIR).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Background work runs beside it all, as in a server.
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                pool.maintain().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        // Else the background work would go on, and a failure be a test that does not end.
        let _stopped = StopAtEnd(&stop);
        in_threads(|thread| {
            let below = Path::of(&format!("t{thread}"));
            let shape = Shape { below, sparse: thread % 2 == 0, ..Shape::default() };
            let ops = Generator::new(seed * 100 + thread as u64, shape).take(count);
            let (mut handles, mut model_handles) = (Handles::new(), Handles::new());
            for (step, op) in ops.iter().enumerate() {
                let found = execute(&pool, &mut handles, op);
                let wanted = execute(&model, &mut model_handles, op);
                let done = || print(&ops[..=step]);
                assert!(same(&wanted, &found), "{op}: {wanted:?}, {found:?}\n{}", done());
            }
            handles.values().for_each(|open| pool.release(open.ino()));
            model_handles.values().for_each(|open| model.release(open.ino()));
        });
    });
    let wanted = snapshot(&model, Times::NONE, None).unwrap();
    let found = snapshot(&pool, Times::NONE, Some(&wanted)).unwrap();
    assert_eq!(difference(&wanted, &found), None, "seed {seed}");
    assert_eq!(pool.statfs().inodes, Fs::inodes(&model));
    assert_sound_and_lasting(&pool);
}

#[test]
fn threads_in_their_own_subtrees_equal_the_model() {
    for seed in 0..4 {
        own_subtrees(seed, seed == 3, 1200);
    }
}

/// Which thread's call came true, by name.
type Winners = Mutex<BTreeMap<Vec<u8>, Vec<usize>>>;

#[test]
fn of_racing_creates_links_and_renames_of_one_name_exactly_one_wins() {
    let pool = pool(128 << 20, false);
    let root = pool.root();
    let shared = pool.create(root, b"shared", &NEW_DIR).unwrap().ino;
    let winners = Winners::default();
    in_threads(|thread| {
        let own = pool.create(root, format!("own{thread}").as_bytes(), &NEW_DIR).unwrap().ino;
        for number in 0..400u32 {
            let name = format!("n{number}").into_bytes();
            let won = match (number + thread as u32) % 4 {
                0 => pool.create(shared, &name, &NEW).map(|_| ()),
                1 => pool.symlink(shared, &name, b"target", 1, 1).map(|_| ()),
                2 => {
                    let made = pool.create(own, &name, &NEW).unwrap();
                    pool.link(made.ino, shared, &name).map(|_| ())
                }
                _ => {
                    pool.create(own, &name, &NEW).unwrap();
                    pool.rename(own, &name, shared, &name, RenameMode::NoReplace)
                }
            };
            match won {
                Ok(()) => winners.lock().unwrap().entry(name).or_default().push(thread),
                Err(error) => assert_eq!(error, Error::Exists),
            }
        }
    });
    let winners = winners.into_inner().unwrap();
    assert_eq!(winners.len(), 400, "each name has a winner");
    for (name, threads) in &winners {
        assert_eq!(threads.len(), 1, "{name:?} was won by {threads:?}");
    }
    assert_eq!(list(&pool, shared).unwrap().len(), 400);
    assert_sound_and_lasting(&pool);
}

#[test]
fn of_racing_unlinks_and_rmdirs_of_one_name_exactly_one_wins() {
    let pool = pool(128 << 20, false);
    let root = pool.root();
    let won = AtomicU64::new(0);
    for round in 0..4 {
        for number in 0..150 {
            let new = if number % 2 == 0 { NEW } else { NEW_DIR };
            pool.create(root, format!("r{number}").as_bytes(), &new).unwrap();
        }
        in_threads(|thread| {
            for step in 0..150 {
                let number = if thread % 2 == 0 { step } else { 149 - step };
                let name = format!("r{number}").into_bytes();
                let gone = match (number % 2, (thread + round) % 3) {
                    (_, 0) => {
                        let to = format!("moved{thread}-{number}").into_bytes();
                        pool.rename(root, &name, root, &to, RenameMode::Replace)
                    }
                    (0, _) => pool.unlink(root, &name),
                    _ => pool.rmdir(root, &name),
                };
                match gone {
                    Ok(()) => drop(won.fetch_add(1, SeqCst)),
                    Err(error) => assert_eq!(error, Error::NotFound),
                }
            }
        });
        assert_eq!(won.swap(0, SeqCst), 150, "each name goes exactly once");
        for (name, kind) in list(&pool, root).unwrap() {
            assert!(name.starts_with(b"moved"));
            match kind {
                mode::DIRECTORY => pool.rmdir(root, &name).unwrap(),
                _ => pool.unlink(root, &name).unwrap(),
            }
        }
    }
    assert_eq!(pool.getattr(root).unwrap().links, 2);
    assert_eq!(pool.statfs().inodes, 1);
    assert_sound_and_lasting(&pool);
}

/// Every append is there once and whole, and one thread's are in its order.
#[test]
fn appends_of_many_threads_to_one_file_are_whole_and_in_order() {
    const RECORD: usize = 48;
    let pool = pool(128 << 20, false);
    let ino = pool.create(pool.root(), b"log", &NEW).unwrap().ino;
    in_threads(|thread| {
        for number in 0..500u32 {
            let mut record = [thread as u8; RECORD];
            record[4..8].copy_from_slice(&number.to_le_bytes());
            let at = pool.append(ino, &record).unwrap();
            assert!(at.is_multiple_of(RECORD as u64), "append went to {at}");
            let mut again = [0; RECORD];
            assert_eq!(pool.read(ino, at, &mut again).unwrap(), RECORD);
            assert_eq!(again, record, "what was appended at {at}");
        }
    });
    let mut bytes = vec![0; THREADS * 500 * RECORD + 1];
    assert_eq!(pool.read(ino, 0, &mut bytes).unwrap(), THREADS * 500 * RECORD);
    let mut next = [0u32; THREADS];
    for record in bytes.chunks_exact(RECORD) {
        let thread = record[0] as usize;
        let number = u32::from_le_bytes([record[4], record[5], record[6], record[7]]);
        assert_eq!(number, next[thread], "records of thread {thread} are in its order");
        next[thread] += 1;
        assert!(record[8..].iter().all(|&byte| byte == record[0]));
    }
    assert_eq!(next, [500; THREADS]);
    assert_sound_and_lasting(&pool);
}

/// A write is seen wholly or not at all, also when it covers several pages.
#[test]
fn overwrites_of_one_range_are_never_seen_mixed() {
    let pool = pool(128 << 20, false);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    for (at, len) in [(0usize, 8192usize), (100, 512), (4000, 200), (64, 64), (5000, 10_000)] {
        pool.write(ino, at as u64, &vec![0xFF; len]).unwrap();
        in_threads(|thread| {
            let mut rng = Rng::new(thread as u64);
            let mut seen = vec![0; len];
            for _ in 0..150 {
                if thread % 2 == 0 {
                    let byte = thread as u8 * 16 + rng.below(16) as u8;
                    pool.write(ino, at as u64, &vec![byte; len]).unwrap();
                } else {
                    assert_eq!(pool.read(ino, at as u64, &mut seen).unwrap(), len);
                    let mixed = seen.iter().position(|&byte| byte != seen[0]);
                    assert_eq!(mixed, None, "a write of {len} bytes at {at} is seen in part");
                }
            }
        });
    }
    assert_sound_and_lasting(&pool);
}

/// Disjoint parts of one file, written at once, are all there.
#[test]
fn disjoint_writes_to_one_file_are_all_there() {
    let pool = pool(128 << 20, false);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    // Parts that share pages and lines.
    for part in [4096usize, 1000, 24] {
        in_threads(|thread| {
            for step in 0..200 {
                let at = (step * THREADS + thread) * part;
                pool.write(ino, at as u64, &vec![thread as u8 + 1; part]).unwrap();
            }
        });
        let mut bytes = vec![0; 200 * THREADS * part];
        assert_eq!(pool.read(ino, 0, &mut bytes).unwrap(), bytes.len());
        for (index, piece) in bytes.chunks_exact(part).enumerate() {
            let wanted = (index % THREADS) as u8 + 1;
            assert!(piece.iter().all(|&byte| byte == wanted), "part {index} of {part} bytes");
        }
    }
    assert_sound_and_lasting(&pool);
}

/// Swaps only permute: the names and the files stay the same sets.
#[test]
fn exchanges_keep_the_sets_of_names_and_of_files() {
    let pool = pool(128 << 20, false);
    let root = pool.root();
    let dirs: Vec<Ino> = (0..3)
        .map(|number| pool.create(root, format!("d{number}").as_bytes(), &NEW_DIR).unwrap().ino)
        .collect();
    let mut before = Vec::new();
    for (number, dir) in dirs.iter().enumerate() {
        for name in 0..4u8 {
            let new = if name == 0 { NEW_DIR } else { NEW };
            let attr = pool.create(*dir, &[b'a' + name], &new).unwrap();
            if name > 0 {
                pool.write(attr.ino, 0, format!("file {number} {name}").as_bytes()).unwrap();
            }
            before.push(attr.ino);
        }
    }
    in_threads(|thread| {
        let mut rng = Rng::new(thread as u64 + 50);
        for _ in 0..500 {
            let (from, to) = (rng.pick(&dirs), rng.pick(&dirs));
            let (name, to_name) = ([b'a' + rng.below(4) as u8], [b'a' + rng.below(4) as u8]);
            pool.rename(from, &name, to, &to_name, RenameMode::Exchange).unwrap();
        }
    });
    let mut after = Vec::new();
    for dir in &dirs {
        for name in b"abcd" {
            let attr = pool.lookup(*dir, &[*name]).unwrap();
            after.push(attr.ino);
            if attr.mode & mode::TYPE == mode::DIRECTORY {
                assert_eq!(pool.parent(attr.ino), Ok(*dir));
            }
        }
    }
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(after, before);
    assert_sound_and_lasting(&pool);
}

/// Directories moved into each other at once: never a circle, never a lost one.
#[test]
fn racing_moves_of_directories_never_make_a_circle() {
    let pool = pool(128 << 20, false);
    let root = pool.root();
    let mut inos = Vec::new();
    for number in 0..8u8 {
        inos.push(pool.create(root, &[b'a' + number], &NEW_DIR).unwrap().ino);
    }
    in_threads(|thread| {
        let mut rng = Rng::new(thread as u64 + 70);
        for _ in 0..400 {
            let moved = rng.below(8) as u8;
            let name = [b'a' + moved];
            let to = if rng.once_in(4) { root } else { rng.pick(&inos) };
            let Ok(from) = pool.parent(inos[moved as usize]) else { panic!("no parent") };
            match pool.rename(from, &name, to, &name, RenameMode::NoReplace) {
                Ok(()) | Err(Error::NotFound | Error::Invalid | Error::Exists) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    for &ino in &inos {
        let (mut at, mut steps) = (ino, 0);
        while at != root {
            at = pool.parent(at).unwrap();
            steps += 1;
            assert!(steps <= 8, "directories in a circle");
        }
    }
    assert_eq!(snapshot(&pool, Times::NONE, None).unwrap().0.len(), 9);
    assert_sound_and_lasting(&pool);
}

/// Names come and go; hard links of one file are counted right whatever the order.
#[test]
fn link_counts_are_right_after_any_order_of_links_and_unlinks() {
    let pool = pool(128 << 20, false);
    let root = pool.root();
    let ino = pool.create(root, b"base", &NEW).unwrap().ino;
    let links = AtomicU64::new(1);
    in_threads(|thread| {
        let mut rng = Rng::new(thread as u64 + 90);
        for _ in 0..400 {
            let name = format!("l{}", rng.below(30)).into_bytes();
            if rng.once_in(2) {
                match pool.link(ino, root, &name) {
                    Ok(_) => drop(links.fetch_add(1, SeqCst)),
                    Err(error) => assert_eq!(error, Error::Exists),
                }
            } else {
                match pool.unlink(root, &name) {
                    Ok(()) => drop(links.fetch_sub(1, SeqCst)),
                    Err(error) => assert_eq!(error, Error::NotFound),
                }
            }
        }
    });
    let links = links.into_inner();
    assert_eq!(u64::from(pool.getattr(ino).unwrap().links), links);
    assert_eq!(list(&pool, root).unwrap().len() as u64, links);
    assert_sound_and_lasting(&pool);
}

/// The ordinary mixture on shared names. Which call wins is open; that the tree is sound,
/// counts its links right and lasts is not. (The seeds with which it fails are printed.)
#[test]
fn a_mixture_on_shared_names_leaves_a_sound_tree() {
    for seed in 0..4u64 {
        let pool = pool(128 << 20, seed % 2 == 1);
        in_threads(|thread| {
            let shape = Shape { sparse: false, names: 3, depth: 3, ..Shape::default() };
            let mut handles = Handles::new();
            for op in Generator::new(seed * 1000 + thread as u64, shape).take(800) {
                if let Err(Error::Corrupt(_) | Error::Media { .. } | Error::ReadOnly) =
                    execute(&pool, &mut handles, &op)
                {
                    panic!("seed {seed}, thread {thread}: {op}");
                }
            }
            handles.values().for_each(|open| pool.release(open.ino()));
        });
        assert_counts(&pool);
        assert_sound_and_lasting(&pool);
    }
}

#[test]
fn a_table_grown_for_an_inode_is_not_taken_away_before_the_inode_is_in_it() {
    let pool = pool(64 << 20, false);
    // Until there is no room for an inode in any table.
    let full = |pool: &TestPool| {
        let space = pool.statfs();
        space.inodes_free == space.pages_available * 8
    };
    for number in 0.. {
        if full(&pool) {
            break;
        }
        pool.create(pool.root(), format!("{number}").as_bytes(), &NEW).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = StopAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                pool.maintain().unwrap();
            }
        });
        let made = scope.spawn(|| {
            for round in 0..3000 {
                let made = pool.create(pool.root(), b"file", &NEW);
                assert!(made.is_ok(), "round {round}: {made:?}");
                pool.unlink(pool.root(), b"file").unwrap();
                // Now it is empty, and goes.
                pool.maintain().unwrap();
            }
        });
        made.join().unwrap();
    });
    assert_sound_and_lasting(&pool);
}

/// Links of files and directories are what the tree says.
fn assert_counts(pool: &TestPool) {
    let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut subdirs: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut todo = vec![pool.root()];
    while let Some(dir) = todo.pop() {
        let mut visit = |entry: lode_engine::DirEntry<'_>| {
            if entry.kind == mode::DIRECTORY {
                *subdirs.entry(dir).or_default() += 1;
                todo.push(entry.ino);
            } else {
                *names.entry(entry.ino).or_default() += 1;
            }
            true
        };
        pool.readdir(dir, 0, &mut visit).unwrap();
        let wanted = 2 + subdirs.get(&dir).copied().unwrap_or(0);
        assert_eq!(pool.getattr(dir).unwrap().links, wanted, "links of directory {dir}");
    }
    for (ino, links) in names {
        assert_eq!(pool.getattr(ino).unwrap().links, links, "links of inode {ino}");
    }
}

/// Of an inode with two states in memory, one would miss what the other had done.
#[test]
fn who_asks_for_the_number_of_a_newborn_finds_it_or_nothing() {
    let pool = pool(256 << 20, false);
    let (last, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let next_to_last = || match pool.getattr(last.load(SeqCst) + 1) {
        Ok(_) | Err(Error::Stale) => {}
        Err(error) => panic!("{error}"),
    };
    let work = |number: u64| {
        let born = pool.create(pool.root(), format!("{number}").as_bytes(), &NEW)?.ino;
        last.store(born, SeqCst);
        (0..5).try_for_each(|_| pool.append(born, b"more").map(drop))
    };
    let worked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !done.load(SeqCst) {
                next_to_last();
            }
        });
        let mut numbers = (0..20_000).take_while(|_| !asking.is_finished());
        let worked = numbers.try_for_each(work);
        done.store(true, SeqCst);
        worked
    });
    assert_eq!(worked, Ok(()));
}

#[test]
fn operations_print_as_they_were_made() {
    let op = Op::Unlink { path: Path::of("a/b") };
    assert_eq!(op.to_string(), "unlink /a/b");
}
