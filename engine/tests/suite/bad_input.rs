//! Whatever bytes are opened as a pool: an error or a sound pool, never a panic, a hang or
//! a wrong answer.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lode_engine::layout::{BAD_AT, LOCATOR_AT};
use lode_engine::{
    Error, FormatOptions, NewInode, OpenOptions, Outcome, PageClass, PagesUsed, Pool,
    SuperblockDamage, Unusable, Use, What, mode,
};
use lode_testkit::damage::{damage_bytes, damage_structure};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::format::{PAGE, Survey, seal_superblock, set_half, set_word, word};
use lode_testkit::fs::TestPool;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::harm::scrubbed;
use lode_testkit::rng::Rng;
use lode_testkit::run::panic_text;
use lode_testkit::trial::{Verdict, try_image};
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };
/// Longest that one image may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn formatted(bytes: u64, options: &FormatOptions) -> Memory {
    let memory = Memory::new(bytes);
    Pool::format(memory.clone(), TestHost::new(bytes), options).unwrap();
    memory
}

fn open(image: &[u8], read_only: bool) -> Result<TestPool, Error> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Pool::open(Memory::from_image(image), TestHost::new(5), &options)
}

/// A small pool with something of everything: log pages, dead inodes, journalled
/// overwrites, long names, several lanes; closed, or as a crash leaves it.
fn varied_image(seed: u64, clean: bool) -> Vec<u8> {
    let class = if seed % 4 == 3 { PageClass::Huge } else { PageClass::Small };
    let bytes = if class == PageClass::Huge { 12 << 20 } else { 2 << 20 };
    let lanes = [1, 2, 4][seed as usize % 3];
    let memory = formatted(bytes, &FormatOptions { lanes, ..FormatOptions::default() });
    let options = OpenOptions { page_class: Some(class), ..OpenOptions::default() };
    let pool = Pool::open(memory.clone(), TestHost::with_cpus(seed, 2), &options).unwrap();
    let root = pool.root();
    let dir = pool.create(root, b"dir", &NEW_DIR).unwrap().ino;
    for number in 0..90 {
        let name = format!("entry-{number}-with-a-name-longer-than-sixteen").into_bytes();
        pool.create(dir, &name, &NEW).unwrap();
        if number % 3 == 0 {
            pool.unlink(dir, &name).unwrap();
        }
    }
    let long = pool.create(root, b"long-log", &NEW).unwrap().ino;
    for step in 0..100u64 {
        pool.write(long, step % 20 * 8192, &[step as u8; 600]).unwrap();
    }
    pool.symlink(root, b"symlink", &[b't'; 100], 1, 1).unwrap();
    pool.symlink(root, b"long-symlink", &[b'u'; 3000], 1, 1).unwrap();
    let shape = Shape { sparse: true, offset_max: 60_000, len_max: 9000, ..Shape::default() };
    let mut handles = Handles::new();
    for op in Generator::new(seed, shape).take(250) {
        let _ = execute(&pool, &mut handles, &op);
    }
    // The last operation of the crashed ones: journalled bytes that are still needed.
    pool.write(long, 100, &[0xEE; 512]).unwrap();
    if clean {
        handles.values().for_each(|open| pool.release(open.ino()));
        pool.close().unwrap();
    }
    memory.image()
}

#[test]
fn what_is_no_pool_is_refused_and_says_why() {
    let no_magic = |image: &[u8]| {
        for read_only in [false, true] {
            let error = open(image, read_only).err();
            assert_eq!(error, Some(Error::NotAPool(Unusable::NoMagic)));
        }
    };
    no_magic(&vec![0; 4 << 20]);
    no_magic(&vec![0xFF; 4 << 20]);
    let mut rng = Rng::new(1);
    no_magic(&(0..1 << 20).map(|_| rng.bits() as u8).collect::<Vec<_>>());
    for bytes in [0usize, 1, 63, 511, 512, 4095, 4096, 8192, 12_288, 20_000] {
        for read_only in [false, true] {
            assert!(matches!(open(&vec![0; bytes], read_only), Err(Error::NotAPool(_))), "{bytes}");
        }
        let memory = Memory::new(bytes as u64);
        let formatted = Pool::format(memory, TestHost::new(1), &FormatOptions::default());
        assert!(matches!(formatted, Err(Error::NotAPool(Unusable::TooSmall { .. }))), "{bytes}");
    }
}

#[test]
fn a_truncated_pool_is_refused_and_says_what_is_missing() {
    let image = varied_image(0, true);
    for keep in [image.len() - 1, image.len() - PAGE, image.len() / 2, 3 * PAGE, PAGE] {
        for read_only in [false, true] {
            match open(&image[..keep], read_only).err() {
                Some(Error::NotAPool(Unusable::Truncated { expected, found })) => {
                    assert_eq!((expected, found), (image.len() as u64, keep as u64));
                }
                Some(Error::NotAPool(Unusable::TooSmall { .. })) if keep <= 3 * PAGE => {}
                other => panic!("cut to {keep} bytes: {other:?}"),
            }
        }
    }
}

/// The image with a number in both superblocks, sealed.
fn with_superblock(image: &[u8], at: usize, value: u64) -> Vec<u8> {
    let mut image = image.to_vec();
    for copy in [0, image.len() - PAGE] {
        if at == 8 {
            set_half(&mut image, copy + 8, value as u32);
        } else {
            set_word(&mut image, copy + at, value);
        }
        seal_superblock(&mut image, copy);
    }
    image
}

#[test]
fn versions_and_features_that_are_unknown_are_refused_by_name() {
    let image = varied_image(1, true);
    let refused = |image: &[u8], read_only| match open(image, read_only).err() {
        Some(Error::NotAPool(why)) => Some(why),
        None => None,
        other => panic!("{other:?}"),
    };
    for read_only in [false, true] {
        let other = with_superblock(&image, 8, 2);
        assert_eq!(refused(&other, read_only), Some(Unusable::Version(2)));
        let other = with_superblock(&image, 32, 1 << 60);
        assert_eq!(refused(&other, read_only), Some(Unusable::Features(1 << 60)));
        let other = with_superblock(&image, 16, 1 << 60);
        assert_eq!(refused(&other, read_only), None, "compatible features are ignored");
    }
    let other = with_superblock(&image, 24, 1 << 60);
    assert_eq!(refused(&other, false), Some(Unusable::ReadOnlyFeatures(1 << 60)));
    assert_eq!(refused(&other, true), None);
}

/// By whom it is found, and where it is: a copy, the list behind the other one, and the line that tells where they are.
#[test]
fn each_damaged_part_of_the_superblocks_is_found_for_itself() {
    let image = formatted(2 << 20, &FormatOptions::default()).image();
    let end = (image.len() - PAGE) as u64;
    let mut free = None;
    let empty = open(&image, true).unwrap();
    let mut is_free = |used: PagesUsed| {
        if used.used_for == Use::Free {
            free = Some(used.page * PAGE as u64);
        }
    };
    empty.for_each_use(&mut is_free).unwrap();
    let free = free.unwrap();
    let parts =
        [(What::Superblock, 0, 100), (What::BadList, BAD_AT, 0), (What::Locator, LOCATOR_AT, 8)];
    for (list, copy) in [(0, end), (end, 0)] {
        for which in 1..8 {
            let memory = Poisoned::new(Memory::from_image(&image), Healing::Never);
            let open = |read_only| {
                let options = OpenOptions { read_only, ..OpenOptions::default() };
                Pool::open(memory.clone(), TestHost::new(5), &options).unwrap()
            };
            // (A list has to have something that can be damaged.)
            memory.poison(free, 64);
            memory.inner().list_bad(free, 64);
            open(false).close().unwrap();
            let of = |(what, at, skip): (What, u64, u64)| match what {
                What::Superblock => (SuperblockDamage { what, at: copy }, copy + skip),
                What::BadList => (SuperblockDamage { what, at: list + at }, list + at + skip),
                _ => (SuperblockDamage { what, at }, at + skip),
            };
            let bad = parts.iter().zip(0..).filter(|(_, bit)| which >> bit & 1 == 1);
            let bad: Vec<(SuperblockDamage, u64)> = bad.map(|(part, _)| of(*part)).collect();
            let spoil = || {
                let inner = memory.inner();
                bad.iter().for_each(|(_, at)| inner.put(*at, &[!inner.get(*at, 1)[0]]));
            };
            let sorted = |mut found: Vec<SuperblockDamage>| {
                found.sort_by_key(|one| one.at);
                found
            };
            let wanted = sorted(bad.iter().map(|(part, _)| *part).collect());
            spoil();
            assert_eq!(sorted(open(true).opening().superblock_damage), wanted);
            let pool = open(false);
            assert_eq!(sorted(pool.opening().superblock_damage), wanted);
            spoil();
            let found = scrubbed(&pool).unwrap();
            assert!(found.iter().all(|one| one.outcome == Outcome::Repaired), "{found:?}");
            let found = found.iter().map(|one| SuperblockDamage { what: one.what, at: one.at });
            assert_eq!(sorted(found.collect()), wanted, "by a scrub");
            assert_eq!(scrubbed(&pool), Ok(vec![]), "{which} {list:#x}");
            pool.close().unwrap();
            drop(pool);
            assert_eq!(open(true).opening().superblock_damage, []);
        }
    }
}

#[test]
fn either_superblock_repairs_the_other() {
    for clean in [false, true] {
        let image = varied_image(2, clean);
        for damaged in [0, image.len() - PAGE] {
            let mut image = image.clone();
            image[damaged + 100] ^= 1;
            let memory = Memory::from_image(&image);
            let open = |read_only| {
                let options = OpenOptions { read_only, ..OpenOptions::default() };
                Pool::open(memory.clone(), TestHost::new(5), &options).unwrap()
            };
            let seen = open(true).opening();
            let lost = SuperblockDamage { what: What::Superblock, at: damaged as u64 };
            assert_eq!(seen.superblock_damage, [lost]);
            let pool = open(false);
            assert_eq!(pool.opening().superblock_damage, [lost]);
            // And while it is open.
            memory.put(damaged as u64 + 100, &[memory.get(damaged as u64 + 100, 1)[0] ^ 1]);
            let mut scrub = pool.begin_scrub().unwrap();
            while !scrub.is_over() {
                pool.scrub(&mut scrub, 1 << 20).unwrap();
            }
            let found = scrub.take_findings();
            assert_eq!((found.len(), found[0].at), (1, damaged as u64), "{found:?}");
            pool.close().unwrap();
            drop(pool);
            assert_eq!(open(false).opening().superblock_damage, [], "it was repaired for good");
        }
        let mut image = image;
        let end = image.len() - PAGE;
        image[100] ^= 1;
        image[end + 100] ^= 1;
        let error = open(&image, false).err();
        assert_eq!(error, Some(Error::NotAPool(Unusable::BadSuperblock)));
    }
}

/// Runs `trial` for each number on two threads; panics and hangs become failures.
fn in_trials(name: &str, count: u64, trial: impl Fn(u64) -> Result<Verdict, String> + Sync) {
    let only = std::env::var("LODE_IMAGE").ok().map(|number| number.parse::<u64>().unwrap());
    let next = AtomicU64::new(only.unwrap_or(0));
    let end = only.map_or(count, |number| number + 1);
    let verdicts: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let failures: Mutex<Vec<String>> = Mutex::default();
    let running: [Mutex<Option<(u64, Instant)>>; 2] = Default::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(name, &running, &done));
        let workers: Vec<_> = running
            .iter()
            .map(|current| {
                let (next, verdicts, failures, trial) = (&next, &verdicts, &failures, &trial);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, SeqCst);
                        if number >= end || failures.lock().unwrap().len() >= 5 {
                            return;
                        }
                        *current.lock().unwrap() = Some((number, Instant::now()));
                        let result = catch_unwind(AssertUnwindSafe(|| trial(number)))
                            .unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
                        *current.lock().unwrap() = None;
                        match result {
                            Ok(verdict) => {
                                *verdicts
                                    .lock()
                                    .unwrap()
                                    .entry(format!("{verdict:?}"))
                                    .or_default() += 1;
                            }
                            Err(what) => {
                                failures.lock().unwrap().push(format!("image {number}: {what}"));
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, SeqCst);
    });
    println!("{name}: {:?}", verdicts.lock().unwrap());
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "(LODE_IMAGE=N runs one)\n{}", failures.join("\n"));
}

/// A hang can't be caught, only reported.
fn watch(name: &str, running: &[Mutex<Option<(u64, Instant)>>], done: &AtomicBool) {
    while !done.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
        for current in running {
            if let Some((number, since)) = *current.lock().unwrap()
                && since.elapsed() > PATIENCE
            {
                eprintln!("{name}: image {number} hangs (LODE_IMAGE={number} runs it alone)");
                std::process::abort();
            }
        }
    }
}

fn varied_images() -> Vec<Vec<u8>> {
    (0..8).map(|seed| varied_image(seed, seed % 2 == 0)).collect()
}

#[test]
fn images_with_random_damage_give_an_error_or_a_sound_pool() {
    let images = varied_images();
    in_trials("random damage", 2_500, |number| {
        let mut rng = Rng::new(number);
        let mut image = rng.pick(&images);
        let mut done = Vec::new();
        for _ in 0..1 + rng.below(3) {
            if image.len() > PAGE {
                done.push(damage_bytes(&mut image, &mut rng));
            }
        }
        try_image(&image).map_err(|what| format!("{what} ({})", done.join("; ")))
    });
}

#[test]
fn images_damaged_in_structure_and_sealed_again_give_an_error_or_a_sound_pool() {
    let images = varied_images();
    let surveys: Vec<Survey> = images.iter().map(|image| Survey::of(image)).collect();
    for survey in &surveys {
        // The survey sees what was made: else nothing here would test anything.
        assert!(survey.logs.iter().any(|log| log.runs.len() > 2), "there are log pages");
        assert!(survey.logs.iter().any(|log| log.dead), "there are dead inodes");
        assert!(survey.logs.len() > 60);
    }
    assert!(surveys.iter().any(|survey| !survey.segments.is_empty()), "there are checkpoints");
    in_trials("damage that is sealed", 2_500, |number| {
        let mut rng = Rng::new(number + (1 << 32));
        let index = rng.below(images.len() as u64) as usize;
        let (mut image, survey) = (images[index].clone(), &surveys[index]);
        let mut done = Vec::new();
        for _ in 0..1 + rng.below(2) {
            done.push(damage_structure(&mut image, survey, &mut rng));
        }
        try_image(&image).map_err(|what| format!("{what} ({})", done.join("; ")))
    });
}

#[test]
fn sealing_again_without_a_change_is_no_damage() {
    for seed in 0..4 {
        let image = varied_image(seed, seed % 2 == 0);
        let survey = Survey::of(&image);
        let mut again = image.clone();
        for run in survey.logs.iter().flat_map(|log| &log.runs) {
            run.seal(&mut again, 0);
        }
        for log in &survey.logs {
            survey.superblock.seal_anchor(&mut again, log.ino as usize * 512, log.nonce);
            for run in log.runs.iter().filter(|run| run.room == 63) {
                let nonce = word(&again, run.anchor + 24);
                survey.superblock.seal_anchor(&mut again, run.anchor, nonce);
            }
        }
        for &(segment, _) in &survey.segments {
            survey.superblock.seal_placed(&mut again, segment);
        }
        assert!(again == image, "seed {seed}: the seals are not those of the format's description");
        assert_eq!(try_image(&image), Ok(Verdict::Sound), "seed {seed}");
    }
}
